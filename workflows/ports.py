"""The ports through which activities reach the world. Adapters live in services/ and are built by its mains.

Every method may raise `LonghaulError`; a fault of class *infrastructure* is retried out of the model's sight, one of
class *tool* becomes an observation. Each docstring lists what else to expect.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Literal, Protocol

from agents.contracts.artifact import Artifact, BlobRef
from agents.contracts.errors import ErrorInfo
from agents.contracts.event import EventData
from agents.contracts.model import Delta, ModelReply, ModelRequest
from agents.contracts.run import AgentRef, Controls
from agents.contracts.sandbox import (
    Capabilities,
    EditFile,
    ExecRequest,
    ExecStatus,
    FileChange,
    FileEntry,
    FileText,
    Owner,
    ReadFile,
    SandboxInfo,
    SandboxSpec,
    Snapshot,
    StateReport,
    WriteFile,
)
from agents.contracts.tool import ToolResult
from agents.contracts.trajectory import Brief, Turn
from agents.tools.context import ToolContext
from workflows.records import (
    Addressee,
    Answer,
    Begun,
    CallRows,
    Heard,
    Held,
    Intent,
    Opened,
    Outgoing,
    Results,
    RoundEnd,
    Start,
    Waiting,
)


class Announced(Protocol):
    """The part of the runner that the turn loop itself needs."""

    async def announce(self, sandbox_id: str, owner: Owner) -> None:
        """As `Runner.announce`."""
        ...


class Runner(Protocol):
    """Sandboxes. All raise ``RUNNER_UNAVAILABLE`` (try again); all but `create` and `capabilities` raise
    ``SANDBOX_NOT_FOUND`` or ``SANDBOX_LOST``; calls with an `Owner` raise `Fenced` for a fence lower than one seen."""

    async def capabilities(self) -> Capabilities:
        """What the host can do."""
        ...

    async def create(self, spec: SandboxSpec) -> SandboxInfo:
        """Make a sandbox, or find the one of this id. ``CAPABILITY_MISSING``, ``SANDBOX_UNAVAILABLE``, ``DISK_FULL``;
        from a snapshot also ``SNAPSHOT_NOT_FOUND``, ``SNAPSHOT_FAILED``, ``OBJECTS_UNAVAILABLE``."""
        ...

    async def info(self, sandbox_id: str) -> SandboxInfo:
        """Its state."""
        ...

    async def destroy(self, sandbox_id: str) -> None:
        """Kill everything in it and delete its files; a second time does nothing. No ``SANDBOX_NOT_FOUND`` here."""
        ...

    async def announce(self, sandbox_id: str, owner: Owner) -> None:
        """Make the runner refuse every lower fence of this agent from now on."""
        ...

    async def exec(self, sandbox_id: str, request: ExecRequest) -> ExecStatus:
        """Start a command or attach to it, and wait for its end however long that takes (connection faults are retried
        inside by attaching). Cancelling the wait leaves the command running. ``SPAWN_FAILED``."""
        ...

    async def kill(self, sandbox_id: str, exec_id: str, owner: Owner) -> None:
        """End a command with everything it started."""
        ...

    async def kill_all(self, sandbox_id: str, owner: Owner) -> None:
        """End every command of the sandbox; returns when none is left."""
        ...

    async def read_file(self, sandbox_id: str, request: ReadFile) -> FileText:
        """``FILE_NOT_FOUND``, ``NOT_A_FILE``, ``PATH_ESCAPE``, ``PERMISSION_DENIED``, ``FILE_TOO_LARGE``."""
        ...

    async def write_file(self, sandbox_id: str, request: WriteFile) -> FileChange:
        """As `read_file`, and ``DISK_FULL``."""
        ...

    async def edit_file(self, sandbox_id: str, request: EditFile) -> FileChange:
        """As `write_file`, and ``EDIT_NO_MATCH``, ``EDIT_AMBIGUOUS``."""
        ...

    async def list_files(self, sandbox_id: str, limit: int) -> tuple[list[FileEntry], int]:
        """The first `limit` regular files in path order (``.git`` left out), and how many there are."""
        ...

    async def snapshot(
        self, sandbox_id: str, key: str, owner: Owner, *, state: bool = False, wait_s: float = 60.0
    ) -> Snapshot:
        """Keep the workspace's files in the object store, from where `create` makes sandboxes; journaled by `key`.
        Waits until no command runs, for `wait_s`. `state`: with that of the sandbox, or why nobody knows.
        ``SANDBOX_UNAVAILABLE`` (stays busy), ``SNAPSHOT_FAILED``, ``OBJECTS_UNAVAILABLE``."""
        ...

    async def quality(self, sandbox_id: str) -> StateReport:
        """What state it is in beside its files: what runs, what changed that must not. ``SANDBOX_UNAVAILABLE``,
        ``SPAWN_FAILED``: nobody can look."""
        ...

    async def put_archive(self, sandbox_id: str, key: str, owner: Owner, archive: AsyncIterator[bytes]) -> None:
        """Unpack a tar (plain or gzip) into the workspace; journaled by `key`. ``INVALID_ARCHIVE``, ``PATH_ESCAPE``."""
        ...

    async def put_file(self, sandbox_id: str, key: str, owner: Owner, path: str, data: AsyncIterator[bytes]) -> None:
        """Place one file of any size; journaled by `key`."""
        ...

    def get_file(self, sandbox_id: str, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file, as they are read. Faults as `read_file`, with ``FILE_TOO_LARGE`` over 1 GiB."""
        ...


