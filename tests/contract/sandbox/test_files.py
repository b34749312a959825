"""Files: done once, never outside."""

import os
from collections.abc import AsyncIterator

import pytest

from agents.contracts.errors import ErrorCode, Fenced, LonghaulError
from agents.contracts.sandbox import EditFile, ReadFile, Trait, WriteFile
from services.sandbox.client import RunnerClient
from tests.contract.sandbox.runner import Box, RunnerProcess, make_box, new_key, owner, stream

E = ErrorCode


def write(path: str, content: str, *, key: str | None = None, fence: int = 1) -> WriteFile:
    return WriteFile(key=key or new_key(), owner=owner(fence), path=path, content=content)


def edit(path: str, old: str, new: str, *, key: str | None = None) -> EditFile:
    return EditFile(key=key or new_key(), owner=owner(), path=path, old=old, new=new)


async def fault(awaitable: object) -> ErrorCode:
    with pytest.raises(LonghaulError) as caught:
        await awaitable  # type: ignore[misc]
    return caught.value.code


async def test_write_read_and_what_a_command_sees(box: Box) -> None:
    change = await box.client.write_file(box.id, write("a/b/c.txt", "one\ntwo\nthree\n"))
    assert (change.path, change.bytes, change.created) == ("a/b/c.txt", 14, True)
    assert (
        await box.out("sha256sum a/b/c.txt | cut -d' ' -f1; find a/b/c.txt a -maxdepth 0 -printf '%u\\n'")
        == f"{change.sha256}\nuser\nuser\n"
    )
    text = await box.client.read_file(box.id, ReadFile(path="/workspace/a/b/c.txt", offset=2, limit=1))
    assert (text.text, text.total_lines, text.total_bytes, text.truncated) == ("two\n", 3, 14, True)
    assert not (await box.client.write_file(box.id, write("a/b/c.txt", "x"))).created


async def test_a_repeated_write_or_edit_does_nothing_and_answers_the_same(box: Box) -> None:
    first, second = write("a.txt", "old text"), edit("a.txt", "old", "new")
    wrote, edited = await box.client.write_file(box.id, first), await box.client.edit_file(box.id, second)
    await box.out("echo later >> a.txt")
    assert await box.client.write_file(box.id, first) == wrote
    assert await box.client.edit_file(box.id, second) == edited
    assert await box.out("cat a.txt") == "new textlater\n"


async def test_a_key_used_for_another_change_is_refused(box: Box) -> None:
    key = new_key()
    await box.client.write_file(box.id, write("a.txt", "a", key=key))
    assert await fault(box.client.write_file(box.id, write("a.txt", "b", key=key))) is E.VALIDATION_FAILED


async def test_edits_that_do_not_fit(box: Box) -> None:
    await box.client.write_file(box.id, write("a.txt", "aaa b aaa"))
    assert await fault(box.client.edit_file(box.id, edit("a.txt", "zzz", "y"))) is E.EDIT_NO_MATCH
    assert await fault(box.client.edit_file(box.id, edit("a.txt", "", "y"))) is E.EDIT_NO_MATCH
    assert await fault(box.client.edit_file(box.id, edit("a.txt", "aaa", "y"))) is E.EDIT_AMBIGUOUS
    assert await fault(box.client.edit_file(box.id, edit("a.txt", "aa", "y"))) is E.EDIT_AMBIGUOUS
    assert await fault(box.client.edit_file(box.id, edit("b.txt", "aa", "y"))) is E.FILE_NOT_FOUND
    assert await box.out("cat a.txt") == "aaa b aaa"


async def test_modes_are_kept_and_links_inside_are_followed(box: Box) -> None:
    await box.out("mkdir d; echo echo old > d/run.sh; chmod 755 d/run.sh; ln -s d/run.sh link")
    await box.client.edit_file(box.id, edit("link", "old", "new"))
    assert await box.out("./link; test -L link && find d/run.sh -printf '%m\\n'") == "new\n755\n"


ESCAPES = (
    "/etc/passwd",
    "../x",
    "a/../../x",
    "out/passwd",
    "out_file",
    "/workspace/../etc/passwd",
    "deep/up/etc/passwd",
)


async def test_no_path_leads_out(box: Box) -> None:
    await box.out("ln -s /etc out; ln -s /etc/passwd out_file; mkdir deep; ln -s ../../../../.. deep/up")
    client = box.client
    for path in ESCAPES:
        assert await fault(client.read_file(box.id, ReadFile(path=path))) is E.PATH_ESCAPE, path
        assert await fault(client.write_file(box.id, write(path, "x"))) is E.PATH_ESCAPE, path
        assert await fault(client.edit_file(box.id, edit(path, "root", "x"))) is E.PATH_ESCAPE, path
        assert await fault(client.put_file(box.id, new_key(), owner(), path, stream(b"x"))) is E.PATH_ESCAPE, path
        assert await fault(_collect(client.get_file(box.id, path))) is E.PATH_ESCAPE, path


