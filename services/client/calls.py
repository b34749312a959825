"""Each call as data: what is sent, how its answer is read, whether it may be sent twice. Both clients send these."""

import uuid
from collections.abc import AsyncIterable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter

from agents.contracts.approval import Approval, ApprovalDecision, ApprovalState
from agents.contracts.artifact import Artifact, UploadedFile
from agents.contracts.checkpoint import Checkpoint, CheckpointDiff, CheckpointFiles
from agents.contracts.message import MessageBody, MessageView
from agents.contracts.page import ApprovalPage, EventPage, MessagePage, TaskPage
from agents.contracts.task import TaskResult, TaskSpec, TaskStatus, TaskView

T = TypeVar("T")
Content = Iterable[bytes] | AsyncIterable[bytes]
_ARTIFACTS = TypeAdapter(list[Artifact])
_CHECKPOINTS = TypeAdapter(list[Checkpoint])
_READ_S = 30.0


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request. `repeatable`: sending it twice does what sending it once does."""

    method: str
    path: str
    parse: Callable[[bytes], T]
    params: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = True
    read_s: float = _READ_S

    def request(self, http: httpx.Client | httpx.AsyncClient, content: Content | None = None) -> httpx.Request:
        """The request, on a client that knows the address and the key; with `content` in place of the body."""
        return http.build_request(
            self.method,
            self.path,
            params=self.params,
            headers=self.headers,
            content=self.body if content is None else content,
            timeout=httpx.Timeout(_READ_S, connect=5.0, read=self.read_s),
        )


def submit(spec: TaskSpec, idempotency_key: str | None) -> Call[TaskView]:
    """Submit a task. The key makes a repeat of it harmless, so one is made where the caller has none."""
    return Call(
        "POST",
        "/v1/tasks",
        TaskView.model_validate_json,
        headers={"Content-Type": "application/json", "Idempotency-Key": idempotency_key or str(uuid.uuid4())},
        body=spec.model_dump_json(exclude_unset=True).encode(),
    )


def get(task_id: str) -> Call[TaskView]:
    """Look at a task."""
    return Call("GET", f"/v1/tasks/{task_id}", TaskView.model_validate_json)


def list_tasks(status: Collection[TaskStatus], limit: int, cursor: str | None) -> Call[TaskPage]:
    """A page of tasks, newest first."""
    named = [("limit", str(limit)), *(("status", TaskStatus(s).value) for s in status)]
    params = (*named, ("cursor", cursor)) if cursor is not None else tuple(named)
    return Call("GET", "/v1/tasks", TaskPage.model_validate_json, params)


def result(task_id: str) -> Call[TaskResult]:
    """The result of an ended task."""
    return Call("GET", f"/v1/tasks/{task_id}/result", TaskResult.model_validate_json)


def recording(task_id: str) -> Call[bytes]:
    """A recording of a task, as the bytes of its file. Making one takes a while for a long task."""
    return Call("GET", f"/v1/tasks/{task_id}/recording", bytes, read_s=300.0)


def cancel(task_id: str, wait_s: float | None) -> Call[TaskView]:
    """Ask for the end; asking twice is harmless."""
    params = (("wait_s", str(wait_s)),) if wait_s is not None else ()
    path = f"/v1/tasks/{task_id}/cancel"
    return Call("POST", path, TaskView.model_validate_json, params, read_s=_READ_S + (wait_s or 0.0))


def events(task_id: str, after: int, limit: int) -> Call[EventPage]:
    """A page of events, oldest first."""
    params = (("after", str(after)), ("limit", str(limit)))
    return Call("GET", f"/v1/tasks/{task_id}/events", EventPage.model_validate_json, params)


def messages(task_id: str, limit: int, cursor: str | None) -> Call[MessagePage]:
    """A page of messages, newest first."""
    params = (("limit", str(limit)), *([("cursor", cursor)] if cursor is not None else []))
    return Call("GET", f"/v1/tasks/{task_id}/messages", MessagePage.model_validate_json, params)


def send(task_id: str, body: MessageBody, idempotency_key: str | None) -> Call[MessageView]:
    """Write to an agent; the key makes a repeat of it harmless."""
    return Call(
        "POST",
        f"/v1/tasks/{task_id}/messages",
        MessageView.model_validate_json,
        headers={"Content-Type": "application/json", "Idempotency-Key": idempotency_key or str(uuid.uuid4())},
        body=body.model_dump_json(exclude_unset=True).encode(),
    )


def artifacts(task_id: str) -> Call[list[Artifact]]:
    """A task's artifacts."""
    return Call("GET", f"/v1/tasks/{task_id}/artifacts", _ARTIFACTS.validate_json)


def artifact(artifact_id: str) -> Call[Artifact]:
    """One artifact."""
    return Call("GET", f"/v1/artifacts/{artifact_id}", Artifact.model_validate_json)


def checkpoints(task_id: str) -> Call[list[Checkpoint]]:
    """A task's checkpoints."""
    return Call("GET", f"/v1/tasks/{task_id}/checkpoints", _CHECKPOINTS.validate_json)


def checkpoint_files(task_id: str, checkpoint_id: str, after: str, limit: int) -> Call[CheckpointFiles]:
    """A page of what a checkpoint holds."""
    params = (("after", after), ("limit", str(limit)))
    path = f"/v1/tasks/{task_id}/checkpoints/{checkpoint_id}/files"
    return Call("GET", path, CheckpointFiles.model_validate_json, params)


def checkpoint_file(task_id: str, checkpoint_id: str, path: str) -> Call[bytes]:
    """A file at a checkpoint."""
    return Call("GET", f"/v1/tasks/{task_id}/checkpoints/{checkpoint_id}/files/{quote(path)}", bytes, read_s=120.0)


def checkpoint_diff(task_id: str, checkpoint_id: str, since: str | None, limit: int) -> Call[CheckpointDiff]:
    """What changed up to a checkpoint."""
    params = (("limit", str(limit)), *([("since", since)] if since is not None else []))
    path = f"/v1/tasks/{task_id}/checkpoints/{checkpoint_id}/diff"
    return Call("GET", path, CheckpointDiff.model_validate_json, params)


def approvals(
    task_id: str | None, state: Collection[ApprovalState], limit: int, cursor: str | None
) -> Call[ApprovalPage]:
    """A page of approvals, newest first; of one task where it is named."""
    named = [("limit", str(limit)), *(("state", ApprovalState(s).value) for s in state)]
    params = (*named, ("cursor", cursor)) if cursor is not None else tuple(named)
    path = f"/v1/tasks/{task_id}/approvals" if task_id is not None else "/v1/approvals"
    return Call("GET", path, ApprovalPage.model_validate_json, params)


def approval(approval_id: str) -> Call[Approval]:
    """One approval."""
    return Call("GET", f"/v1/approvals/{approval_id}", Approval.model_validate_json)


def decide(approval_id: str, decision: ApprovalDecision) -> Call[Approval]:
    """Decide; the same decision twice is harmless."""
    return Call(
        "POST",
        f"/v1/approvals/{approval_id}/decide",
        Approval.model_validate_json,
        headers={"Content-Type": "application/json"},
        body=decision.model_dump_json(exclude_none=True).encode(),
    )


def upload(name: str, *, repeatable: bool) -> Call[UploadedFile]:
    """An upload; the sender adds the bytes. Repeated where they can be read again: of two copies one is never used."""
    headers = {"Content-Type": "application/octet-stream"}
    return Call(
        "POST",
        "/v1/files",
        UploadedFile.model_validate_json,
        (("name", name),),
        headers,
        repeatable=repeatable,
        read_s=120.0,
    )
