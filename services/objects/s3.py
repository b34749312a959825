"""The `Objects` port on S3. Calls block in a thread pool of their own; no body is held that a caller streams."""

import asyncio
import hashlib
import logging
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from agents.contracts.artifact import BlobRef
from agents.contracts.errors import ErrorCode, LonghaulError
from services.objects.client import Bucket
from services.settings import Settings

log = logging.getLogger(__name__)

T = TypeVar("T")

CHUNK_BYTES = 256 * 1024
_SPOOL_BYTES = 1 << 20
_RESUMES = 3


class S3Objects:
    """Implements `workflows.ports.Objects`. Build one per process (that takes about half a second); `close` it at
    the end. A missing bucket is made by whoever writes first."""

    def __init__(self, settings: Settings, *, threads: int = 16) -> None:
        self.bucket = self._bucket = Bucket(settings, connections=threads)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="s3")

    async def put(self, tenant_id: str, data: bytes) -> BlobRef:
        """Keep bytes; a second time does nothing."""
        digest = hashlib.sha256(data)
        key = blob_key(tenant_id, digest.hexdigest())
        await self._run(lambda: self._bucket.put(key, data, digest.digest()))
        return BlobRef(sha256=digest.hexdigest(), bytes=len(data))

    async def put_stream(self, tenant_id: str, data: AsyncIterator[bytes], *, max_bytes: int) -> BlobRef:
        """Keep a stream; it goes through a temporary file, because its name is known only at its end.

        Raises:
            LonghaulError: ``BODY_TOO_LARGE`` past `max_bytes`; nothing is kept then.
        """
        digest, size = hashlib.sha256(), 0
        with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as spool:
            async for piece in data:
                size += len(piece)
                if size > max_bytes:
                    raise LonghaulError(ErrorCode.BODY_TOO_LARGE, f"at most {max_bytes} bytes are taken")
                digest.update(piece)
                await self._write(spool, piece, size)
            key = blob_key(tenant_id, digest.hexdigest())
            await self._run(lambda: self._bucket.put_file(key, spool))
        return BlobRef(sha256=digest.hexdigest(), bytes=size)

    async def get(self, tenant_id: str, ref: BlobRef) -> bytes:
        """The bytes, checked against the digest."""

        def fetch() -> bytes:
            body = self._bucket.open(blob_key(tenant_id, ref.sha256))
            try:
                return self._bucket.read(body)
            finally:
                body.close()

        data = await self._run(fetch)
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise _corrupt(ref)
        return data

    async def get_stream(
        self, tenant_id: str, ref: BlobRef, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes from `start` up to and with `end`. A connection that breaks is taken up where it broke. A whole
        blob is checked against its digest: a stream that differs ends in an error, not at its end.

        Raises:
            LonghaulError: ``RANGE_NOT_SATISFIABLE`` where the blob is shorter than `start`; ``NOT_FOUND``.
        """
        last = ref.bytes - 1 if end is None else min(end, ref.bytes - 1)
        if start > max(last, 0):
            raise LonghaulError(ErrorCode.RANGE_NOT_SATISFIABLE, f"the blob has {ref.bytes} bytes")
        whole = start == 0 and last == ref.bytes - 1
        digest = hashlib.sha256()
        async for piece in self._pieces(blob_key(tenant_id, ref.sha256), start, last):
            digest.update(piece)
            yield piece
        if whole and digest.hexdigest() != ref.sha256:
            raise _corrupt(ref)

    async def abort_uploads(self, older_than: timedelta) -> int:
        """Give up uploads in parts that were begun so long ago and have no end, of all tenants; how many there were."""
        before = datetime.now(UTC) - older_than
        return await self._run(lambda: self._bucket.abort_uploads(before))

    async def ping(self) -> None:
        """Whether the store answers and takes our key; for readiness. Raises ``OBJECTS_UNAVAILABLE``."""
        await self._run(self._bucket.ping)

    async def warm(self) -> None:
        """Open a few connections, so that the first turns do not wait for them. An absent store is no fault here."""
        found = await asyncio.gather(*(self.ping() for _ in range(4)), return_exceptions=True)
        if faults := [f for f in found if isinstance(f, Exception)]:
            log.warning("the object store does not answer yet: %s", faults[0])

    async def close(self) -> None:
        """End the threads; what they are at is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _pieces(self, key: str, at: int, last: int) -> AsyncIterator[bytes]:
        broken = 0
        while at <= last:
            try:
                async for piece in self._read_from(key, at, last):
                    at += len(piece)
                    yield piece
                if at <= last:  # the server ended early without saying so
                    raise _cut()
            except LonghaulError as error:
                broken += 1
                if error.code is not ErrorCode.OBJECTS_UNAVAILABLE or broken > _RESUMES:
                    raise

    async def _read_from(self, key: str, at: int, last: int) -> AsyncIterator[bytes]:
        body: Any = await self._run(lambda: self._bucket.open(key, f"bytes={at}-{last}"))
        try:
            while piece := await self._run(lambda: self._bucket.read(body, CHUNK_BYTES)):
                yield piece
        finally:
            body.close()

    async def _write(self, spool: "tempfile.SpooledTemporaryFile[bytes]", piece: bytes, size: int) -> None:
        if size <= _SPOOL_BYTES:
            spool.write(piece)  # still in memory
        else:
            await self._run(lambda: spool.write(piece))

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


def blob_key(tenant_id: str, sha256: str) -> str:
    """Where a tenant's blob lies in the bucket."""
    return f"t/{tenant_id}/blobs/{sha256[:2]}/{sha256}"


def _corrupt(ref: BlobRef) -> LonghaulError:
    return LonghaulError(ErrorCode.OBJECTS_UNAVAILABLE, f"blob {ref.sha256} came back with other bytes than were kept")


def _cut() -> LonghaulError:
    return LonghaulError(ErrorCode.OBJECTS_UNAVAILABLE, "the object store ended an answer early; try again")
