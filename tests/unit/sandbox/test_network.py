from ipaddress import ip_address

import pytest
from pydantic import ValidationError

from agents.contracts.network import DenialReason, HostRule, NetworkPolicy, decide
from services.sandbox.egress.addresses import public

INSIDE = """
127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 255.255.255.255 224.0.0.1 198.18.0.1
192.0.2.1 240.0.0.1 ::1 :: fe80::1 fc00::1 fd00:ec2::254 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::10.0.0.1
64:ff9b::a9fe:a9fe 64:ff9b:1::1 2002:a9fe:a9fe::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1
"""
POLICY = NetworkPolicy(
    allow=(HostRule(host="PyPI.org."), HostRule(host="*.example.org"), HostRule(host="git.test.net", ports=(9418,)))
)


@pytest.mark.parametrize("host", ["pypi.org", "PYPI.ORG", "pypi.org.", "a.example.org", "a.b.example.org"])
def test_a_named_host_is_reached(host: str) -> None:
    assert decide(POLICY, host, 443) is None


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
    assert decide(POLICY, host, 443) is DenialReason.HOST_NOT_ALLOWED


def test_a_port_has_to_be_named_too() -> None:
    assert decide(POLICY, "pypi.org", 22) is DenialReason.PORT_NOT_ALLOWED
    assert decide(POLICY, "git.test.net", 9418) is None
    assert decide(POLICY, "git.test.net", 443) is DenialReason.PORT_NOT_ALLOWED


def test_by_default_there_is_no_network() -> None:
    assert decide(NetworkPolicy(), "pypi.org", 443) is DenialReason.HOST_NOT_ALLOWED


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
    ],
)
def test_what_is_no_full_name_is_refused(host: str) -> None:
    with pytest.raises(ValidationError):
        HostRule(host=host)


@pytest.mark.parametrize("address", INSIDE.split())
def test_an_address_that_is_not_public(address: str) -> None:
    assert not public(ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "151.101.0.223", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_a_public_address(address: str) -> None:
    assert public(ip_address(address))
