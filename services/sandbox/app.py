"""The runner's HTTP face. Bodies are the contracts of agents.contracts.sandbox, refusals are `RunnerFault`.

Routes (all but the two health ones want the bearer token):

    GET    /healthz /readyz                alive; can run a command (it ran one)
    GET    /v1/capabilities
    GET    /v1/pool                        -> PoolState
    GET    /v1/sandboxes                   -> SandboxList
    PUT    /v1/sandboxes/{id}              SandboxSpec -> SandboxInfo
    GET    /v1/sandboxes/{id}              -> SandboxInfo
    DELETE /v1/sandboxes/{id}
    POST   /v1/sandboxes/{id}/announce     Owner
    POST   /v1/sandboxes/{id}/execs        ExecRequest, ?call=&wait_s= -> ExecStatus; repeat it to go on waiting
    POST   /v1/sandboxes/{id}/kill         KillRequest
    POST   /v1/sandboxes/{id}/kill-all     Owner
    POST   /v1/sandboxes/{id}/read | write | edit
    GET    /v1/sandboxes/{id}/files        ?limit= -> FileList
    GET    /v1/sandboxes/{id}/file         ?path= -> bytes
    PUT    /v1/sandboxes/{id}/file         ?key=&path=, bytes; the owner is JSON in the header `OWNER_HEADER`
    PUT    /v1/sandboxes/{id}/archive      ?key=, a tar; the same header
    POST   /v1/sandboxes/{id}/snapshots    TakeSnapshot -> Snapshot
    GET    /v1/sandboxes/{id}/quality      -> StateReport
"""

import asyncio
import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from aiohttp import web
from aiohttp.typedefs import Middleware
from pydantic import BaseModel, ValidationError

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import (
    EditFile,
    ExecRequest,
    Owner,
    ReadFile,
    RunnerFault,
    SandboxSpec,
    TakeSnapshot,
    WriteFile,
)
from services.sandbox import archive, fences, files
from services.sandbox.beneath import faults
from services.sandbox.execs import Execs
from services.sandbox.home import Home
from services.sandbox.pool import Pool
from services.sandbox.probe import Probe
from services.sandbox.quality import Quality
from services.sandbox.run import Run
from services.sandbox.sandboxes import Sandboxes
from services.sandbox.snapshots import Snapshots
from services.sandbox.wire import OWNER_HEADER, FileList, KillRequest, SandboxList
from services.storage import NO_SPACE, Storage

MAX_JSON_BYTES = 64 << 20
MAX_WAIT_S = 20.0
CHUNK = 1 << 20
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_LOG = logging.getLogger(__name__)

