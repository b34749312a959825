"""Ports of the turn loop in memory: small, real, and without any server. They keep what they are told, no more."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from agents.contracts.approval import Approval, ApprovalState
from agents.contracts.artifact import Artifact, BlobRef
from agents.contracts.errors import ErrorCode, ErrorInfo, LonghaulError
from agents.contracts.event import EventData
from agents.contracts.ids import Place, Role
from agents.contracts.message import Receipt
from agents.contracts.model import Delta
from agents.contracts.run import AgentRef, BurstEnd, Controls
from agents.contracts.sandbox import ExecState, ExecStatus, FileChange, FileText, Owner
from agents.contracts.task import Limits
from agents.contracts.tool import ToolResult
from agents.contracts.trajectory import Attempt, Brief, Turn, TurnInputs
from services.storage import Storage
from workflows.ports import Kept
from workflows.records import (
    Answer,
    Begun,
    CallRows,
    Heard,
    Held,
    Intent,
    Opened,
    Outgoing,
    Question,
    Results,
    RoundEnd,
    Start,
    Waiting,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BRIEF = Brief(
    tenant_id="t1",
    place=Place(task_id="task_1", role=Role.EXECUTOR, step="s1"),
    goal="Say hello.",
    instruction_sha256="0" * 64,
    tier="auto",
    limits=Limits(),
    sandbox_id="sbx_1",
)


class InMemoryLedger:
    """One agent's ledger. `log` is the order of the transactions; `unread` messages keep a round from ending."""

    def __init__(self, brief: Brief) -> None:
        self.brief = brief
        self.turns: list[Turn] = []
        self.log: list[str] = []
        self.ended: BurstEnd | None = None
        self.fence = 0
        self.unread = 0
        self.storage = Storage()
        self.cancelled = False
        self.waiting: Waiting | None = None
        self.intents: list[Intent] = []
        self.rows = CallRows()

    async def open(self, ref: AgentRef) -> Opened:
        """Bump the fence, unless the round is over."""
        self.fence += self.ended is None
        return Opened(self.fence, self.brief, len(self.turns), self.waiting is not None, self.ended)

    async def load(self, held: Held, brief_round_only: bool, after: tuple[int, int] | None = None) -> list[Turn]:
        """The turns after one, or all."""
        self.log.append(f"load after {after[0]}/{after[1]}" if after else "load")
        return [turn for turn in self.turns if after is None or (turn.round, turn.turn) > after]

    def check_room(self) -> None:
        self.storage.check()

    async def begin(self, held: Held, key: str, done: Results, intent: Intent) -> Begun:
        """T1."""
        self._keep(done)
        self.log.append(f"T1 {intent.turn}/m{intent.k}" + (" +result" if done.ran else ""))
        self.intents.append(intent)
        inputs = TurnInputs(at=NOW, turns_left=100)
        if intent.opens:
            self.unread = 0
            self.turns.append(Turn(round=held.ref.round, turn=intent.turn, inputs=inputs))
        return Begun(inputs=inputs)

    async def answer(self, held: Held, key: str, answer: Answer) -> Controls:
        """T2."""
        self.log.append(f"T2 {answer.turn}/m{answer.k}" + (" bad" if answer.bad else ""))
        turn, self.waiting = self.turns[-1], None
        self._asked(held, answer.turn, answer.asks)
        sha256 = answer.request_sha256
        attempt = Attempt(k=answer.k, reply=answer.reply, bad=answer.bad, request_sha256=sha256)
        self.turns[-1] = turn.model_copy(
            update={
                "attempts": (*(a for a in turn.attempts if a.bad), attempt),
                "results": (None,) * len(answer.calls),
                "failed": answer.failed,
            }
        )
        return Controls(cancel_requested=self.cancelled)

    async def call_rows(self, held: Held, turn: int) -> CallRows:
        """As set by the test."""
        self.log.append("rows")
        return self.rows

    async def start(self, held: Held, key: str, start: Start) -> None:
        """Calls go on."""
        self.log.append("start" if start.begins is None else f"start c{start.begins}")
        self.waiting = None
        if start.begins is not None:
            self.rows = replace(self.rows, begun=self.rows.begun | {start.begins})

    async def keep(self, held: Held, key: str, done: Results, waiting: Waiting | None = None) -> None:
        """Results without a T1."""
        self._keep(done)
        self.log.append("waits" if waiting else "keep")
        self.waiting = waiting
        if waiting:
            self._asked(held, waiting.turn, waiting.asks)

    async def ask(self, held: Held, key: str, question: Outgoing) -> Heard:
        """The question, and a wait unless something is unread."""
        self.log.append(f"asks {question.recipient}")
        self.waiting = None if self.unread else Waiting("person")
        return "answer" if self.unread else "nothing"

    async def end(self, held: Held, key: str, done: Results, end: RoundEnd) -> bool:
        """The end."""
        if end.unless_mail and self.unread:
            return False
        self._keep(done)
        self.log.append(f"end {end.reason.value}")
        self.ended = BurstEnd(reason=end.reason, turns=len(self.turns), error=end.error)
        return True

    async def controls(self, ref: AgentRef) -> Controls:
        """What was asked."""
        return Controls(cancel_requested=self.cancelled)

    def decide(self, i: int, state: ApprovalState, note: str | None = None) -> None:
        """What a person says of the last question about a call."""
        last = max(n for n, approval in enumerate(self.rows.approvals) if approval.call_index == i)
        made = [a if n != last else a.model_copy(update={"state": state, "note": note}) for n, a in self._numbered()]
        self.rows = replace(self.rows, approvals=tuple(made))

    def _numbered(self) -> Iterator[tuple[int, Approval]]:
        return enumerate(self.rows.approvals)

    def _asked(self, held: Held, turn: int, asks: Sequence[Question]) -> None:
        made = tuple(
            Approval(
                id=f"appr_{turn}_{q.i}_{q.number}",
                task_id=held.place.task_id,
                agent_id=held.agent_id,
                step_id=held.place.step,
                round=held.ref.round,
                turn=turn,
                call_index=q.i,
                call_key=held.call_key(turn, q.i),
                kind=q.kind,
                tool=q.tool,
                arguments=q.arguments,
                arguments_sha256=q.arguments_sha256,
                state=ApprovalState.PENDING,
                requested_at=NOW,
                expires_at=NOW,
            )
            for q in asks
        )
        self.rows = CallRows(self.rows.approvals + made, self.rows.begun - {q.i for q in asks})

    def _keep(self, done: Results) -> None:
        for ran in done.ran:
            turn = self.turns[-1]
            results = tuple(ran.result if n == ran.i else r for n, r in enumerate(turn.results))
            self.turns[-1] = turn.model_copy(update={"results": results})


