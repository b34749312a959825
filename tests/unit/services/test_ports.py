"""Ports that another program has taken meanwhile."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from services.stack.errors import StackRefused
from services.stack.ports import HOST, INNER, allocate
from tests.support.apart import Apart


@pytest.fixture
def before() -> dict[str, int]:
    return allocate(0, {})


@pytest.fixture
def intruder(request: pytest.FixtureRequest, before: dict[str, int]) -> Iterator[str]:
    """Another program on the port of a name."""
    name, host = request.param
    with socket.socket() as taken:
        taken.bind((host, before[name]))
        taken.listen()
        yield name


@pytest.mark.parametrize("intruder", [(name, HOST) for name in INNER] + [("postgres", "0.0.0.0")], indirect=True)
def test_a_taken_port_is_replaced_and_the_others_stay(before: dict[str, int], intruder: str) -> None:
    now = allocate(0, before)
    assert {name for name in before if now[name] != before[name]} == {intruder}
    assert len(set(now.values())) == len(now)


@pytest.mark.parametrize("intruder", [("api", HOST)], indirect=True)
def test_the_apis_own_port_is_refused_with_who_has_it(before: dict[str, int], intruder: str) -> None:
    with pytest.raises(StackRefused, match=rf"Port {before['api']} .* is in use by process \d+") as caught:
        allocate(before["api"], before)
    assert f"--port {before['api'] + 1}" in str(caught.value)


def test_two_names_never_share_a_remembered_port() -> None:
    now = allocate(0, dict.fromkeys(INNER, 23_456))
    assert len(set(now.values())) == len(now)


@pytest.mark.parametrize(("loopback", "words"), [(False, "Nothing can be reached on 127.0.0.1"), (True, "allocated")])
def test_a_machine_without_an_ipv4_loopback_is_told_what_to_do(loopback: bool, words: str) -> None:
    script = """
from services.stack.errors import StackRefused
from services.stack.ports import allocate
try:
    print("allocated", sorted(allocate(0, {}))[:1])
except StackRefused as refused:
    print(refused)
"""
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            preexec_fn=Apart().offline(loopback=loopback),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except subprocess.SubprocessError as error:
        pytest.skip(f"no namespaces here: {error}")
    assert done.stdout.startswith(words)
    assert ("ip addr add 127.0.0.1/8 dev lo" in done.stdout) != loopback