Body = TypeVar("Body", bound=BaseModel)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Routes:
    """The handlers. Each finds the sandbox, admits the owner's fences, acts."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        execs: Execs,
        probe: Probe,
        storage: Storage,
        snapshots: Snapshots,
        pool: Pool,
        quality: Quality,
    ) -> None:
        self._quality = quality
        self._pool = pool
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._execs = execs
        self._probe = probe
        self.storage = storage

    def table(self) -> list[web.RouteDef]:
        """All routes."""
        one = "/v1/sandboxes/{id}"
        return [
            web.get("/healthz", self.healthz),
            web.get("/readyz", self.readyz),
            web.get("/v1/capabilities", self.capabilities),
            web.get("/v1/pool", self.pool),
            web.get("/v1/sandboxes", self.list_all),
            web.put(one, self.create),
            web.get(one, self.info),
            web.delete(one, self.destroy),
            web.post(f"{one}/announce", self.announce),
            web.post(f"{one}/execs", self.exec),
            web.post(f"{one}/kill", self.kill),
            web.post(f"{one}/kill-all", self.kill_all),
            web.post(f"{one}/read", self.read),
            web.post(f"{one}/write", self.write),
            web.post(f"{one}/edit", self.edit),
            web.get(f"{one}/files", self.list),
            web.get(f"{one}/file", self.get_file),
            web.put(f"{one}/file", self.put_file),
            web.put(f"{one}/archive", self.put_archive),
            web.post(f"{one}/snapshots", self.take_snapshot),
            web.get(f"{one}/quality", self.quality),
        ]

    async def healthz(self, request: web.Request) -> web.Response:
        """The process answers."""
        return web.json_response({"status": "ok"})

    async def readyz(self, request: web.Request) -> web.Response:
        """A command ran in a throw-away sandbox not long ago."""
        found = await self._probe.capabilities()
        body = {"status": "ok" if found.ready else "unavailable", "detail": found.detail}
        return web.json_response(body, status=200 if found.ready else 503)

    async def capabilities(self, request: web.Request) -> web.Response:
        """What the host can do, tried out."""
        return _json(await self._probe.capabilities())

    async def pool(self, request: web.Request) -> web.Response:
        """What is ready, and what claims met."""
        return _json(self._pool.state())

    async def create(self, request: web.Request) -> web.Response:
        """Make or find a sandbox."""
        self.storage.check()
        spec = await _body(request, SandboxSpec)
        if spec.id != _sandbox_id(request):
            raise LonghaulError(ErrorCode.VALIDATION_FAILED, "the body names another sandbox than the address")
        found = await self._probe.capabilities()
        if not found.ready:
            raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, found.detail)
        return _json(await self._sandboxes.create(spec))

    async def list_all(self, request: web.Request) -> web.Response:
        """Every sandbox that is not being destroyed."""
        return _json(SandboxList(sandboxes=await asyncio.to_thread(self._sandboxes.infos)))

    async def info(self, request: web.Request) -> web.Response:
        """A sandbox's state."""
        return _json(self._sandboxes.info(self._home(request)))

    async def destroy(self, request: web.Request) -> web.Response:
        """End and delete; again does nothing."""
        await self._sandboxes.destroy(_sandbox_id(request))
        return web.Response(status=204)

    async def announce(self, request: web.Request) -> web.Response:
        """Raise the fences."""
        await self._admit(request, await _body(request, Owner))
        return web.Response(status=204)

    async def exec(self, request: web.Request) -> web.Response:
        """Start or attach, wait a while, answer the state."""
        asked = await _body(request, ExecRequest)
        call = request.query.get("call", "")
        run = await self._begin(request, asked, call)
        await self._execs.wait(run, min(MAX_WAIT_S, _number(request, "wait_s", MAX_WAIT_S)))
        return _json(run.status(asked, call))

    async def _begin(self, request: web.Request, asked: ExecRequest, call: str) -> Run:
        home = await self._admit(request, asked.owner)
        run = await self._execs.attach(home, asked)
        if run is not None:  # nothing to start: no copy has to be waited for
            return run
        self.storage.check()
        guard = self._sandboxes.guard(home.meta.id)
        async with guard.files.shared(), guard.change:
            home = self._home(request)
            await self._fence(home, asked.owner)
            return await self._execs.start(home, asked, call)

    async def kill(self, request: web.Request) -> web.Response:
        """End one command."""
        asked = await _body(request, KillRequest)
        home = await self._admit(request, asked.owner)
        await self._execs.kill(home, asked.exec_id)
        return web.Response(status=204)

    async def kill_all(self, request: web.Request) -> web.Response:
        """End every command."""
        home = await self._admit(request, await _body(request, Owner))
        await self._execs.kill_all(home)
        return web.Response(status=204)

    async def read(self, request: web.Request) -> web.Response:
        """Text of a file."""
        asked = await _body(request, ReadFile)
        return _json(await asyncio.to_thread(files.read_text, self._home(request), asked))

    async def write(self, request: web.Request) -> web.Response:
        """Create or replace a file."""
        asked = await _body(request, WriteFile)
        return _json(await self._change(request, asked.owner, lambda home: files.write_text(home, asked)))

    async def edit(self, request: web.Request) -> web.Response:
        """Replace a piece of a file."""
        asked = await _body(request, EditFile)
        return _json(await self._change(request, asked.owner, lambda home: files.edit_text(home, asked)))

    async def list(self, request: web.Request) -> web.Response:
        """The regular files."""
        limit = int(_number(request, "limit", 1000))
        found, total = await asyncio.to_thread(files.entries, self._home(request), limit)
        return _json(FileList(files=found, total=total))

    async def put_file(self, request: web.Request) -> web.Response:
        """Place one file."""
        owner, key, path = _owner(request), _query(request, "key"), _query(request, "path")
        spooled, sha256 = await self._spool(request, owner, files.MAX_DOWNLOAD_BYTES)
        await self._change(request, owner, lambda home: files.place(home, key, path, spooled, sha256))
        return web.Response(status=204)

    async def put_archive(self, request: web.Request) -> web.Response:
        """Unpack a tar."""
        owner, key = _owner(request), _query(request, "key")
        spooled, sha256 = await self._spool(request, owner, archive.MAX_BYTES)
        await self._change(request, owner, lambda home: archive.unpack(home, key, spooled, sha256))
        return web.Response(status=204)

    async def take_snapshot(self, request: web.Request) -> web.Response:
        """Keep the files as they are once no command runs and no change is made."""
        asked = await _body(request, TakeSnapshot)
        await self._admit(request, asked.owner)
        async with self._sandboxes.still(self._home(request), asked.wait_s):
            home = await self._admit(request, asked.owner)
            state = await self._quality.told(home) if asked.state else None
            return _json(await asyncio.to_thread(self._snapshots.take, home, asked.key, state))

    async def quality(self, request: web.Request) -> web.Response:
        """What state it is in beside its files."""
        return _json(await self._quality.report(self._home(request)))

    async def get_file(self, request: web.Request) -> web.StreamResponse:
        """The bytes of a file. A file that shrinks on the way breaks the connection rather than end early."""
        fd, size = await asyncio.to_thread(files.download, self._home(request), _query(request, "path"))
        with os.fdopen(fd, "rb", buffering=0) as file:
            response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
            response.content_length = size
            await response.prepare(request)
            left = size
            while left and (data := await asyncio.to_thread(file.read, min(CHUNK, left))):
                await response.write(data)
                left -= len(data)
        if left and request.transport is not None:
            request.transport.abort()
        return response

    def _home(self, request: web.Request) -> Home:
        return self._sandboxes.find(_sandbox_id(request))

    async def _admit(self, request: web.Request, owner: Owner) -> Home:
        guard = self._sandboxes.guard(_sandbox_id(request))
        async with guard.change:
            home = self._home(request)
            await self._fence(home, owner)
        return home

    @staticmethod
    async def _fence(home: Home, owner: Owner) -> None:
        if not fences.known(home, owner):
            await asyncio.to_thread(fences.admit, home, owner)

    async def _change(self, request: web.Request, owner: Owner, act: Callable[[Home], Body | None]) -> Body | None:
        """Change files: not while a copy is taken, and one change at a time."""
        self.storage.check()
        guard = self._sandboxes.guard(_sandbox_id(request))
        async with guard.files.shared(), guard.change:
            home = self._home(request)
            await asyncio.to_thread(fences.admit, home, owner)
            return await asyncio.to_thread(act, home)

    async def _spool(self, request: web.Request, owner: Owner, limit: int) -> tuple[Path, str]:
        """Take an upload into `staging` as it comes; its path and digest."""
        self.storage.check()
        home = await self._admit(request, owner)
        target = home.staging / f"upload-{secrets.token_hex(8)}"
        digest, size = hashlib.sha256(), 0
        try:
            with faults("upload"), target.open("xb") as file:
                async for data in request.content.iter_chunked(CHUNK):
                    size += len(data)
                    if size > limit:
                        raise LonghaulError(ErrorCode.BODY_TOO_LARGE, f"more than {limit} bytes")
                    digest.update(data)
                    await asyncio.to_thread(file.write, data)
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return target, digest.hexdigest()