class SilentLive:
    """Nobody listens."""

    async def delta(self, tenant_id: str, delta: Delta) -> None:
        """Lost."""

    async def poke(self) -> None:
        """Lost."""

    async def control(self, tenant_id: str, task_id: str) -> None:
        """Lost."""

    async def on_control(self, tenant_id: str, task_id: str, wake: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Never wakes."""

        async def stop() -> None:
            return None

        return stop


class StillClock:
    """Time that only moves when a test moves it."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> datetime:
        """Always the same."""
        return NOW

    def monotonic(self) -> float:
        """As set."""
        return self.at


class InMemoryBench:
    """Files in a dict; commands that print themselves. `ran` is every call's key in order."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.ran: list[str] = []

    def known(self, call_key: str) -> ToolResult | None:
        """Nothing."""
        return None

    def context(self, held: Held, brief: Brief, call_key: str) -> "InMemoryCall":
        """One call's context."""
        self.ran.append(call_key)
        return InMemoryCall(self)


class InMemoryCall:
    """Implements `workflows.ports.CallContext`."""

    def __init__(self, bench: InMemoryBench) -> None:
        self._bench = bench
        self.events: Sequence[EventData] = ()
        self.artifacts: Sequence[Artifact] = ()
        self.messages: Sequence[Outgoing] = ()
        self.full: BlobRef | None = None

    async def run(self, command: str, timeout_s: float) -> ExecStatus:
        """It prints itself."""
        return ExecStatus(
            exec_id="exec_1",
            state=ExecState.EXITED,
            started=True,
            exit_code=0,
            reason="exited",
            output=command,
            started_at=NOW,
        )

    async def read(self, path: str, offset: int, limit: int) -> FileText:
        """From the dict."""
        text = self._bench.files.get(path, "")
        return FileText(path=path, text=text, total_lines=1, total_bytes=len(text), truncated=False)

    async def write(self, path: str, content: str) -> FileChange:
        """Into the dict."""
        self._bench.files[path] = content
        return FileChange(path=path, sha256="0" * 64, bytes=len(content), created=True)

    async def edit(self, path: str, old: str, new: str) -> FileChange:
        """In the dict."""
        return await self.write(path, self._bench.files[path].replace(old, new))

    async def save(self, path: str, media_type: str | None) -> Artifact:
        """Not kept."""
        return Artifact(id="art_1", task_id="task_1", path=path, sha256="0" * 64, bytes=0, created_at=NOW)

    async def send(self, to: str, text: str) -> Receipt:
        """Not sent."""
        return Receipt(message_id="msg_1", to=to, note="")

    async def ask(self, to: str, question: str, timeout_s: float | None) -> Outgoing:
        """To a person, whoever is named."""
        return Outgoing("msg_1", to, None, "question", question)

    async def kill(self) -> None:
        """Nothing runs."""


class NothingLost:
    """Nothing is kept, and what is lost is not made again."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.lost: list[str] = []

    async def keep(self, held: Held, sandbox_id: str, owner: Owner, turn: int, at: datetime) -> Kept:
        """Noted."""
        self.kept.append(turn)
        return "kept"

    async def restore(self, held: Held, lost: str, why: ErrorInfo) -> None:
        """Noted, and refused for good."""
        self.lost.append(lost)
        raise LonghaulError(ErrorCode.SANDBOX_LOST, "nothing was kept")


class NoRunner:
    """A runner that only takes announcements."""

    def __init__(self) -> None:
        self.announced: list[Any] = []

    async def announce(self, sandbox_id: str, owner: Any) -> None:
        """Remembered."""
        self.announced.append(owner)
