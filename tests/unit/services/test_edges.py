"""Bad addresses, shared folders, logs on a full disk: refused or survived, in words that give nothing away."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import typer

from agents.contracts.errors import ErrorCode, LonghaulError
from services.cli import exits
from services.inference.endpoints import Endpoint, endpoint_for
from services.settings import Settings
from services.stack.errors import StackRefused
from services.stack.layout import DataDir
from services.stack.logs import rotate


@pytest.mark.parametrize("url", ["http://h:99999/v1", "http://h:x/v1", "http://[::1", "ftp://h/v1", "h:80", ""])
def test_what_is_no_address_is_refused_with_a_code(url: str) -> None:
    with pytest.raises(LonghaulError) as caught:
        endpoint_for(Settings(model_base_url=url, model_full="m"), "full")
    assert caught.value.code is ErrorCode.ENGINE_REFUSED


def test_an_address_is_shown_without_its_password() -> None:
    url = "http://user:hunter22@[::1]:8000/v1"
    assert Endpoint(url, "m", "").shown == "http://[::1]:8000/v1"
    with pytest.raises(LonghaulError) as caught:
        endpoint_for(Settings(model_base_url=url), "full")
    assert "hunter22" not in caught.value.detail


def test_a_shared_folder_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(StackRefused):
        DataDir(tmp_path).prepare()
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize("full", [False, True])
def test_a_long_log_is_cut_even_where_no_copy_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = tmp_path / "api.log"
    log.write_bytes(b"x" * 100)
    if full:
        monkeypatch.setattr(shutil, "copyfile", no_space)
    rotate(tmp_path, 50)
    assert log.stat().st_size == 0
    assert (tmp_path / "api.log.1").exists() is not full


def test_a_file_that_cannot_be_read_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, exits.guarded():
        Path("/nowhere").read_bytes()
    assert caught.value.exit_code == exits.USAGE
    assert "No such file or directory: '/nowhere'" in capsys.readouterr().err