def build_app(routes: Routes, token: str) -> web.Application:
    """The application: routes behind the token, faults in one shape."""
    app = web.Application(middlewares=[_faults(routes.storage), _bearer(token)], client_max_size=MAX_JSON_BYTES)
    app.add_routes(routes.table())
    return app


def _bearer(token: str) -> Middleware:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if request.path not in ("/healthz", "/readyz") and not hmac.compare_digest(given, expected):
            raise LonghaulError(ErrorCode.UNAUTHENTICATED, "the runner's token is missing or wrong")
        return await handler(request)

    return check


def _faults(storage: Storage) -> Middleware:
    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except LonghaulError as error:
            # a disk that is full for all of us is no observation for a model: the call waits for space
            told = storage.fault() if error.code is ErrorCode.DISK_FULL and storage.full else error
            return _fault(told.code, told.detail)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            return _fault(ErrorCode.VALIDATION_FAILED, f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}")
        except web.HTTPRequestEntityTooLarge:
            return _fault(ErrorCode.BODY_TOO_LARGE, f"more than {MAX_JSON_BYTES} bytes")
        except web.HTTPMethodNotAllowed:
            return _fault(ErrorCode.METHOD_NOT_ALLOWED, f"{request.method} is not possible here")
        except web.HTTPNotFound:
            return _fault(ErrorCode.NOT_FOUND, f"there is no {request.path}")
        except FileNotFoundError:  # the sandbox was destroyed while the call was under way
            return _fault(ErrorCode.SANDBOX_NOT_FOUND, "the sandbox is gone")
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in NO_SPACE:  # of the journal, not of the workspace
                return _fault(ErrorCode.STORAGE_FULL, storage.fault().detail)
            _LOG.exception("%s %s failed", request.method, request.path)
            return _fault(ErrorCode.INTERNAL, "the runner has a fault; its log says which")

    return answer


def _fault(code: ErrorCode, detail: str) -> web.Response:
    plain = detail.encode("utf-8", "replace").decode()  # a file's name need not be text, an answer must be
    return _json(RunnerFault(code=code, detail=plain), status=code.rule.status)


def _json(body: BaseModel | None, status: int = 200) -> web.Response:
    text = "null" if body is None else body.model_dump_json()
    return web.Response(text=text, status=status, content_type="application/json")


async def _body(request: web.Request, kind: type[Body]) -> Body:
    return kind.model_validate_json(await request.read())


def _sandbox_id(request: web.Request) -> str:
    found = request.match_info["id"]
    if _ID.fullmatch(found) is None:
        raise LonghaulError(ErrorCode.VALIDATION_FAILED, "this is not a sandbox id")
    return found


def _query(request: web.Request, name: str) -> str:
    value = request.query.get(name, "")
    if not value:
        raise LonghaulError(ErrorCode.VALIDATION_FAILED, f"the parameter {name} is missing")
    return value


def _number(request: web.Request, name: str, default: float) -> float:
    value = request.query.get(name, "")
    if value and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) is None:
        raise LonghaulError(ErrorCode.VALIDATION_FAILED, f"the parameter {name} is not a number")
    return float(value) if value else default


def _owner(request: web.Request) -> Owner:
    return Owner.model_validate_json(request.headers.get(OWNER_HEADER, ""))
