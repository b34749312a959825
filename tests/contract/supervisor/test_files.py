"""Files through the supervisor: beneath the workspace, whole or not at all."""

import os
import struct

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.files import Kind
from services.sandbox.supervised.messages import text
from services.sandbox.supervised.protocol import Message
from tests.contract.supervisor.box import Sandbox, finish, sh


async def test_what_is_written_is_read(client: Supervisor) -> None:
    data = os.urandom(700_000)
    assert await client.files.write("deep/er/a.bin", data, parents=True, mode=0o640)
    assert await client.files.read("deep/er/a.bin") == data
    assert await client.files.read("deep/er/a.bin", 1000, 200_000) == data[1000:201_000]
    assert await client.files.read("deep/er/a.bin", 699_999) == data[-1:]
    assert await client.files.read("deep/er/a.bin", 700_000) == b""
    assert not await client.files.write("deep/er/a.bin", b"")
    stat = await client.files.stat("deep/er/a.bin")
    assert (stat.kind, stat.mode, stat.size) == (Kind.FILE, 0o644, 0)
    assert [one.name async for one in client.files.list("deep/er")] == ["a.bin"]


async def test_a_file_is_its_commands_own(client: Supervisor) -> None:
    await client.files.write("script", b"#!/bin/sh\necho ran; echo more >> script", mode=0o755)
    assert (await finish(client, sh("a", "./script")))[0].exit_code == 0
    assert b"echo more" in await client.files.read("script")
    _, out, _ = await finish(client, sh("b", "test $(stat -c %u script) = $(id -u) && echo mine"))
    assert out == b"mine\n"


async def test_folders_moves_and_removals(client: Supervisor) -> None:
    await client.files.mkdir("a/b/c", parents=True)
    await client.files.mkdir("a/b/c", parents=True)
    await client.files.write("a/one", b"1")
    await client.files.write("a/two", b"2")
    await client.files.move("a/one", "a/b/moved")
    assert await client.files.read("a/b/moved") == b"1"
    with pytest.raises(LonghaulError) as caught:
        await client.files.move("a/b/moved", "a/two", keep=True)
    assert caught.value.code is ErrorCode.NOT_A_FILE
    await client.files.move("a/b/moved", "a/two")
    assert await client.files.read("a/two") == b"1"
    for path in ("a", "a/b"):
        with pytest.raises(LonghaulError):
            await client.files.remove(path)
    await client.files.remove("a/two")
    await client.files.remove("a", recursive=True)
    assert [one async for one in client.files.list()] == []


async def test_a_long_list_comes_in_parts(client: Supervisor) -> None:
    await finish(client, sh("a", "mkdir many; cd many; seq -f 'a-name-that-is-rather-long-%05g' 1 5000 | xargs touch"))
    names = [one.name async for one in client.files.list("many")]
    assert len(names) == len(set(names)) == 5000


SLIPS = {
    "../x": ErrorCode.PATH_ESCAPE,
    "/etc/passwd": ErrorCode.PATH_ESCAPE,
    "a/../../x": ErrorCode.PATH_ESCAPE,
    "out/passwd": ErrorCode.PATH_ESCAPE,
    "file-out": ErrorCode.PATH_ESCAPE,
    "loop/x": ErrorCode.PATH_ESCAPE,
    "proc/environ": ErrorCode.PATH_ESCAPE,
    "no/such": ErrorCode.FILE_NOT_FOUND,
    "plain/x": ErrorCode.FILE_NOT_FOUND,
    "a": ErrorCode.NOT_A_FILE,
    "fifo": ErrorCode.NOT_A_FILE,
    "x" * 300: ErrorCode.INVALID_ARGUMENTS,
}
LAY = (
    "mkdir a; ln -s /etc out; ln -s /etc/passwd file-out; ln -s loop loop; ln -s /proc/1 proc; echo 1 > plain; "
    "mkfifo fifo; ln -s plain inside"
)


@pytest.mark.parametrize("path", SLIPS)
async def test_no_path_leads_out(client: Supervisor, path: str) -> None:
    await finish(client, sh("lay", LAY))
    with pytest.raises(LonghaulError) as caught:
        await client.files.read(path)
    assert caught.value.code is SLIPS[path]
    assert await client.files.read("inside") == b"1\n"


@pytest.mark.parametrize("path", ["../x", "/tmp/x", "out/x", "loop/x", "a/../../x", "proc/x"])
async def test_nothing_is_changed_outside(client: Supervisor, path: str) -> None:
    await finish(client, sh("lay", LAY))
    for change in (
        client.files.write(path, b"x"),
        client.files.write(path, b"x", parents=True),
        client.files.mkdir(path, parents=True),
        client.files.move("plain", path),
        client.files.remove(path),
        client.files.remove(path, recursive=True),
    ):
        with pytest.raises(LonghaulError):
            await change
    assert await client.files.read("plain") == b"1\n"


async def test_links_are_removed_and_replaced_never_followed_out(client: Supervisor) -> None:
    await finish(client, sh("lay", LAY + "; mkdir tree; ln -s /workspace/a tree/a; touch a/kept"))
    await client.files.remove("tree", recursive=True)
    assert (await client.files.stat("a/kept")).kind is Kind.FILE
    assert (await client.files.stat("file-out")).kind is Kind.LINK
    await client.files.write("file-out", b"mine")
    assert (await client.files.stat("file-out")).kind is Kind.FILE


async def test_a_race_of_links_never_leads_out(client: Supervisor) -> None:
    flip = "mkdir real; echo inside > real/passwd; while :; do ln -sfn /etc way; ln -sfn real way; done"
    racing = await client.start(sh("race", flip, timeout_s=30))
    read, refused = set(), set()
    for _ in range(400):
        try:
            read.add(await client.files.read("way/passwd"))
        except LonghaulError as error:
            refused.add(error.code)
    await racing.kill()
    assert read <= {b"inside\n"}
    assert refused <= {ErrorCode.PATH_ESCAPE, ErrorCode.FILE_NOT_FOUND}


async def test_half_an_upload_is_not_seen_and_goes_with_its_controller(sandbox: Sandbox, client: Supervisor) -> None:
    await client._link.ask(Message.FILE_WRITE, b"\0" + text("a") + struct.pack("<IIQ", 5, 0o644, 0) + b"half")
    with pytest.raises(LonghaulError) as caught:
        await client.files.read("a")
    assert caught.value.code is ErrorCode.FILE_NOT_FOUND
    assert len(list(sandbox.workspace.iterdir())) == 1
    await client.greet(2)
    assert list(sandbox.workspace.iterdir()) == []


async def test_a_root_that_is_not_there_is_told(client: Supervisor) -> None:
    with pytest.raises(LonghaulError) as caught:
        await client.files.write("a", b"x" * 1000, root=5)
    assert caught.value.code is ErrorCode.FILE_NOT_FOUND, "there is no such root"
