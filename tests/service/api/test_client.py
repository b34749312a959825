"""The typed client against the real API, and against an API in trouble."""

import asyncio
import hashlib
import io
import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from agents.contracts.approval import ApprovalState
from agents.contracts.artifact import UploadedFile
from agents.contracts.errors import ErrorCode
from agents.contracts.event import Event
from agents.contracts.task import InputFile, TaskSpec, TaskStatus
from services.client import AsyncClient, Client, DigestMismatch, LonghaulApiError, Unreachable
from services.objects.s3 import S3Objects
from tests.service.api.world import Tenant, Writer

SPEC = TaskSpec(instruction="do it", tier="replay")


async def test_every_method(tenant: Tenant, writer: Writer, objects: S3Objects, tmp_path: Path) -> None:
    data = b"0123456789" * 100_000
    path = tmp_path / "in.bin"
    path.write_bytes(data)
    async with AsyncClient(tenant.url, tenant.key) as client:
        files = [await client.upload(source, "in.bin") for source in (data, path, io.BytesIO(data))]
        assert {f.sha256 for f in files} == {hashlib.sha256(data).hexdigest()}
        spec = SPEC.model_copy(update={"files": [InputFile(file_id=files[0].id, path="in.bin")]})
        task = await client.submit(spec, "key")
        assert (await client.submit(spec, "key")).id == task.id
        assert (await client.get(task.id)).status is TaskStatus.QUEUED
        assert [t.id for t in (await client.list([TaskStatus.QUEUED], limit=1)).data] == [task.id]
        assert (await client.events(task.id, limit=1)).last_seq == 1
        with pytest.raises(LonghaulApiError) as early:
            await client.result(task.id)
        assert early.value.code is ErrorCode.NOT_FINISHED
        await writer.admit(task.id)
        assert (await client.cancel(task.id)).status is TaskStatus.CANCELLING
        other = await client.submit(SPEC)
        asked = await writer.approval(other.id)
        assert [a.id for a in (await client.approvals(state=[ApprovalState.PENDING], limit=1)).data] == [asked]
        assert (await client.decide(asked, "deny", "no")).state is ApprovalState.DENIED
        assert (await client.approval(asked)).note == "no"
        artifact_id = await writer.artifact(objects, task.id, "out/a.bin", data)
        await writer.end(task.id)
        assert [e.seq async for e in client.stream(task.id) if isinstance(e, Event)] == [1, 2, 3]
        assert (await client.result(task.id)).summary == "done"
        assert [a.id for a in await client.artifacts(task.id)] == [artifact_id]
        assert (await client.download(artifact_id, tmp_path)).read_bytes() == data
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a.bin", "in.bin"]


def test_the_blocking_one(someone: Tenant, tmp_path: Path) -> None:
    with Client(someone.url, someone.key) as client:
        task = client.submit(SPEC)
        assert client.get(task.id).id == task.id
        assert task.id in [t.id for t in client.list().data]
        assert client.upload(b"x", "x").bytes == 1
        first = next(iter(client.stream(task.id)))
        assert isinstance(first, Event)
        assert client.cancel(task.id, 0.1).status is TaskStatus.CANCELLED
        assert client.events(task.id).last_seq == 2
        assert client.approvals(task.id).data == []
        assert client.artifacts(task.id) == []
        with pytest.raises(LonghaulApiError) as refused:
            client.download("art_00000000000000", tmp_path)
        assert refused.value.code is ErrorCode.NOT_FOUND
        with pytest.raises(LonghaulApiError) as invalid:
            client.submit(SPEC.model_copy(update={"files": [InputFile(file_id="file_00000000000", path="x")]}))
        assert invalid.value.problem.errors[0].field == "files.0.file_id"


class Troubled:
    """Answers by a script: each request takes the next of `answers`; the last one stays."""

    def __init__(self, *answers: Callable[[httpx.Request], httpx.Response]) -> None:
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return (self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])(request)

    def client(self, patience_s: float = 5.0) -> Client:
        """A client of it."""
        return Client("http://api.test", "lh_key", patience_s=patience_s, transport=httpx.MockTransport(self))