class Model(Protocol):
    """A model behind an OpenAI-compatible endpoint."""

    async def call(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        """Ask once. `on_text` receives each piece of text as it comes.

        Raises:
            LonghaulError: ``ENGINE_UNAVAILABLE`` (down, overloaded, rate limited; `retry_after_s` where told),
                ``ENGINE_REFUSED`` (a wrong key, an unknown model: says what to do), ``REPLY_ABORTED`` (cut off),
                ``CONTEXT_TOO_LONG``, ``REPLAY_MISMATCH``, ``REPLAY_NOT_RECORDED``.
        """
        ...

    def estimate_cost_micro(self, prompt_tokens: int, completion_tokens: int) -> int:
        """What a call would cost at the configured price."""
        ...


class Objects(Protocol):
    """Blobs in S3 by digest, apart per tenant. All raise ``OBJECTS_UNAVAILABLE``."""

    async def put(self, tenant_id: str, data: bytes) -> BlobRef:
        """Keep bytes; a second time does nothing."""
        ...

    async def put_stream(self, tenant_id: str, data: AsyncIterator[bytes], *, max_bytes: int) -> BlobRef:
        """Keep a stream without holding it in memory. ``BODY_TOO_LARGE`` past `max_bytes`."""
        ...

    async def get(self, tenant_id: str, ref: BlobRef) -> bytes:
        """The bytes, checked against the digest. ``NOT_FOUND``."""
        ...

    def get_stream(self, tenant_id: str, ref: BlobRef, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` up to and with `end`."""
        ...


class Live(Protocol):
    """What is fast and may be lost (NATS core). Nothing here raises: rows are the truth, this only hurries."""

    async def delta(self, tenant_id: str, delta: Delta) -> None:
        """A piece of a streaming reply."""
        ...

    async def poke(self) -> None:
        """Tell the relay that the outbox has something."""
        ...

    async def on_control(self, tenant_id: str, task_id: str, wake: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call `wake` when the task's controls may have changed; returns what ends the subscription."""
        ...

    async def control(self, tenant_id: str, task_id: str) -> None:
        """Wake whoever listens with `on_control`."""
        ...


Kept = Literal["kept", "busy", "failed"]
"""What came of a snapshot: `busy` where a command ran, `failed` where something else hindered it."""


class Safekeeping(Protocol):
    """What keeps an agent's sandbox from being lost for good."""

    async def keep(self, held: Held, sandbox_id: str, owner: Owner, turn: int, at: datetime) -> Kept:
        """Keep the files as they are after `turn`, which ended before `at`; once however often it is called.
        ``SANDBOX_NOT_FOUND``, ``SANDBOX_LOST``, `Fenced`."""
        ...

    async def restore(self, held: Held, lost: str, why: ErrorInfo) -> None:
        """Have a lost sandbox made again: the agent's next attempt finds it. Raises what hinders it now
        (``OBJECTS_UNAVAILABLE``, ``RUNNER_UNAVAILABLE``, ``STORE_UNAVAILABLE``, ``SANDBOX_UNAVAILABLE``, ``DISK_FULL``:
        try again) or ever (``SNAPSHOT_FAILED``, ``SANDBOX_LOST``)."""
        ...


class Ledger(Protocol):
    """The durable trajectory of an agent. Each writing method is one transaction under the caller's fence and the key
    it names: a repeat under the same key finds what the first one did. All raise ``STORE_UNAVAILABLE`` or
    ``OBJECTS_UNAVAILABLE`` (try again, same key); all but `open` and `controls` raise `Fenced`."""

    async def open(self, ref: AgentRef) -> Opened:
        """Take the agent over: bump its fence; refused (`end`) once the round is over. ``NOT_FOUND``."""
        ...

    async def load(self, held: Held, brief_round_only: bool, after: tuple[int, int] | None = None) -> list[Turn]:
        """The turns so far, in order; of this round only where `brief_round_only`; only those after the round and turn
        `after`, where it is given."""
        ...

    def check_room(self) -> None:
        """Raises ``STORAGE_FULL`` where too little space is left to begin another turn."""
        ...

    async def begin(self, held: Held, key: str, done: Results, intent: Intent) -> Begun:
        """T1: keep results, read controls and mail, reserve budget, record the intent (and open its turn)."""
        ...

    async def answer(self, held: Held, key: str, answer: Answer) -> Controls:
        """T2: keep a reply, settle its reservation, record the intents of its calls, ask about those that ask."""
        ...

    async def call_rows(self, held: Held, turn: int) -> CallRows:
        """What is known of the calls of a turn that have no result yet."""
        ...

    async def start(self, held: Held, key: str, start: Start) -> None:
        """Calls go on: the agent waits no longer; note the one that begins."""
        ...

    async def keep(self, held: Held, key: str, done: Results, waiting: Waiting | None = None) -> None:
        """Keep results, and that the agent now waits (releasing what it has reserved), with what it asks of a person;
        a call that is asked about counts as not begun from then on."""
        ...

    async def ask(self, held: Held, key: str, question: Outgoing) -> Heard:
        """Send the question, unless it was sent before, and let the agent wait; where a message is unread it does not
        wait, and what that is is returned."""
        ...

    async def end(self, held: Held, key: str, done: Results, end: RoundEnd) -> bool:
        """End the round. False where `unless_mail` and a message is unread: then nothing was written."""
        ...

    async def controls(self, ref: AgentRef) -> Controls:
        """What a person has asked, as the rows say now."""
        ...


class Post(Protocol):
    """Who can be written to. All raise ``STORE_UNAVAILABLE``."""

    async def find(self, sender: AgentRef, to: str) -> Addressee:
        """The one of this name. ``UNKNOWN_RECIPIENT``, which says who there is."""
        ...

    async def asked(self, sender: AgentRef, message_id: str, to: str, question: str) -> Outgoing | None:
        """The question of this id, or an open one to the same name in the same words."""
        ...


class CallContext(ToolContext, Protocol):
    """The world as one tool call sees it, and what it left there."""

    @property
    def events(self) -> Sequence[EventData]:
        """What happened through it, to be stored with its result."""
        ...

    @property
    def artifacts(self) -> Sequence[Artifact]:
        """The files it kept."""
        ...

    @property
    def messages(self) -> Sequence[Outgoing]:
        """The messages it sends; they are written with its result."""
        ...

    async def ask(self, to: str, question: str, timeout_s: float | None) -> Outgoing:
        """A question, ready to be sent; one that is still open in the same words is found again, with its time.
        ``UNKNOWN_RECIPIENT``, ``RECIPIENT_GONE``."""
        ...

    @property
    def full(self) -> BlobRef | None:
        """The whole output, where the result shows less of it."""
        ...

    async def kill(self) -> None:
        """End the command under way, if any; its `run` then returns. Raises nothing of its own."""
        ...


class Workbench(Protocol):
    """Makes the context of a tool call."""

    def known(self, call_key: str) -> ToolResult | None:
        """What came of the call with this key where that is known without making it (a replay), else None."""
        ...

    def context(self, held: Held, brief: Brief, call_key: str) -> CallContext:
        """The context of the call with this key; the same key always means the same effects."""
        ...
