import asyncio
import hashlib
import os
import secrets
import time
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from agents.contracts.artifact import BlobRef
from agents.contracts.errors import ErrorCode, LonghaulError
from services.objects.client import Bucket
from services.objects.s3 import CHUNK_BYTES, S3Objects, blob_key
from services.settings import Settings
from workflows.ports import Objects

MIB = 1 << 20


@pytest.fixture
async def store(servers: Settings) -> AsyncIterator[S3Objects]:
    objects = S3Objects(servers, threads=8)
    yield objects
    await objects.close()


def raw(servers: Settings) -> Bucket:
    return Bucket(servers, connections=2)


async def pieces(data: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def read(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in stream])


@pytest.mark.parametrize("size", [0, 1, 20_000, 3 * MIB])
async def test_what_is_kept_comes_back(store: Objects, size: int) -> None:
    data = os.urandom(size)
    ref = await store.put("ann", data)
    assert ref == BlobRef(sha256=hashlib.sha256(data).hexdigest(), bytes=size)
    assert await store.put("ann", data) == ref, "a second time does nothing"
    assert await store.get("ann", ref) == data
    assert await read(store.get_stream("ann", ref)) == data


@pytest.mark.parametrize("size", [0, 5, 2 * MIB + 7])
async def test_a_stream_is_kept_under_the_same_name_as_its_bytes(store: Objects, size: int) -> None:
    data = os.urandom(size)
    ref = await store.put_stream("ann", pieces(data), max_bytes=size)
    assert ref == await store.put("ann", data)
    assert ref == await store.put_stream("ann", pieces(data), max_bytes=size)
    assert await store.get("ann", ref) == data


async def test_many_parts_make_one_blob(store: Objects) -> None:
    """Past the size at which it goes up in parts."""
    data = os.urandom(MIB) * 70
    ref = await store.put_stream("ann", pieces(data, MIB), max_bytes=len(data))
    digest = hashlib.sha256()
    async for piece in store.get_stream("ann", ref):
        digest.update(piece)
    assert digest.hexdigest() == ref.sha256 == hashlib.sha256(data).hexdigest()


async def test_a_stream_is_not_held_in_memory(store: Objects) -> None:
    block = os.urandom(MIB)

    async def endless(n: int) -> AsyncIterator[bytes]:
        for _ in range(n):
            yield block

    tracemalloc.start()
    ref = await store.put_stream("ann", endless(40), max_bytes=40 * MIB)
    total = 0
    async for piece in store.get_stream("ann", ref):
        total += len(piece)
        assert len(piece) <= CHUNK_BYTES
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == ref.bytes == 40 * MIB
    assert peak < 12 * MIB


async def test_a_body_that_is_too_large_is_refused_and_not_kept(store: Objects) -> None:
    data = os.urandom(MIB)
    with pytest.raises(LonghaulError) as refused:
        await store.put_stream("ann", pieces(data), max_bytes=MIB - 1)
    assert refused.value.code is ErrorCode.BODY_TOO_LARGE
    with pytest.raises(LonghaulError, match="NOT_FOUND"):
        await store.get("ann", BlobRef(sha256=hashlib.sha256(data).hexdigest(), bytes=MIB))


@pytest.mark.parametrize(
    ("start", "end"), [(0, 0), (0, 99), (10, 19), (999_000, None), (500_000, 5_000_000), (0, None)]
)
async def test_a_part_is_read(store: Objects, start: int, end: int | None) -> None:
    data = os.urandom(1_000_000)
    ref = await store.put("ann", data)
    assert await read(store.get_stream("ann", ref, start, end)) == data[start : None if end is None else end + 1]


async def test_a_part_behind_the_end_is_refused(store: Objects) -> None:
    ref = await store.put("ann", b"short")
    with pytest.raises(LonghaulError) as refused:
        await read(store.get_stream("ann", ref, 5))
    assert refused.value.code is ErrorCode.RANGE_NOT_SATISFIABLE


