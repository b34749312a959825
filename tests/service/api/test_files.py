"""Bytes in and out: streamed, named, ranged, never held whole."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import httpx
import psutil  # type: ignore[import-untyped]
import pytest

from services.objects.s3 import S3Objects
from tests.service.api.process import ApiProcess
from tests.service.api.world import Tenant, Writer, submit

BOUNDARY = {"Content-Type": "multipart/form-data; boundary=B"}


async def test_a_form_and_a_raw_body(http: httpx.AsyncClient) -> None:
    data = bytes(range(256)) * 1_000
    raw = await http.post("/v1/files", params={"name": "dir/ä b.bin"}, content=data)
    form = await http.post("/v1/files", data={"note": "x" * 1_000}, files={"file": ("c:\\a\\ünï.bin", data)})
    for answer, name in ((raw, "ä b.bin"), (form, "ünï.bin")):
        assert answer.status_code == 201, answer.text
        file = answer.json()
        assert (file["name"], file["bytes"]) == (name, len(data))
        assert file["sha256"] == hashlib.sha256(data).hexdigest()
        assert (await http.get(answer.headers["location"])).json() == file
    assert raw.json()["id"] != form.json()["id"]
    empty = await http.post("/v1/files", params={"name": "empty"}, content=b"")
    assert (empty.status_code, empty.json()["bytes"]) == (201, 0)


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00b", "x" * 256, "..", "/", "a/", "\u202ea"])
async def test_names_that_are_none(http: httpx.AsyncClient, name: str) -> None:
    answer = await http.post("/v1/files", params={"name": name}, content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (422, "VALIDATION_FAILED")
    assert answer.json()["errors"][0]["field"] == "name"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", BOUNDARY),
        (b"nonsense", BOUNDARY),
        (b"--B\r\n\r\n", BOUNDARY),
        (b'--B\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--B--\r\n', BOUNDARY),
        (b'--B\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\nhalf', BOUNDARY),
        (b"--B\r\nX: " + b"y" * 200_000 + b"\r\n\r\n", BOUNDARY),
        (b"\r\n" * 50_000, BOUNDARY),
        (b"x", {"Content-Type": "multipart/form-data"}),
        (b"x", {"Content-Type": "multipart/form-data; boundary=" + "b" * 5_000}),
    ],
    ids=range(9),
)
async def test_forms_that_are_none(http: httpx.AsyncClient, body: bytes, headers: dict[str, str]) -> None:
    answer = await http.post("/v1/files", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "VALIDATION_FAILED"), answer.text


async def test_a_large_upload_takes_no_memory(http: httpx.AsyncClient, api: ApiProcess) -> None:
    digest = hashlib.sha256()
    process = psutil.Process(api.pid)
    before, peak = process.memory_info().rss, 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal peak
        piece = b"0123456789abcdef" * 65_536
        for n in range(96):
            digest.update(piece)
            if n % 8 == 0:
                peak = max(peak, process.memory_info().rss)
            yield piece

    answer = await http.post("/v1/files?name=big", content=body(), timeout=120)
    assert (answer.status_code, answer.json()["bytes"]) == (201, 96 << 20)
    assert answer.json()["sha256"] == digest.hexdigest()
    assert max(peak, process.memory_info().rss) - before < 64 << 20


async def test_an_upload_that_is_too_large_is_refused_before_it_comes(someone: Tenant, api: ApiProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.settings.api_port)
    head = f"POST /v1/files?name=x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {someone.key}\r\n"
    writer.write(f"{head}Content-Length: {(512 << 20) + 1}\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.readuntil(b"}"), 10)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"BODY_TOO_LARGE" in answer
    writer.close()


async def test_ranges(http: httpx.AsyncClient, writer: Writer, objects: S3Objects) -> None:
    data = bytes(range(256)) * 4
    task_id = await submit(http)
    artifact_id = await writer.artifact(objects, task_id, "out/rép ort.txt", data)
    assert (await http.get(f"/v1/tasks/{task_id}/artifacts")).json()[0]["id"] == artifact_id
    path = f"/v1/artifacts/{artifact_id}/content"
    whole = await http.get(path)
    assert (whole.status_code, whole.content) == (200, data)
    etag = f'"{hashlib.sha256(data).hexdigest()}"'
    assert whole.headers["etag"] == etag
    assert whole.headers["content-disposition"] == "attachment; filename*=UTF-8''r%C3%A9p%20ort.txt"
    assert (whole.headers["x-content-type-options"], whole.headers["accept-ranges"]) == ("nosniff", "bytes")
    cases = {
        "bytes=0-0": (206, data[:1]),
        "bytes=10-19": (206, data[10:20]),
        "bytes=1000-": (206, data[1000:]),
        "bytes=-24": (206, data[-24:]),
        "bytes=-5000": (206, data),
        "bytes=1000-99999999": (206, data[1000:]),
        "Bytes = 5-6": (206, data[5:7]),
        "bytes=0-1,4-5": (200, data),
        "lines=1-2": (200, data),
        "bytes=9-3": (200, data),
        "bytes=-": (200, data),
        "bytes=\xb2-": (200, data),
    }
    for header, (status, content) in cases.items():
        head = await http.head(path, headers={b"Range": header.encode("latin-1")})
        assert (head.status_code, head.content, head.headers["etag"]) == (status, b"", etag), header
        assert head.headers["content-length"] == str(len(content))
        answer = await http.get(path, headers={b"Range": header.encode("latin-1")})
        assert (answer.status_code, answer.content) == (status, content), header
        assert answer.headers["content-length"] == str(len(content))
    assert (await http.get(path, headers={"Range": "bytes=3-4"})).headers["content-range"] == "bytes 3-4/1024"
    for header in ("bytes=1024-", "bytes=9999999999999999999-", "bytes=-0"):
        answer = await http.get(path, headers={"Range": header})
        assert (answer.status_code, answer.json()["code"]) == (416, "RANGE_NOT_SATISFIABLE")
        assert answer.headers["content-range"] == "bytes */1024"
    changed = await http.get(path, headers={"Range": "bytes=0-0", "If-Range": '"other"'})
    assert (changed.status_code, len(changed.content)) == (200, 1024)
    for ask in (http.get, http.head):
        assert (await ask(path, headers={"If-None-Match": etag})).status_code == 304


async def test_an_empty_artifact(http: httpx.AsyncClient, writer: Writer, objects: S3Objects) -> None:
    task_id = await submit(http)
    artifact_id = await writer.artifact(objects, task_id, "empty", b"")
    answer = await http.get(f"/v1/artifacts/{artifact_id}/content")
    assert (answer.status_code, answer.content) == (200, b"")


async def test_bytes_that_are_gone_are_a_problem_not_half_an_answer(
    http: httpx.AsyncClient, writer: Writer, objects: S3Objects
) -> None:
    task_id = await submit(http)
    artifact_id = await writer.lost_artifact(task_id)
    answer = await http.get(f"/v1/artifacts/{artifact_id}/content")
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
