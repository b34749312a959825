"""All tools by name, their schemas, and the one place where a tool's fault becomes an observation."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from agents.contracts.errors import FaultClass, LonghaulError
from agents.contracts.ids import Role
from agents.contracts.model import ToolSchema
from agents.contracts.tool import ToolResult
from agents.roles import ROLES
from agents.tools import (
    ask,
    edit_file,
    finish_step,
    give_up,
    read_file,
    save_artifact,
    send_message,
    shell,
    submit_plan,
    submit_review,
    write_file,
)
from agents.tools.base import Tool
from agents.tools.context import ToolContext
from agents.tools.faults import observe
from agents.tools.schema import parameters_json, shape

_ALL: tuple[Tool[Any], ...] = (
    ask.TOOL,
    edit_file.TOOL,
    finish_step.TOOL,
    give_up.TOOL,
    read_file.TOOL,
    save_artifact.TOOL,
    send_message.TOOL,
    shell.TOOL,
    submit_plan.TOOL,
    submit_review.TOOL,
    write_file.TOOL,
)

TOOLS: Mapping[str, Tool[Any]] = {tool.name: tool for tool in _ALL}


@dataclass(frozen=True)
class Toolbox:
    """Tools by name, and the names that each role may call."""

    tools: Mapping[str, Tool[Any]]
    offered: Mapping[Role, tuple[str, ...]]


STANDARD = Toolbox(TOOLS, {role: spec.tools for role, spec in ROLES.items()})


def work_tools() -> tuple[str, ...]:
    """The names of the tools that do something, sorted: those of which a task may say what is allowed."""
    return tuple(sorted(name for name, tool in TOOLS.items() if not tool.contract.control))


@cache
def schemas(role: Role) -> tuple[ToolSchema, ...]:
    """What a role is offered, sorted by name; the same bytes in every process."""
    return tuple(_schema(TOOLS[name]) for name in ROLES[role].tools)


def _schema(tool: Tool[Any]) -> ToolSchema:
    return ToolSchema(
        name=tool.name,
        description=tool.contract.description,
        parameters_json=parameters_json(tool.arguments),
    )


async def execute(tool: Tool[Any], ctx: ToolContext, args: BaseModel) -> ToolResult:
    """Run a work tool. Its own faults become observations for the model.

    Raises:
        LonghaulError: a fault that is not the tool's (infrastructure, fencing); the model never sees it.
        ValueError: a control tool, which has no handler.
    """
    if tool.run is None:
        raise ValueError(f"{tool.name} is a control tool: the turn loop acts on it")
    try:
        return await tool.run(ctx, args)
    except LonghaulError as fault:
        if fault.code.rule.fault is not FaultClass.TOOL:
            raise
        return observe(tool.name, fault.code, fault.detail)


def describe() -> str:
    """The tools as a markdown table, for the reference page."""
    lines = [
        "| tool | arguments | roles | risk | idempotency | on fault |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_row(TOOLS[name]) for name in sorted(TOOLS)]
    return "\n".join(lines) + "\n"


def _row(tool: Tool[Any]) -> str:
    contract = tool.contract
    roles = ", ".join(role.value for role in Role if tool.name in ROLES[role].tools)
    codes = ", ".join(f"`{code.value}`" for code in contract.errors) or "–"
    kind = "control" if contract.control else contract.risk.value
    arguments = f"`{signature(tool)}`"
    return f"| `{tool.name}` | {arguments} | {roles} | {kind} | {contract.idempotency.value} | {codes} |"


def signature(tool: Tool[Any]) -> str:
    """A tool's arguments in short: ``{command, timeout_s?}``."""
    return shape(tool.arguments)
