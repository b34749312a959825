"""Packing a folder: what git would keep, never `.git`, bounded."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from services.cli.exits import CliError
from services.cli.pack import pack


def names(folder: Path) -> list[str]:
    with pack(folder) as archive, tarfile.open(fileobj=archive) as tar:
        assert all(m.uname == "" and m.uid == 0 for m in tar.getmembers())
        return sorted(tar.getnames())


def fill(folder: Path) -> None:
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "src" / "deep" / "a b.py").write_text("x")
    (folder / "ünïcode.txt").write_text("x")
    (folder / "build").mkdir()
    (folder / "build" / "big.bin").write_text("x")
    (folder / "link").symlink_to("src/deep")


def test_without_git_everything_is_packed(tmp_path: Path) -> None:
    fill(tmp_path)
    assert names(tmp_path) == ["build/big.bin", "link", "src/deep/a b.py", "ünïcode.txt"]


def test_in_a_checkout_ignored_files_and_the_repository_stay_here(tmp_path: Path) -> None:
    fill(tmp_path)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("build/\n")
    assert names(tmp_path) == [".gitignore", "link", "src/deep/a b.py", "ünïcode.txt"]
    assert names(tmp_path / "src") == ["deep/a b.py"]


def test_a_tracked_file_that_is_gone_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    (tmp_path / "gone").write_text("x")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "add", "-A"], check=True)
    (tmp_path / "gone").unlink()
    assert names(tmp_path) == ["kept"]


def test_what_cannot_be_sent_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no such folder"):
        pack(tmp_path / "missing")
    with pytest.raises(CliError, match="nothing to send"):
        pack(tmp_path)
    (tmp_path / "large.bin").write_bytes(b"x" * 5_000_000)
    with pytest.raises(CliError, match=r"large\.bin \(5 MB\).*\.gitignore"):
        pack(tmp_path, max_bytes=4 << 20)
