"""The operator's file of credentials: read whole or refused, and never shown."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.sandbox.egress.credentials import Credentials, read_credentials

SECRET = "Bearer kept-4711"
GOOD = {"API.example.org": {"headers": {"Authorization": SECRET, "X-Team": "a b"}, "tenants": ["ann"]}}


def written(folder: Path, content: Any, mode: int = 0o600) -> Path:
    path = folder / "credentials.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(mode)
    return path


def test_a_credential_is_for_its_host_and_its_tenants(tmp_path: Path) -> None:
    read = read_credentials(written(tmp_path, GOOD))
    assert read.of("ann") == {"api.example.org": ((b"Authorization", SECRET.encode()), (b"X-Team", b"a b"))}
    assert read.of("bob") == {}
    everyone = read_credentials(written(tmp_path, {"a.org": {"headers": {"A": "b"}}}))
    assert everyone.of("bob") == {"a.org": ((b"A", b"b"),)}


def test_without_a_file_there_are_none() -> None:
    assert read_credentials(None) == Credentials()


def test_it_is_not_shown(tmp_path: Path) -> None:
    read = read_credentials(written(tmp_path, GOOD))
    assert "4711" not in repr(read) + str(read) + read.model_dump_json()


@pytest.mark.parametrize(
    "content",
    [
        "no json " + SECRET,
        {"a.org": {"headers": {}}},
        {"a.org": {"header": {"Authorization": SECRET}}},
        {"a.org": {"headers": {"Authorization": SECRET + "\r\nX: y"}}},
        {"a.org": {"headers": {"Authori zation": SECRET}}},
        {"a.org": {"headers": {"Authorization": ""}}},
        {"*.a.org": {"headers": {"Authorization": SECRET}}},
        {"a.org:8443": {"headers": {"Authorization": SECRET}}},
        {"10.0.0.1": {"headers": {"Authorization": SECRET}}},
        {"a.org": {"headers": {"Authorization": [SECRET]}}},
        [SECRET],
    ],
)
def test_a_file_that_is_wrong_is_refused_without_showing_it(tmp_path: Path, content: Any) -> None:
    with pytest.raises(ValueError, match=r"credentials\.json") as caught:
        read_credentials(written(tmp_path, content))
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_one_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="chmod 600"):
        read_credentials(written(tmp_path, GOOD, 0o644))
    with pytest.raises(ValueError, match="cannot be read"):
        read_credentials(tmp_path / "none")