async def test_what_is_no_file_never_hangs(box: Box) -> None:
    await box.out(
        "mkfifo pipe; mkdir folder; ln -s nowhere dangling; ln -s loop loop; touch closed; chmod 0 closed; "
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\""
    )
    own_kernel = Trait.OWN_KERNEL in (await box.client.capabilities()).traits
    unseen = {("pipe", E.FILE_NOT_FOUND), ("sock", E.FILE_NOT_FOUND)}  # they are in that kernel alone
    expected = {
        "pipe": E.NOT_A_FILE,
        "folder": E.NOT_A_FILE,
        "sock": E.NOT_A_FILE,
        "dangling": E.FILE_NOT_FOUND,
        "loop": E.PATH_ESCAPE,
        "closed": E.PERMISSION_DENIED,
        "none": E.FILE_NOT_FOUND,
        ".": E.NOT_A_FILE,
        "closed/x": E.FILE_NOT_FOUND,
        "x" * 300: E.INVALID_ARGUMENTS,
        "": E.INVALID_ARGUMENTS,
    }
    for path, code in expected.items():
        found = await fault(box.client.read_file(box.id, ReadFile(path=path)))
        assert found is code or (own_kernel and (path, found) in unseen), path
    assert await fault(box.client.write_file(box.id, write("folder", "x"))) is E.NOT_A_FILE
    await box.out("mkdir shut; chmod 555 shut")
    assert await fault(box.client.write_file(box.id, write("shut/a", "x"))) is E.PERMISSION_DENIED


async def test_a_file_too_large_to_read(box: Box) -> None:
    await box.out("truncate -s 40M large; truncate -s 1025M huge")
    assert await fault(box.client.read_file(box.id, ReadFile(path="large"))) is E.FILE_TOO_LARGE
    assert await fault(_collect(box.client.get_file(box.id, "huge"))) is E.FILE_TOO_LARGE


async def test_large_files_stream_both_ways(box: Box) -> None:
    data = os.urandom(1 << 20) * 24
    key = new_key()
    for _ in range(2):
        await box.client.put_file(box.id, key, owner(), "d/large.bin", stream(data, 1 << 20))
    assert await _collect(box.client.get_file(box.id, "d/large.bin")) == data


async def test_listing_is_in_order_without_git_and_links(box: Box) -> None:
    await box.out("mkdir -p b/.git a; echo 1 > b/.git/x; echo 12 > b/z; echo 1 > a/y; echo 1 > c; ln -s c d; mkfifo p")
    found, total = await box.client.list_files(box.id, 2)
    assert [(entry.path, entry.bytes) for entry in found] == [("a/y", 2), ("b/z", 3)]
    assert total == 3


async def test_lower_fences_are_refused_before_anything_is_done(box: Box) -> None:
    await box.client.announce(box.id, owner(4))
    with pytest.raises(Fenced):
        await box.client.write_file(box.id, write("a.txt", "zombie", fence=3))
    with pytest.raises(Fenced):
        await box.client.put_archive(box.id, new_key(), owner(3), stream(b"x"))
    with pytest.raises(Fenced):
        await box.client.kill_all(box.id, owner(3))
    with pytest.raises(Fenced):
        await box.client.announce(box.id, owner(3))
    await box.client.announce(box.id, owner(1, agent_id="another"))
    await box.client.announce(box.id, owner(4, sandbox_fence=2))
    with pytest.raises(Fenced):
        await box.client.announce(box.id, owner(9))
    with pytest.raises(Fenced):
        await box.run("touch b.txt")
    assert await box.client.list_files(box.id, 10) == ([], 0)


async def test_a_full_copy_of_a_busy_tree_is_exact(box: Box, client: RunnerClient, runner: RunnerProcess) -> None:
    await box.out(
        "mkdir -p d/e; echo x > d/e/f; chmod 750 d; chmod 741 d/e/f; ln -s e/f d/l; ln -s /etc/passwd out; "
        "touch -d 2001-02-03 d/e/f d/e; mkfifo p; mkdir ro; echo 1 > ro/a; chmod 555 ro"
    )
    look = "find . -not -name p -printf '%p %y %m %l %TY%Tm%Td\\n' | grep -v '^\\. ' | sort"
    copy = await make_box(client, copy_of=box.id)
    assert await copy.out(look) == await box.out(look)
    await copy.out("echo changed > d/e/f; touch here")
    assert await box.out("cat d/e/f; ls here 2>/dev/null || echo apart") == "x\napart\n"
    await client.destroy(copy.id)


async def _collect(stream_: AsyncIterator[bytes]) -> bytes:
    return b"".join([data async for data in stream_])
