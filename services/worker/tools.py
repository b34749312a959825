"""A tool call's hands: the runner and the object store, bound to the call's key, its agent's fences and its sandbox."""

import mimetypes
from collections.abc import Sequence

from agents.contracts.artifact import Artifact, BlobRef
from agents.contracts.base import excerpt
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.event import ArtifactCreated, EventData, ExecExited, ExecLost, ExecStarted, denials
from agents.contracts.ids import short_digest
from agents.contracts.message import MailKind, Receipt
from agents.contracts.sandbox import (
    WORKSPACE,
    EditFile,
    ExecRequest,
    ExecState,
    ExecStatus,
    FileChange,
    FileText,
    Owner,
    ReadFile,
    WriteFile,
)
from agents.contracts.tool import ToolResult
from agents.contracts.trajectory import Brief
from agents.tools.base import OBSERVATION_CAP_BYTES
from workflows.clock import Clock
from workflows.names import exec_id, message_id
from workflows.ports import Objects, Post, Runner
from workflows.records import Held, Outgoing

ARTIFACT_MAX_BYTES = 1 << 30


class SandboxBench:
    """Implements `workflows.ports.Workbench`."""

    def __init__(self, runner: Runner, objects: Objects, clock: Clock, post: Post) -> None:
        self._runner = runner
        self._objects = objects
        self._post = post
        self._clock = clock

    def known(self, call_key: str) -> ToolResult | None:
        """Nothing: what a call comes to is found by making it."""
        return None

    def context(self, held: Held, brief: Brief, call_key: str) -> "SandboxCall":
        """The context of one call."""
        hands = (self._runner, self._objects, self._post, self._clock)
        return SandboxCall(hands, held, brief, call_key)


