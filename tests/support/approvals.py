"""What tests of approvals share: decisions as the API makes them, and a tool whose effect cannot be undone."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from sqlalchemy import select

from agents.contracts.approval import Approval, ApprovalDecision, Decision
from agents.contracts.ids import Role
from agents.contracts.tool import Idempotency, Risk, ToolContract, ToolResult
from agents.roles import ROLES
from agents.tools.base import Arguments, Tool
from agents.tools.context import ToolContext
from agents.tools.registry import STANDARD, TOOLS, Toolbox
from services.store import approvals
from services.store.database import Database
from services.store.tables import approvals as rows


class Launch(Arguments):
    """Arguments of `launch`."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]+$")]
    seconds: Annotated[int, Field(ge=0, le=20)] = 0


async def _launch(ctx: ToolContext, args: Launch) -> ToolResult:
    slowly = f"touch begun; sleep {args.seconds}; " if args.seconds else ""
    status = await ctx.run(f"{slowly}echo {args.name} >> launched; echo {args.name} away", 30)
    return ToolResult(tool="launch", content=status.output, exit_code=status.exit_code)


def _tool(name: str, risk: Risk) -> Tool[Launch]:
    contract = ToolContract(
        name=name,
        description="Launch something. It does not come back.",
        risk=risk,
        idempotency=Idempotency.NONE,
        timeout_s=30,
        output_cap_bytes=1_024,
    )
    return Tool(contract, Launch, _launch)


LAUNCH, ORDER = _tool("launch", Risk.IRREVERSIBLE), _tool("order", Risk.EXTERNAL)
_OFFERED = {role: STANDARD.offered[role] for role in ROLES}
TOOLBOX = Toolbox(
    {**TOOLS, "launch": LAUNCH, "order": ORDER},
    {**_OFFERED, Role.EXECUTOR: (*_OFFERED[Role.EXECUTOR], "launch", "order")},
)
"""The usual tools, and for an executor two that cannot be repeated: `launch` (irreversible), `order` (external)."""


async def asked(db: Database, tenant_id: str) -> Sequence[Approval]:
    """Every approval of a tenant, in the order of asking."""
    query = select(rows).where(rows.c.tenant_id == tenant_id)
    query = query.order_by(rows.c.requested_at, rows.c.round, rows.c.turn, rows.c.call_index, rows.c.number)
    async with db.begin() as conn:
        return [Approval.model_validate(dict(row)) for row in (await conn.execute(query)).mappings()]


async def decide(db: Database, approval: Approval, tenant_id: str, decision: Decision, note: str | None = None) -> None:
    """As the API does."""
    async with db.begin() as conn:
        given = ApprovalDecision(decision=decision, note=note)
        await approvals.decide(conn, tenant_id, approval.id, given, "key:test")
