"""Checkpoints over REST: listed, looked into, read and compared without a sandbox."""

import os

import httpx
import pytest

from services.client.blocking import Client
from services.objects.s3 import S3Objects
from services.snapshots.s3 import S3Shelf
from tests.service.api.world import Tenant, Writer, submit


async def test_a_checkpoint_is_listed_and_looked_into_by_pages(
    http: httpx.AsyncClient, writer: Writer, objects: S3Objects
) -> None:
    task_id = await submit(http)
    assert (await http.get(f"/v1/tasks/{task_id}/checkpoints")).json() == []
    first = await writer.checkpoint(objects, task_id, {"a.txt": b"one", "b/c.txt": b"two", "ünï cödé.txt": b"x"})
    second = await writer.checkpoint(objects, task_id, {"a.txt": b"one"}, round_no=2)
    found = (await http.get(f"/v1/tasks/{task_id}/checkpoints")).json()
    assert [one["id"] for one in found] == [first, second]
    assert (found[0]["step_id"], found[0]["round"], found[0]["files"], found[0]["links"]) == ("fix", 1, 4, 1)
    assert [(row["matter"], row["clean"], row["count"]) for row in found[0]["state"]["rows"]] == [("outside", False, 2)]
    paths, after = [], ""
    while after is not None:
        page = (
            await http.get(f"/v1/tasks/{task_id}/checkpoints/{first}/files", params={"limit": 2, "after": after})
        ).json()
        paths += [(entry["path"], entry["kind"]) for entry in page["data"]]
        after = page["next_after"]
    assert paths == [
        ("a.txt", "file"),
        ("b", "folder"),
        ("b/c.txt", "file"),
        ("empty", "folder"),
        ("empty/x", "file"),
        ("link", "link"),
        ("ünï cödé.txt", "file"),
    ]


async def test_a_file_is_read_whole_and_in_part(http: httpx.AsyncClient, writer: Writer, objects: S3Objects) -> None:
    task_id, data = await submit(http), os.urandom(3_000_000)
    checkpoint = await writer.checkpoint(objects, task_id, {"deep/large.bin": data, "rép ort?.txt": b"text"})
    path = f"/v1/tasks/{task_id}/checkpoints/{checkpoint}/files"
    whole = await http.get(f"{path}/deep/large.bin")
    assert (whole.status_code, whole.content) == (200, data)
    part = await http.get(f"{path}/deep/large.bin", headers={"Range": "bytes=1500000-1500009"})
    assert (part.status_code, part.content) == (206, data[1_500_000:1_500_010])
    assert part.headers["content-range"] == "bytes 1500000-1500009/3000000"
    assert (await http.get(f"{path}/r%C3%A9p%20ort%3F.txt")).content == b"text"
    assert (await http.get(f"{path}/empty/x")).content == b""
    beyond = await http.get(f"{path}/deep/large.bin", headers={"Range": "bytes=3000000-"})
    assert beyond.status_code == 416


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("nothing", 404, "FILE_NOT_FOUND"),
        ("empty", 422, "NOT_A_FILE"),
        ("link", 422, "NOT_A_FILE"),
        ("link/passwd", 404, "FILE_NOT_FOUND"),
        ("%2e%2e/%2e%2e/etc/passwd", 404, "FILE_NOT_FOUND"),
        ("%00", 404, "FILE_NOT_FOUND"),
    ],
)
async def test_what_is_no_file_says_so(
    http: httpx.AsyncClient, writer: Writer, objects: S3Objects, path: str, status: int, code: str
) -> None:
    task_id = await submit(http)
    checkpoint = await writer.checkpoint(objects, task_id, {})
    answer = await http.get(f"/v1/tasks/{task_id}/checkpoints/{checkpoint}/files/{path}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_a_checkpoint_is_compared_with_the_one_before_or_another(
    http: httpx.AsyncClient, writer: Writer, objects: S3Objects
) -> None:
    task_id = await submit(http)
    rounds = [{"a": b"1", "b": b"1"}, {"a": b"2", "b": b"1"}, {"a": b"2", "c": b"1"}]
    ids = [await writer.checkpoint(objects, task_id, files, n) for n, files in enumerate(rounds, 1)]
    path = f"/v1/tasks/{task_id}/checkpoints"

    async def changes(of: str, **query: str | int) -> list[tuple[str, str]]:
        body = (await http.get(f"{path}/{of}/diff", params=query)).json()
        assert body["after"] == of
        return [(change["path"], change["change"]) for change in body["data"]]

    assert [name for name, _ in await changes(ids[0])] == ["a", "b", "empty", "empty/x", "link"]
    assert await changes(ids[1]) == [("a", "changed")]
    assert await changes(ids[2]) == [("b", "removed"), ("c", "added")]
    assert await changes(ids[2], since=ids[0]) == [("a", "changed"), ("b", "removed"), ("c", "added")]
    assert await changes(ids[2], since=ids[2]) == []
    cut = (await http.get(f"{path}/{ids[2]}/diff", params={"since": ids[0], "limit": 1})).json()
    assert (len(cut["data"]), cut["total"]) == (1, 3)
    assert (await http.get(f"{path}/{ids[2]}/diff", params={"since": "chk_00000000"})).status_code == 404


async def test_one_that_is_damaged_says_so(
    http: httpx.AsyncClient, writer: Writer, objects: S3Objects, tenant: Tenant
) -> None:
    task_id = await submit(http)
    checkpoint = await writer.checkpoint(objects, task_id, {"a": b"1"})
    shelf = S3Shelf(objects.bucket, tenant.id)
    for part in list(shelf.names("packs/")):
        shelf.delete(part.name)
    answer = await http.get(f"/v1/tasks/{task_id}/checkpoints/{checkpoint}/files")
    assert (answer.status_code, answer.json()["code"]) == (500, "SNAPSHOT_FAILED")
    assert "earlier" in answer.json()["detail"]
    for part in list(shelf.names("manifests/")):
        shelf.delete(part.name)
    answer = await http.get(f"/v1/tasks/{task_id}/checkpoints/{checkpoint}/files/a")
    assert (answer.status_code, answer.json()["code"]) == (404, "SNAPSHOT_NOT_FOUND")


async def test_the_client_has_them(http: httpx.AsyncClient, writer: Writer, objects: S3Objects, tenant: Tenant) -> None:
    task_id = await submit(http)
    checkpoint = await writer.checkpoint(objects, task_id, {"a b?.txt": b"one"})
    with Client(tenant.url, tenant.key) as client:
        assert [one.id for one in client.checkpoints(task_id)] == [checkpoint]
        assert client.checkpoint_files(task_id, checkpoint, limit=1).next_after == "a b?.txt"
        assert client.checkpoint_file(task_id, checkpoint, "a b?.txt") == b"one"
        assert client.checkpoint_diff(task_id, checkpoint).total == 4
