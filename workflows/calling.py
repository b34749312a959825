"""Running the tool calls of a reply: in its order, neighbours that only read side by side, each under its key."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from agents.contracts.errors import ErrorCode, FaultClass, LonghaulError
from agents.contracts.sandbox import Owner
from agents.contracts.tool import Idempotency, ToolResult
from agents.contracts.trajectory import Brief, Turn
from agents.tools.arguments import parse_object
from agents.tools.control import accepted
from agents.tools.faults import observe
from agents.tools.finish_step import FinishStep
from agents.tools.parse import CheckedCall, batches
from agents.tools.registry import execute
from workflows.interrupts import Interrupts
from workflows.ports import CallContext, Workbench
from workflows.records import Held, Ran

DRAIN_GRACE_S = 2.0
"""What a worker that shuts down still waits for a tool; a command then goes on without it and is attached to later."""

Take = Callable[[Ran], Awaitable[None]]
"""Receives each result once, as soon as it is there."""


class Calling:
    """Runs calls through the workbench. Faults of what is around us pass through; they are never results."""

    def __init__(self, bench: Workbench, held: Held, brief: Brief, interrupts: Interrupts) -> None:
        self._bench = bench
        self._held = held
        self._brief = brief
        self._interrupts = interrupts

    @property
    def owner(self) -> Owner:
        """Who this attempt is to the runner."""
        return Owner(
            agent_id=self._held.agent_id, agent_fence=self._held.fence, sandbox_fence=self._brief.sandbox_fence
        )

    async def run(self, turn: Turn, calls: Sequence[CheckedCall], take: Take, *, begun_before: bool) -> None:
        """Run every call that has no result yet; `take` gets each result. Where an earlier attempt may have begun them
        they are attached to, or their outcome is unknown."""
        open_calls = [call for call in calls if turn.results[call.index] is None]
        for call in list(open_calls):
            known = call.refusal or (unknown(call) if begun_before else None)
            if known is not None:
                open_calls.remove(call)
                await take(Ran(call.index, known))
        for batch in batches(open_calls):
            await self._batch(turn, batch, take)

    async def hand_in(self, turn: Turn, call: CheckedCall, before: Sequence[Turn]) -> Ran:
        """What a control call comes to: accepted, or an error where a file that it names cannot be kept."""
        if not isinstance(call.arguments, FinishStep):
            return Ran(call.index, accepted(call.call.name))
        context = self._context(turn, call)
        saved = _saved_paths(before)
        for path in dict.fromkeys(call.arguments.artifacts):
            if _plain(path) in saved:
                continue
            try:
                await context.save(path, None)
            except LonghaulError as fault:
                if fault.code.rule.fault is not FaultClass.TOOL:
                    raise
                return Ran(call.index, observe(call.call.name, ErrorCode.ARTIFACT_MISSING, f"{path}: {fault.detail}"))
        return Ran(call.index, accepted(call.call.name), tuple(context.events), tuple(context.artifacts))

    async def _batch(self, turn: Turn, batch: list[CheckedCall], take: Take) -> None:
        one_at_a_time = asyncio.Lock()

        async def run_and_take(call: CheckedCall) -> None:
            ran = await self._one(turn, call)
            async with one_at_a_time:
                await take(ran)

        if len(batch) == 1:
            return await run_and_take(batch[0])
        tasks = [asyncio.ensure_future(run_and_take(call)) for call in batch]
        try:
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            task.result()
        return None

    async def _one(self, turn: Turn, call: CheckedCall) -> Ran:
        context = self._context(turn, call)
        result = await self._interrupts.race(_execute(call, context), DRAIN_GRACE_S, context.kill)
        if context.full is not None and result.full is None:
            result = result.model_copy(update={"full": context.full})
        return Ran(call.index, result, tuple(context.events), tuple(context.artifacts))

    def _context(self, turn: Turn, call: CheckedCall) -> CallContext:
        key = self._held.call_key(turn.turn, call.index)
        return self._bench.context(self._held, self._brief, key)


async def _execute(call: CheckedCall, context: CallContext) -> ToolResult:
    assert call.tool is not None  # batches() holds sound work calls only
    assert call.arguments is not None
    return await execute(call.tool, context, call.arguments)


def unknown(call: CheckedCall) -> ToolResult | None:
    """The result of a call that may have been begun and cannot be repeated: nobody knows, and the model is told so."""
    if call.tool is None or call.tool.contract.idempotency is not Idempotency.NONE:
        return None
    detail = "The call may or may not have taken effect: its worker died. Look before you repeat it."
    return observe(call.call.name, ErrorCode.EXEC_OUTCOME_UNKNOWN, detail)


def _saved_paths(turns: Sequence[Turn]) -> set[str]:
    """Files that this agent has kept already with `save_artifact`."""
    paths: set[str] = set()
    for turn in turns:
        for call, result in zip(turn.reply.tool_calls if turn.reply else (), turn.results, strict=False):
            if call.name == "save_artifact" and result is not None and result.ok:
                paths.add(_plain(str(parse_object(call.arguments).get("path", ""))))
    return paths


def _plain(path: str) -> str:
    return "/".join(part for part in path.removeprefix("/workspace/").split("/") if part not in ("", "."))
