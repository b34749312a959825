"""Agents that wait for something which has come: their workflows are told. Rows are the truth, this only wakes."""

from sqlalchemy import ColumnElement, RowMapping, exists, or_, select

from agents.contracts.approval import ApprovalState
from agents.contracts.ids import Place
from agents.contracts.run import AgentRef
from services.relay.starts import Workflows, each
from services.store.database import Database
from services.store.ledger_step import MAIL_WAITS
from services.store.tables import agents, approvals, tasks, tool_calls

_BATCH = 200

APPROVAL_WAIT = "approval"
_PENDING = ApprovalState.PENDING.value


def something_is_there() -> ColumnElement[bool]:
    """Of a waiting agent: what it waits for is in the rows. One line a kind of wait."""
    return or_(
        agents.c.waiting_for.in_(MAIL_WAITS) & (agents.c.mail_sent > agents.c.mail_read),
        (agents.c.waiting_for == APPROVAL_WAIT) & _can_go_on(),
    )


def _can_go_on() -> ColumnElement[bool]:
    """There is an outcome that was not acted on, and nothing undecided stands at or before its call."""
    decided, undecided = approvals.alias(), approvals.alias()
    same = [undecided.c[name] == decided.c[name] for name in ("tenant_id", "agent_id", "round", "turn")]
    before = exists().where(*same, undecided.c.call_index <= decided.c.call_index, undecided.c.state == _PENDING)
    open_call = exists().where(
        tool_calls.c.tenant_id == decided.c.tenant_id,
        tool_calls.c.key == decided.c.call_key,
        tool_calls.c.ended_at.is_(None),
    )
    mine = (decided.c.tenant_id == agents.c.tenant_id, decided.c.agent_id == agents.c.id)
    return exists().where(*mine, decided.c.state != _PENDING, decided.c.round == agents.c.round, open_call, ~before)


class Waker:
    """Signals waiting agents. Each round signals anew, until the agent has begun to read."""

    def __init__(self, db: Database, workflows: Workflows) -> None:
        self._db = db
        self._workflows = workflows

    async def wake_waiting(self) -> bool:
        """Wake every waiting agent for which something is there; whether there may be more."""
        query = (
            select(agents, tasks.c.control_seq)
            .join(tasks, tasks.c.id == agents.c.task_id)
            .where(agents.c.state == "waiting", something_is_there(), tasks.c.ended_at.is_(None))
            .order_by(agents.c.activity_at)
            .limit(_BATCH)
        )
        async with self._db.begin() as conn:
            rows = (await conn.execute(query)).all()
        await each([(_ref(row._mapping), row.control_seq) for row in rows], self._wake)
        return False

    async def _wake(self, waiting: tuple[AgentRef, int]) -> None:
        ref, control_seq = waiting
        await self._workflows.wake(ref, control_seq)


def _ref(row: RowMapping) -> AgentRef:
    place = Place(
        task_id=row["task_id"], epoch=row["epoch"], role=row["role"], revision=row["revision"], step=row["step"]
    )
    return AgentRef(tenant_id=row["tenant_id"], place=place, round=row["round"])