class SandboxCall:
    """Implements `workflows.ports.CallContext`. Every effect is keyed by the call and its number within it, so a repeat
    of the call attaches to, or is answered by, what the first try did."""

    def __init__(self, hands: tuple[Runner, Objects, Post, Clock], held: Held, brief: Brief, key: str) -> None:
        self._runner, self._objects, self._post, self._clock = hands
        self._held, self._brief, self._key = held, brief, key
        self._number = 0
        self._events: list[EventData] = []
        self._artifacts: list[Artifact] = []
        self._messages: list[Outgoing] = []
        self._full: BlobRef | None = None
        self._running: str | None = None

    @property
    def events(self) -> Sequence[EventData]:
        """What happened."""
        return tuple(self._events)

    @property
    def artifacts(self) -> Sequence[Artifact]:
        """What was kept."""
        return tuple(self._artifacts)

    @property
    def messages(self) -> Sequence[Outgoing]:
        """What goes out with the result."""
        return tuple(self._messages)

    @property
    def full(self) -> BlobRef | None:
        """The whole output, where a model is shown less."""
        return self._full

    async def run(self, command: str, timeout_s: float) -> ExecStatus:
        """Run or attach, and wait."""
        key = self._next_key()
        name = exec_id(key)
        request = ExecRequest(exec_id=name, key=key, owner=self._owner, command=command, timeout_s=timeout_s)
        self._running = name
        status = await self._runner.exec(self._sandbox, request)
        self._running = None
        told = (ExecStarted(exec_id=name, command=excerpt(command)), *denials(self._sandbox, status), _ended(status))
        self._events += told
        data = status.output.encode("utf-8", "replace")
        if len(data) > OBSERVATION_CAP_BYTES:
            self._full = await self._objects.put(self._held.ref.tenant_id, data)
        return status

    async def read(self, path: str, offset: int, limit: int) -> FileText:
        """Lines of a text file."""
        return await self._runner.read_file(self._sandbox, ReadFile(path=path, offset=offset, limit=limit))

    async def write(self, path: str, content: str) -> FileChange:
        """Create or replace a file."""
        request = WriteFile(key=self._next_key(), owner=self._owner, path=path, content=content)
        return await self._runner.write_file(self._sandbox, request)

    async def edit(self, path: str, old: str, new: str) -> FileChange:
        """Replace the only occurrence of `old`."""
        request = EditFile(key=self._next_key(), owner=self._owner, path=path, old=old, new=new)
        return await self._runner.edit_file(self._sandbox, request)

    async def send(self, to: str, text: str) -> Receipt:
        """It goes out with the call's result; to one who has asked the sender something it is the answer."""
        found = await self._post.find(self._held.ref, to)
        name = message_id(self._next_key())
        kind: MailKind = "answer" if found.open_question else "mail"
        self._messages.append(Outgoing(name, found.name, found.agent_id, kind, text, found.open_question))
        return Receipt(message_id=name, to=found.name, note=found.note)

    async def ask(self, to: str, question: str, timeout_s: float | None) -> Outgoing:
        """A new question, or the one that this call, or an earlier one in the same words, has asked."""
        name = message_id(self._next_key())
        known = await self._post.asked(self._held.ref, name, to, question)
        if known is not None:
            return known
        found = await self._post.find(self._held.ref, to)
        if not found.can_answer:
            raise LonghaulError(ErrorCode.RECIPIENT_GONE, f"{found.name} would not answer. {found.note}")
        return Outgoing(name, found.name, found.agent_id, "question", question, expires_s=timeout_s)

    async def save(self, path: str, media_type: str | None) -> Artifact:
        """Stream a file into the object store; its row is written with the call's result."""
        blob = await self._stream(path)
        plain = path.removeprefix(f"{WORKSPACE}/").removeprefix("./")
        artifact = Artifact(
            id=f"art_{short_digest(f'{self._key}/{plain}')}",
            task_id=self._held.place.task_id,
            step_id=self._held.place.step,
            path=plain,
            sha256=blob.sha256,
            bytes=blob.bytes,
            media_type=media_type or mimetypes.guess_type(plain)[0] or "application/octet-stream",
            created_at=self._clock.now(),
        )
        self._artifacts.append(artifact)
        self._events.append(ArtifactCreated(artifact_id=artifact.id, path=plain, sha256=blob.sha256, bytes=blob.bytes))
        return artifact

    async def kill(self) -> None:
        """End the command under way."""
        if self._running is None:
            return
        try:
            await self._runner.kill(self._sandbox, self._running, self._owner)
        except LonghaulError:
            return  # whoever ends the task kills everything again, and insists

    async def _stream(self, path: str) -> BlobRef:
        try:
            data = self._runner.get_file(self._sandbox, path)
            return await self._objects.put_stream(self._held.ref.tenant_id, data, max_bytes=ARTIFACT_MAX_BYTES)
        except LonghaulError as fault:
            if fault.code is not ErrorCode.BODY_TOO_LARGE:
                raise
            detail = f"{path} is larger than {ARTIFACT_MAX_BYTES} bytes"
            raise LonghaulError(ErrorCode.FILE_TOO_LARGE, detail) from fault

    @property
    def _sandbox(self) -> str:
        if self._brief.sandbox_id is None:
            raise LonghaulError(ErrorCode.SANDBOX_NOT_FOUND, "this agent has no sandbox")
        return self._brief.sandbox_id

    @property
    def _owner(self) -> Owner:
        return Owner(
            agent_id=self._held.agent_id, agent_fence=self._held.fence, sandbox_fence=self._brief.sandbox_fence
        )

    def _next_key(self) -> str:
        self._number += 1
        return f"{self._key}/{self._number}"


def _ended(status: ExecStatus) -> EventData:
    if status.state is ExecState.LOST:
        return ExecLost(exec_id=status.exec_id)
    return ExecExited(
        exec_id=status.exec_id,
        exit_code=status.exit_code,
        reason=status.reason or "exited",
        output=excerpt(status.output),
        duration_ms=status.duration_ms,
    )
