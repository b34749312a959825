from ipaddress import ip_address
from pathlib import Path

import pytest
from pydantic import ValidationError

from agents.contracts.network import MAX_HOSTS, DenialReason, NetworkPolicy, decide
from services.sandbox.egress.addresses import Hosts, private_hosts, public
from services.sandbox.main import way_out_of
from services.settings import Settings

INSIDE = """
127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 255.255.255.255 224.0.0.1 198.18.0.1
192.0.2.1 240.0.0.1 ::1 :: fe80::1 fc00::1 fd00:ec2::254 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::10.0.0.1
64:ff9b::a9fe:a9fe 64:ff9b:1::1 2002:a9fe:a9fe::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1
"""
POLICY = NetworkPolicy(allow=("PyPI.org.", " *.example.org", "git.test.net:9418", "git.test.net:22"))
RULES = POLICY.rules


@pytest.mark.parametrize("host", ["pypi.org", "PYPI.ORG", "pypi.org.", "a.example.org", "a.b.example.org"])
def test_a_named_host_is_reached(host: str) -> None:
    assert decide(RULES, host, 443) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "org",
        "example.org",
        ".example.org",
        "evilexample.org",
        "pypi.org.evil.com",
        "xpypi.org",
        "1.2.3.4",
        "pypi.org..",
        "[::1]",
    ],
)
def test_every_other_host_is_not(host: str) -> None:
    assert decide(RULES, host, 443) is DenialReason.HOST_NOT_ALLOWED


def test_a_port_has_to_be_named_too() -> None:
    assert decide(RULES, "pypi.org", 22) is DenialReason.PORT_NOT_ALLOWED
    assert decide(RULES, "git.test.net", 9418) is None
    assert decide(RULES, "git.test.net", 22) is None
    assert decide(RULES, "git.test.net", 443) is DenialReason.PORT_NOT_ALLOWED


def test_by_default_there_is_no_network() -> None:
    assert decide(NetworkPolicy().rules, "pypi.org", 443) is DenialReason.HOST_NOT_ALLOWED


@pytest.mark.parametrize(
    "host",
    [
        "",
        "*",
        "*.",
        "*.org",
        "localhost",
        "10.0.0.1",
        "169.254.169.254",
        "::1",
        "a b.org",
        "http://a.org",
        "a..org",
        "a/b.org",
        "*.*.a.org",
        "a" * 250 + ".org",
        "a.org:",
        "a.org:0",
        "a.org:65536",
        "a.org:443:443",
        "a.org:https",
        "a.org:*",
        "user@a.org",
    ],
)
def test_what_is_no_full_name_is_refused(host: str) -> None:
    with pytest.raises(ValidationError):
        NetworkPolicy(allow=(host,))


def test_a_policy_is_kept_as_it_is_meant_and_is_bounded() -> None:
    kept = POLICY.model_dump(mode="json")
    assert kept == {"allow": ["pypi.org", "*.example.org", "git.test.net:9418", "git.test.net:22"]}
    assert NetworkPolicy.model_validate(kept) == POLICY
    with pytest.raises(ValidationError):
        NetworkPolicy(allow=tuple(f"a{n}.org" for n in range(MAX_HOSTS + 1)))
    with pytest.raises(ValidationError, match="Extra"):
        NetworkPolicy.model_validate({"allow": [], "deny": ["a.org"]})


@pytest.mark.parametrize("address", INSIDE.split())
def test_an_address_that_is_not_public(address: str) -> None:
    assert not public(ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "151.101.0.223", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_a_public_address(address: str) -> None:
    assert public(ip_address(address))


async def test_a_private_host_of_the_operator_s_and_no_other() -> None:
    hosts = Hosts(private_hosts("Mirror.corp.net=10.0.0.7, other.corp.net,"))
    inside, metadata = ip_address("10.0.0.7"), ip_address("169.254.169.254")
    assert await hosts.resolve("mirror.corp.net", 443) == [inside]
    assert hosts.judge("mirror.corp.net", inside)
    assert hosts.judge("other.corp.net", inside)
    assert not hosts.judge("evil.corp.net", inside)
    assert not hosts.judge("sub.mirror.corp.net", inside)
    assert not Hosts().judge("mirror.corp.net", inside)
    for address in (metadata, ip_address("fe80::1"), ip_address("::ffff:169.254.169.254"), ip_address("0.0.0.0")):
        assert not hosts.judge("mirror.corp.net", address)


@pytest.mark.parametrize(
    "wrong", ["a.org=nowhere", "a.org=", "mirror", "*.corp.net", "a.org:443", "10.0.0.7", "=10.0.0.7"]
)
def test_a_private_host_that_is_none_ends_the_runner_with_its_setting(wrong: str) -> None:
    with pytest.raises(SystemExit, match="LONGHAUL_RUNNER_PRIVATE_HOSTS: "):
        way_out_of(Settings(runner_private_hosts=wrong))


def test_credentials_that_cannot_be_read_end_the_runner_with_their_setting(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="LONGHAUL_RUNNER_CREDENTIALS_FILE: "):
        way_out_of(Settings(runner_credentials_file=tmp_path / "none"))
