"""Uploaded tars: unpacked once and never outside."""

import tarfile

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from tests.contract.sandbox.runner import Box, member, new_key, owner, stream, tar

E = ErrorCode


async def put(box: Box, data: bytes, key: str | None = None) -> None:
    await box.client.put_archive(box.id, key or new_key(), owner(), stream(data))


@pytest.mark.parametrize("mode", ["w", "w:gz"])
async def test_files_folders_and_links(box: Box, mode: str) -> None:
    data = tar(
        member("repo", kind=tarfile.DIRTYPE),
        member("repo/a.txt", b"hello\n"),
        member("repo/sub/b.txt", b"there\n"),
        member("repo/link", kind=tarfile.SYMTYPE, to="sub/b.txt"),
        member("repo/hard", kind=tarfile.LNKTYPE, to="repo/a.txt"),
        mode=mode,
    )
    key = new_key()
    await put(box, data, key)
    assert await box.out("cd repo; cat a.txt link hard; find a.txt -printf '%u\\n'") == "hello\nthere\nhello\nuser\n"
    await box.out("echo changed > repo/a.txt")
    await put(box, data, key)
    assert await box.out("cat repo/a.txt") == "changed\n", "a repeat does nothing"


BAD = {
    "absolute": ([member("/etc/x", b"x")], E.PATH_ESCAPE),
    "slip": ([member("a/../../x", b"x")], E.PATH_ESCAPE),
    "link out": ([member("l", kind=tarfile.SYMTYPE, to="/etc")], E.PATH_ESCAPE),
    "link up": ([member("d/l", kind=tarfile.SYMTYPE, to="../../x")], E.PATH_ESCAPE),
    "hard link out": ([member("l", kind=tarfile.LNKTYPE, to="../x")], E.PATH_ESCAPE),
    "a name that is no text": ([member("\udcff/../../x", b"x")], E.PATH_ESCAPE),
    "device": ([member("d", kind=tarfile.CHRTYPE)], E.INVALID_ARCHIVE),
    "fifo": ([member("d", kind=tarfile.FIFOTYPE)], E.INVALID_ARCHIVE),
}


async def test_what_leads_out_is_refused_before_anything_is_written(box: Box) -> None:
    for name, (members, code) in BAD.items():
        with pytest.raises(LonghaulError) as caught:
            await put(box, tar(member("first", b"x"), *members))
        assert caught.value.code is code, name
    assert await box.out("ls -A") == ""


NESTED = tar(*[member("x", b"9 path=a\n", kind=tarfile.XHDTYPE)] * 3_000, member("f"))
NO_ARCHIVE = (b"", b"no tar at all" * 100, b"\x1f\x8b\x08\x00broken", tar(member("a", b"x" * 9999))[:60], NESTED)


async def test_what_is_no_archive(box: Box) -> None:
    for data in NO_ARCHIVE:
        with pytest.raises(LonghaulError) as caught:
            await put(box, data)
        assert caught.value.code is E.INVALID_ARCHIVE, data
    assert await box.out("ls -A") == ""


async def test_a_link_that_is_there_already_is_not_written_through(box: Box) -> None:
    await box.out("mkdir real; ln -s /tmp out; ln -s real in; ln -s /tmp/file f")
    with pytest.raises(LonghaulError) as caught:
        await put(box, tar(member("out/x", b"x")))
    assert caught.value.code is E.PATH_ESCAPE
    with pytest.raises(LonghaulError) as caught:
        await put(box, tar(member("in/x", b"x")))
    assert caught.value.code is E.PATH_ESCAPE
    await put(box, tar(member("f", b"replaced")))
    assert await box.out("cat f; test -L f || echo file") == "replacedfile\n"


async def test_a_bomb_is_refused(box: Box) -> None:
    header = tarfile.TarInfo("bomb")
    header.size = 3 << 30
    with pytest.raises(LonghaulError) as caught:
        await put(box, header.tobuf())
    assert caught.value.code is E.INVALID_ARCHIVE


async def test_an_absurd_header_is_refused_before_it_is_read(box: Box) -> None:
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 1 << 30
    with pytest.raises(LonghaulError) as caught:
        await put(box, header.tobuf())
    assert caught.value.code is E.INVALID_ARCHIVE
