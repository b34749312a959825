"""A terminal that knows ASCII only, and names that are not ASCII."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from services.cli.pack import pack
from services.stack.layout import CHECKOUT

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_a_name_is_the_same_name_under_an_ascii_locale(tmp_path: Path) -> None:
    root = tmp_path / "dätä"
    root.mkdir()
    (root / "meta.json").write_text('{"longhaul": "0.1.0"}')
    argv = [sys.executable, "-m", "services.cli.main", "status", "--json", "--data-dir", os.fspath(root)]
    env = {"PATH": os.environ["PATH"], **ASCII}
    done = subprocess.run(argv, cwd=CHECKOUT, env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr, done.stderr
    assert json.loads(done.stdout.decode("utf-8"))["data_dir"] == os.fspath(root)


@pytest.mark.parametrize("name", ["größe.txt".encode(), b"gr\xf6\xdfe.txt", "日本.txt".encode()])
def test_any_name_is_sent_as_it_is(tmp_path: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"\xff\xfe")
    with pack(tmp_path) as packed, tarfile.open(fileobj=packed) as tar:
        (member,) = tar.getmembers()
        assert os.fsencode(member.name) == name
        content = tar.extractfile(member)
        assert content
        assert content.read() == b"\xff\xfe"