async def test_tenants_are_apart(store: Objects) -> None:
    ref = await store.put("ann", b"ann's own " + secrets.token_bytes(8))
    for read_as_bob in (store.get("bob", ref), read(store.get_stream("bob", ref))):
        with pytest.raises(LonghaulError) as refused:
            await read_as_bob
        assert refused.value.code is ErrorCode.NOT_FOUND


async def test_other_bytes_than_were_kept_are_never_given_out(store: Objects, servers: Settings) -> None:
    data = os.urandom(1_000)
    ref = BlobRef(sha256=hashlib.sha256(data).hexdigest(), bytes=1_000)
    wrong = b"x" * 1_000
    await asyncio.to_thread(raw(servers).put, blob_key("ann", ref.sha256), wrong, hashlib.sha256(wrong).digest())
    for asked in (store.get("ann", ref), read(store.get_stream("ann", ref))):
        with pytest.raises(LonghaulError) as refused:
            await asked
        assert refused.value.code is ErrorCode.OBJECTS_UNAVAILABLE


async def test_many_at_once(store: Objects) -> None:
    bodies = [os.urandom(5_000) for _ in range(40)]
    refs = await asyncio.gather(*(store.put("ann", body) for body in bodies * 2))
    assert refs[:40] == refs[40:]
    assert await asyncio.gather(*(store.get("ann", ref) for ref in refs[:40])) == bodies


async def test_a_missing_bucket_is_made_by_the_first_write(owner: Settings) -> None:
    own = S3Objects(owner.model_copy(update={"s3_bucket": f"longhaul-{secrets.token_hex(4)}"}), threads=4)
    try:
        with pytest.raises(LonghaulError, match="NOT_FOUND"):
            await own.get("ann", BlobRef(sha256="0" * 64, bytes=1))
        ref, streamed = await asyncio.gather(own.put("ann", b"1"), own.put_stream("ann", pieces(b"2"), max_bytes=9))
        assert (await own.get("ann", ref), await own.get("ann", streamed)) == (b"1", b"2")
        await own.ping()
    finally:
        await own.close()


async def test_an_absent_store_and_a_wrong_key_are_told_soon(servers: Settings) -> None:
    for change in ({"s3_endpoint": "http://127.0.0.1:1"}, {"s3_access_key": "nobody"}):
        broken = S3Objects(servers.model_copy(update=change), threads=2)
        began = time.monotonic()
        for asked in (broken.put("ann", b"x"), broken.get("ann", BlobRef(sha256="0" * 64, bytes=1)), broken.ping()):
            with pytest.raises(LonghaulError) as refused:
                await asked
            assert refused.value.code is ErrorCode.OBJECTS_UNAVAILABLE
        await broken.warm()
        await broken.close()
        assert time.monotonic() - began < 15


class HalfAnswers:
    """An S3 that gives the right bytes but hangs up after each `cut` of them."""

    def __init__(self, data: bytes, cut: int) -> None:
        self._data, self._cut = data, cut
        self.requests = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        first, last = head.partition("range: bytes=")[2].partition("\r\n")[0].split("-")
        part = self._data[int(first) : int(last) + 1]
        writer.write(b"HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\n\r\n" % len(part) + part[: self._cut])
        await writer.drain()
        writer.close()


@pytest.mark.parametrize(("cut", "comes"), [(400_000, True), (100_000, False)])
async def test_a_connection_that_breaks_is_taken_up_where_it_broke(servers: Settings, cut: int, comes: bool) -> None:
    data = os.urandom(1_000_000)
    half = HalfAnswers(data, cut)
    server = await asyncio.start_server(half, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    objects = S3Objects(servers.model_copy(update={"s3_endpoint": f"http://127.0.0.1:{port}"}), threads=2)
    ref = BlobRef(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    try:
        if comes:
            assert await read(objects.get_stream("ann", ref)) == data
            assert half.requests == 3
        else:
            with pytest.raises(LonghaulError, match="OBJECTS_UNAVAILABLE"):
                await read(objects.get_stream("ann", ref))
    finally:
        await objects.close()
        server.close()
