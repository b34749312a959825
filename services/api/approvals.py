"""``/v1/approvals``: what waits for a person, and the decision."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from agents.contracts.approval import Approval, ApprovalDecision, ApprovalState
from agents.contracts.base import Edge
from agents.contracts.page import ApprovalPage
from services.api import cursor as cursors
from services.api.auth import Approver, Reader
from services.api.bodies import read_json
from services.api.docs import body_of
from services.api.ids import ApprovalId, TaskId
from services.api.parts import Parts, Using
from services.store import approvals, task_views

router = APIRouter(prefix="/v1", tags=["approvals"])

DECISION_EXAMPLES = {
    "approve": {"value": {"decision": "approve"}},
    "deny": {"value": {"decision": "deny", "note": "Not on a Friday."}},
}


class ListQuery(Edge):
    """What a list of approvals understands."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: str | None = None
    order: Literal["asc", "desc"] = "desc"
    state: Annotated[list[ApprovalState], Field(max_length=len(ApprovalState), default_factory=list)]


@router.get("/approvals", summary="List approvals")
async def list_approvals(caller: Reader, parts: Using, query: Annotated[ListQuery, Query()]) -> ApprovalPage:
    """A page of the tenant's approvals, the newest first unless `order=asc`; `state=pending` is the inbox."""
    return await _page(parts, caller.tenant_id, None, query)


@router.get("/tasks/{task_id}/approvals", summary="A task's approvals")
async def of_task(caller: Reader, parts: Using, task_id: TaskId, query: Annotated[ListQuery, Query()]) -> ApprovalPage:
    """A page of one task's approvals."""
    return await _page(parts, caller.tenant_id, task_id, query)


@router.get("/approvals/{approval_id}", summary="Look at an approval")
async def get_approval(caller: Reader, parts: Using, approval_id: ApprovalId) -> Approval:
    """The call that waits, and what was decided."""
    async with parts.db.begin() as conn:
        return await approvals.get(conn, caller.tenant_id, approval_id)


@router.post(
    "/approvals/{approval_id}/decide",
    summary="Approve or deny",
    openapi_extra=body_of(ApprovalDecision, DECISION_EXAMPLES),
)
async def decide(request: Request, caller: Approver, parts: Using, approval_id: ApprovalId) -> Approval:
    """Decide once. The same decision again gives the same answer; the other one is 409 `ALREADY_DECIDED`; one that
    comes too late is 409 `APPROVAL_EXPIRED`."""
    async with parts.db.begin() as conn:
        await approvals.get(conn, caller.tenant_id, approval_id)  # what is not there is told before the body is judged
    decision = await read_json(request, ApprovalDecision)
    async with parts.db.begin() as conn:
        done = await approvals.decide(conn, caller.tenant_id, approval_id, decision, f"key:{caller.key_id}")
    if done.control_seq is not None:
        await parts.live.poke()
        await parts.live.control(caller.tenant_id, done.approval.task_id)
    return done.approval


async def _page(parts: Parts, tenant_id: str, task_id: str | None, query: ListQuery) -> ApprovalPage:
    behind = cursors.read(query.cursor, query.order) if query.cursor is not None else None
    async with parts.db.begin() as conn:
        if task_id is not None:
            await task_views.require(conn, tenant_id, task_id)
        found = await approvals.page(
            conn,
            tenant_id,
            limit=query.limit + 1,
            behind=behind,
            newest_first=query.order == "desc",
            states=query.state,
            task_id=task_id,
        )
    more = len(found) > query.limit
    data = found[: query.limit]
    after = cursors.behind(data[-1].requested_at, data[-1].id, query.order) if more else None
    return ApprovalPage(data=data, next_cursor=after)
