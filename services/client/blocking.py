"""The blocking client."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx

from agents.contracts.approval import Approval, ApprovalDecision, ApprovalState, Decision
from agents.contracts.artifact import Artifact, UploadedFile
from agents.contracts.checkpoint import Checkpoint, CheckpointDiff, CheckpointFiles
from agents.contracts.event import Event
from agents.contracts.message import MessageBody, MessageView
from agents.contracts.model import Delta
from agents.contracts.page import ApprovalPage, EventPage, MessagePage, TaskPage
from agents.contracts.task import TaskResult, TaskSpec, TaskStatus, TaskView
from services.client import calls, way
from services.client.calls import Call
from services.client.errors import LonghaulApiError, refusal
from services.client.patience import Fault, Patience, passing, pause_before_repeat
from services.client.stream import Frames, Tail
from services.client.transfer import Landing, Source, back_to, begin_of, pieces

T = TypeVar("T")


class Client:
    """Longhaul's REST API. Every method raises `LonghaulApiError` where the API refuses, and `Unreachable` where it
    does not answer for `patience_s` seconds; what is safe to send again is sent again meanwhile."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        patience_s: float = 60.0,
        transport: httpx.BaseTransport | None = None,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """`waiting` is called once for a call that has no answer for long, while it is still tried."""
        self._patience = partial(Patience, patience_s, waiting)
        try:
            self._http = httpx.Client(transport=transport, **way.http(base_url, api_key))
        except (ImportError, ValueError) as error:
            raise way.no_way(error) from None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(self, spec: TaskSpec, idempotency_key: str | None = None) -> TaskView:
        """Submit a task: once, however often it has to be sent."""
        return self._send(calls.submit(spec, idempotency_key))

    def get(self, task_id: str) -> TaskView:
        """The task as it is now."""
        return self._send(calls.get(task_id))

    def list(self, status: Collection[TaskStatus] = (), *, limit: int = 50, cursor: str | None = None) -> TaskPage:
        """A page of tasks, newest first; `next_cursor` asks for the next."""
        return self._send(calls.list_tasks(status, limit, cursor))

    def result(self, task_id: str) -> TaskResult:
        """What an ended task came to; refused with ``NOT_FINISHED`` before."""
        return self._send(calls.result(task_id))

    def recording(self, task_id: str) -> bytes:
        """A recording of the task: the bytes of a file for `longhaul replay`."""
        return self._send(calls.recording(task_id))

    def cancel(self, task_id: str, wait_s: float | None = None) -> TaskView:
        """Ask for the end, and wait up to `wait_s` seconds (60 at most) for it."""
        return self._send(calls.cancel(task_id, wait_s))

    def events(self, task_id: str, after: int = 0, limit: int = 200) -> EventPage:
        """A page of events behind a number."""
        return self._send(calls.events(task_id, after, limit))

    def messages(self, task_id: str, *, limit: int = 50, cursor: str | None = None) -> MessagePage:
        """A page of messages, newest first; `next_cursor` asks for the next."""
        return self._send(calls.messages(task_id, limit, cursor))

    def send(self, task_id: str, body: MessageBody, idempotency_key: str | None = None) -> MessageView:
        """Steer an agent, or answer its question: once, however often it has to be sent."""
        return self._send(calls.send(task_id, body, idempotency_key))

    def artifacts(self, task_id: str) -> Sequence[Artifact]:
        """What the team kept."""
        return self._send(calls.artifacts(task_id))

    def checkpoints(self, task_id: str) -> Sequence[Checkpoint]:
        """The workspaces that were kept as steps were handed in, oldest first."""
        return self._send(calls.checkpoints(task_id))

    def checkpoint_files(
        self, task_id: str, checkpoint_id: str, *, after: str = "", limit: int = 200
    ) -> CheckpointFiles:
        """A page of what a checkpoint holds; `next_after` asks for the next."""
        return self._send(calls.checkpoint_files(task_id, checkpoint_id, after, limit))

    def checkpoint_file(self, task_id: str, checkpoint_id: str, path: str) -> bytes:
        """The bytes of a file at a checkpoint, all of them at once."""
        return self._send(calls.checkpoint_file(task_id, checkpoint_id, path))

    def checkpoint_diff(
        self, task_id: str, checkpoint_id: str, since: str | None = None, *, limit: int = 1_000
    ) -> CheckpointDiff:
        """What changed since another checkpoint, or since the one before."""
        return self._send(calls.checkpoint_diff(task_id, checkpoint_id, since, limit))

    def approvals(
        self,
        task_id: str | None = None,
        state: Collection[ApprovalState] = (),
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> ApprovalPage:
        """A page of approvals, newest first: of one task, or of all the tenant's."""
        return self._send(calls.approvals(task_id, state, limit, cursor))

    def approval(self, approval_id: str) -> Approval:
        """One approval as it is now."""
        return self._send(calls.approval(approval_id))

    def decide(self, approval_id: str, decision: Decision, note: str | None = None) -> Approval:
        """Approve or deny, once; refused with ``ALREADY_DECIDED`` where the other was decided before, and with
        ``APPROVAL_EXPIRED`` where it is too late."""
        return self._send(calls.decide(approval_id, ApprovalDecision(decision=decision, note=note)))

    def stream(self, task_id: str, after: int = 0) -> Iterator[Event | Delta]:
        """Events behind a number, each once and in order, with pieces of replies between them; ends behind the task's
        last event. A stream that breaks is opened again where it broke."""
        tail, patience = Tail(task_id, after), self._patience()
        while not tail.ended:
            fault: Fault | None = None
            try:
                with closing(self._http.send(tail.request(self._http), stream=True)) as response:
                    if response.is_error:
                        response.read()
                        raise refusal(response)
                    frames = Frames()
                    for chunk in response.iter_bytes():
                        patience.renew()
                        for frame in frames.feed(chunk):
                            if (found := tail.take(frame)) is not None:
                                yield found
            except (httpx.TransportError, LonghaulApiError) as error:
                if not passing(error):
                    raise
                fault = error
            if not tail.ended:
                time.sleep(patience.pause(fault, "the stream"))

    def upload(self, source: Source, name: str) -> UploadedFile:
        """Send a file (a path, an open binary file, or bytes) to be a task's input: again where that fails and it
        can be read again."""
        begin, patience = begin_of(source), self._patience()
        call = calls.upload(name, repeatable=begin is not None)
        while True:
            try:
                return self._send_request(call, call.request(self._http, pieces(source)))
            except (httpx.TransportError, LonghaulApiError) as error:
                time.sleep(pause_before_repeat(call, error, patience))
                back_to(source, begin)

    def download(self, artifact_id: str, dest: Path) -> Path:
        """Write an artifact to a file, or into a folder under its own name; returns where it is.

        Raises:
            DigestMismatch: where the bytes are not those that were kept.
        """
        artifact, patience = self._send(calls.artifact(artifact_id)), self._patience()
        with Landing(artifact, dest) as landing:
            while landing.bytes < artifact.bytes:
                try:
                    self._fetch(artifact, landing, patience)
                except (httpx.TransportError, LonghaulApiError) as error:
                    if not passing(error):
                        raise
                    time.sleep(patience.pause(error, "the download"))
            return landing.keep()

    def _fetch(self, artifact: Artifact, landing: Landing, patience: Patience) -> None:
        path = f"/v1/artifacts/{artifact.id}/content"
        with self._http.stream("GET", path, headers=landing.headers, timeout=30.0) as response:
            if response.is_error:
                response.read()
                raise refusal(response)
            for piece in response.iter_bytes():
                patience.renew()
                landing.write(piece)

    def _send(self, call: Call[T]) -> T:
        patience = self._patience()
        while True:
            try:
                return self._send_request(call, call.request(self._http))
            except (httpx.TransportError, LonghaulApiError) as error:
                time.sleep(pause_before_repeat(call, error, patience))

    def _send_request(self, call: Call[T], request: httpx.Request) -> T:
        response = self._http.send(request)
        if response.is_error:
            raise refusal(response)
        return call.parse(response.content)