def down(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def cut(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("", request=request)


def proxy_page(request: httpx.Request) -> httpx.Response:
    return httpx.Response(502, text="<html>Bad gateway</html>", request=request)


def uploaded(request: httpx.Request) -> httpx.Response:
    digest = hashlib.sha256(request.content).hexdigest()
    now = datetime(2026, 1, 1, tzinfo=UTC)
    told = UploadedFile(id="file_00000000000", name="x", bytes=len(request.content), sha256=digest, created_at=now)
    return httpx.Response(201, text=told.model_dump_json(), request=request)


def frames(*numbers: int, end: bool = False) -> Callable[[httpx.Request], httpx.Response]:
    lines = []
    for n in numbers:
        data = {"task_id": "t", "seq": n, "at": "2026-01-01T00:00:00Z", "data": {"type": "task.started"}}
        lines.append(f"id: {n}\nevent: task.started\ndata: {json.dumps(data)}\n\n")
    lines += ['event: end\ndata: {"seq": 1}\n\n'] if end else [": ping\n\n"]
    return lambda request: httpx.Response(200, text="".join(lines), request=request)


def test_a_submit_is_sent_again_under_the_same_key() -> None:
    api = Troubled(down, cut, proxy_page, lambda request: httpx.Response(422, request=request))
    with api.client() as client, pytest.raises(LonghaulApiError) as refused:
        client.submit(SPEC)
    assert refused.value.problem.status == 422
    assert len(api.requests) == 4
    assert len({r.headers["idempotency-key"] for r in api.requests}) == 1


def test_an_upload_is_sent_again_where_it_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "in.bin"
    path.write_bytes(b"behind it")
    opened = io.BytesIO(b"before, behind it")
    opened.seek(8)
    for source in (path, b"behind it", opened):
        api = Troubled(cut, down, uploaded)
        with api.client() as client:
            assert client.upload(source, "x").bytes == 9
        assert [request.content for request in api.requests] == [b"behind it"] * 3


def test_an_upload_from_a_pipe_is_not_sent_again() -> None:
    read, write = os.pipe()
    os.write(write, b"x")
    os.close(write)
    api = Troubled(cut)
    with os.fdopen(read, "rb") as pipe, api.client() as client, pytest.raises(Unreachable):
        client.upload(pipe, "x")
    assert len(api.requests) == 1


def test_patience_ends() -> None:
    api = Troubled(down)
    with api.client(patience_s=0.5) as client, pytest.raises(Unreachable):
        client.get("task_1")
    assert 2 <= len(api.requests) <= 4


def test_a_stream_drops_doubles_sees_gaps_and_reopens() -> None:
    api = Troubled(frames(1, 2), cut, proxy_page, frames(2, 3, 5), frames(4, 5, end=True))
    with api.client() as client:
        found = [e.seq for e in client.stream("t") if isinstance(e, Event)]
    assert found == [1, 2, 3, 4, 5]
    assert [r.headers["last-event-id"] for r in api.requests] == ["0", "2", "2", "2", "3"]


def test_a_stream_that_is_refused_says_so() -> None:
    api = Troubled(lambda request: httpx.Response(404, request=request))
    with api.client() as client, pytest.raises(LonghaulApiError):
        next(iter(client.stream("t")))


def test_bytes_that_differ_are_not_kept(tmp_path: Path) -> None:
    meta = {"id": "a", "task_id": "t", "path": "x.txt", "sha256": "0" * 64, "bytes": 4}
    meta["created_at"] = "2026-01-01T00:00:00Z"
    api = Troubled(
        lambda request: httpx.Response(200, json=meta, request=request),
        lambda request: httpx.Response(200, content=b"evil", request=request),
    )
    with api.client() as client, pytest.raises(DigestMismatch):
        client.download("a", tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_a_blocking_stream_in_a_thread_ends_with_the_task(tenant: Tenant, writer: Writer) -> None:
    async with AsyncClient(tenant.url, tenant.key) as client:
        task_id = (await client.submit(SPEC)).id
    seen: list[int] = []

    def read() -> None:
        with Client(tenant.url, tenant.key) as blocking:
            seen.extend(e.seq for e in blocking.stream(task_id) if isinstance(e, Event))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    await writer.steps(task_id, 5)
    await writer.end(task_id)
    await asyncio.to_thread(thread.join, 20)
    assert seen == list(range(1, 8))
