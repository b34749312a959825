"""The client of the runner: the port `workflows.ports.Runner` over HTTP.

All calls are keyed or harmless to repeat, so connection faults are retried here for a while; waiting for a command
goes over a restart of the runner by attaching again.
"""

import asyncio
import io
import secrets
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from agents.contracts.errors import ErrorCode, Fenced, LonghaulError
from agents.contracts.sandbox import (
    Capabilities,
    EditFile,
    ExecRequest,
    ExecState,
    ExecStatus,
    FileChange,
    FileEntry,
    FileText,
    Owner,
    PoolState,
    ReadFile,
    RunnerFault,
    SandboxInfo,
    SandboxSpec,
    Snapshot,
    StateReport,
    TakeSnapshot,
    WriteFile,
)
from services.sandbox.wire import OWNER_HEADER, FileList, KillRequest, SandboxList

POLL_S = 20.0
CALL_S = 120.0
"""Longer than anything the runner waits for (a copy, a poll), so that its own answer comes first."""
UPLOAD_S = 3_600.0
PATIENCE_S = 30.0
CHUNK = 1 << 18
Answer = TypeVar("Answer", bound=BaseModel)
_LOST = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError, ConnectionError)


class RunnerClient:
    """One runner. Close it at the end; it may also be used as an asynchronous context manager."""

    def __init__(self, url: str, token: str, *, patience_s: float = PATIENCE_S) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}
        self._patience_s = patience_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "RunnerClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def capabilities(self) -> Capabilities:
        """What the host can do."""
        return await self._call("GET", "/v1/capabilities", Capabilities)

    async def pool(self) -> PoolState:
        """What is ready, and what claims met."""
        return await self._call("GET", "/v1/pool", PoolState)

    async def create(self, spec: SandboxSpec) -> SandboxInfo:
        """Make or find a sandbox."""
        return await self._call("PUT", f"/v1/sandboxes/{spec.id}", SandboxInfo, spec, timeout_s=UPLOAD_S)

    async def info(self, sandbox_id: str) -> SandboxInfo:
        """Its state."""
        return await self._call("GET", f"/v1/sandboxes/{sandbox_id}", SandboxInfo)

    async def list_sandboxes(self) -> list[SandboxInfo]:
        """Every sandbox that is there and is not being destroyed."""
        return (await self._call("GET", "/v1/sandboxes", SandboxList)).sandboxes

    async def destroy(self, sandbox_id: str) -> None:
        """End and delete it."""
        await self._do("DELETE", f"/v1/sandboxes/{sandbox_id}")

    async def announce(self, sandbox_id: str, owner: Owner) -> None:
        """Raise the fences."""
        await self._do("POST", f"/v1/sandboxes/{sandbox_id}/announce", owner)

    async def exec(self, sandbox_id: str, request: ExecRequest) -> ExecStatus:
        """Start or attach, and wait for the end."""
        call = secrets.token_hex(8)
        path = f"/v1/sandboxes/{sandbox_id}/execs"
        while True:
            status = await self._call("POST", path, ExecStatus, request, params={"call": call, "wait_s": f"{POLL_S}"})
            if status.state is not ExecState.RUNNING:
                return status
            await asyncio.sleep(0.01)  # a runner that is closing answers at once

    async def kill(self, sandbox_id: str, exec_id: str, owner: Owner) -> None:
        """End a command."""
        await self._do("POST", f"/v1/sandboxes/{sandbox_id}/kill", KillRequest(exec_id=exec_id, owner=owner))

    async def kill_all(self, sandbox_id: str, owner: Owner) -> None:
        """End every command."""
        await self._do("POST", f"/v1/sandboxes/{sandbox_id}/kill-all", owner)

    async def read_file(self, sandbox_id: str, request: ReadFile) -> FileText:
        """Text of a file."""
        return await self._call("POST", f"/v1/sandboxes/{sandbox_id}/read", FileText, request)

    async def write_file(self, sandbox_id: str, request: WriteFile) -> FileChange:
        """Create or replace a file."""
        return await self._call("POST", f"/v1/sandboxes/{sandbox_id}/write", FileChange, request)

    async def edit_file(self, sandbox_id: str, request: EditFile) -> FileChange:
        """Replace a piece of a file."""
        return await self._call("POST", f"/v1/sandboxes/{sandbox_id}/edit", FileChange, request)

    async def list_files(self, sandbox_id: str, limit: int) -> tuple[list[FileEntry], int]:
        """The regular files."""
        params = {"limit": str(limit)}
        found = await self._call("GET", f"/v1/sandboxes/{sandbox_id}/files", FileList, params=params)
        return found.files, found.total

    async def snapshot(
        self, sandbox_id: str, key: str, owner: Owner, *, state: bool = False, wait_s: float = 60.0
    ) -> Snapshot:
        """Keep the workspace's files."""
        asked = TakeSnapshot(key=key, owner=owner, state=state, wait_s=wait_s)
        return await self._call("POST", f"/v1/sandboxes/{sandbox_id}/snapshots", Snapshot, asked, timeout_s=UPLOAD_S)

    async def quality(self, sandbox_id: str) -> StateReport:
        """What state it is in beside its files."""
        return await self._call("GET", f"/v1/sandboxes/{sandbox_id}/quality", StateReport)

    async def put_archive(self, sandbox_id: str, key: str, owner: Owner, archive: AsyncIterator[bytes]) -> None:
        """Unpack a tar."""
        await self._upload(f"/v1/sandboxes/{sandbox_id}/archive", {"key": key}, owner, archive)

    async def put_file(self, sandbox_id: str, key: str, owner: Owner, path: str, data: AsyncIterator[bytes]) -> None:
        """Place one file."""
        await self._upload(f"/v1/sandboxes/{sandbox_id}/file", {"key": key, "path": path}, owner, data)

    async def get_file(self, sandbox_id: str, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file."""
        try:
            async with self._open().get(
                f"{self._url}/v1/sandboxes/{sandbox_id}/file",
                params={"path": path},
                timeout=_timeout(UPLOAD_S),
            ) as response:
                await _raise_fault(response)
                async for data in response.content.iter_chunked(CHUNK):
                    yield data
        except _LOST as error:
            raise _unavailable(error) from error

    async def _upload(self, path: str, params: dict[str, str], owner: Owner, data: AsyncIterator[bytes]) -> None:
        """Once: the stream cannot be read again, so a connection that breaks on the way is the caller's to repeat."""
        headers = {OWNER_HEADER: owner.model_dump_json()}
        source = _Source(data)
        try:
            async with self._open().put(
                self._url + path, params=params, headers=headers, data=source.read(), timeout=_timeout(UPLOAD_S)
            ) as response:
                await _raise_fault(response)
        except _LOST as error:
            raise source.fault or _unavailable(error) from error

    async def _call(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        body: BaseModel | None = None,
        *,
        params: dict[str, str] | None = None,
        timeout_s: float = CALL_S,
    ) -> Answer:
        return kind.model_validate_json(await self._do(method, path, body, params=params, timeout_s=timeout_s))

    async def _do(
        self,
        method: str,
        path: str,
        body: BaseModel | None = None,
        *,
        params: dict[str, str] | None = None,
        timeout_s: float = CALL_S,
    ) -> bytes:
        """Ask until there is an answer, while the patience lasts."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        pause = 0.05
        while True:
            try:
                return await self._once(method, path, body, params, timeout_s)
            except _LOST as error:
                if loop.time() + pause > until:
                    raise _unavailable(error) from error
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 2)

    async def _once(
        self, method: str, path: str, body: BaseModel | None, params: dict[str, str] | None, timeout_s: float
    ) -> bytes:
        sent: dict[str, Any] = {}
        if body is not None:
            sent = {
                "data": io.BytesIO(body.model_dump_json().encode()),
                "headers": {"Content-Type": "application/json"},
            }
        url = self._url + path
        async with self._open().request(method, url, params=params, timeout=_timeout(timeout_s), **sent) as response:
            await _raise_fault(response)
            return await response.read()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, connector=aiohttp.TCPConnector(limit=0))
        return self._session


class _Source:
    """A stream to upload. The HTTP library shows a fault of it as a lost connection; `fault` is what it really was."""

    def __init__(self, data: AsyncIterator[bytes]) -> None:
        self._data = data
        self.fault: LonghaulError | None = None

    async def read(self) -> AsyncIterator[bytes]:
        """The stream's pieces."""
        try:
            async for piece in self._data:
                yield piece
        except LonghaulError as fault:
            self.fault = fault
            raise


def _timeout(total_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total_s, sock_connect=5.0)


def _unavailable(error: BaseException) -> LonghaulError:
    return LonghaulError(
        ErrorCode.RUNNER_UNAVAILABLE, f"the runner cannot be reached ({type(error).__name__})", retry_after_s=1
    )


async def _raise_fault(response: aiohttp.ClientResponse) -> None:
    if response.status < 400:
        return
    body = await response.read()
    try:
        fault = RunnerFault.model_validate_json(body)
    except ValidationError:
        raise LonghaulError(ErrorCode.RUNNER_UNAVAILABLE, f"the runner answered {response.status}") from None
    if fault.code is ErrorCode.FENCED:
        raise Fenced(fault.detail)
    raise LonghaulError(fault.code, fault.detail)
