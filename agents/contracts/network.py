"""What a sandbox may reach: nothing, unless hosts are named. Decided by name, before and after it is resolved."""

import re
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from agents.contracts.base import Edge, Wire

DEFAULT_PORTS = (443, 80)
MAX_HOSTS = 64
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?:\*\.)?(?:{_LABEL}\.)+[a-z][a-z0-9-]{{0,61}}[a-z0-9]")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_MAX_HOST = 253


class HostRule(NamedTuple):
    """A host that may be reached. ``*.example.org`` stands for every name below example.org, not for itself."""

    host: str
    ports: tuple[int, ...]

    def names(self, host: str) -> bool:
        """Whether a host (lower case, without a final dot) is meant."""
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) > len(self.host) - 1
        return host == self.host


def rule_of(text: str) -> HostRule:
    """``host`` (ports 443 and 80) or ``host:port``, as written.

    Raises:
        ValueError: it is neither.
    """
    name, colon, port = text.strip().partition(":")
    host = name.removesuffix(".").lower()
    if len(host) > _MAX_HOST or not _HOST.fullmatch(host):
        raise ValueError("a host is a full name like pypi.org, or *.example.org for all names below one; no address")
    if colon and (not _PORT.fullmatch(port) or int(port) > 65_535):
        raise ValueError("behind a host comes nothing, or :PORT, as in pypi.org:443")
    return HostRule(host, (int(port),) if colon else DEFAULT_PORTS)


def exact_host(text: str) -> str:
    """One host, by its full name and without a port.

    Raises:
        ValueError: it is something else.
    """
    host, ports = rule_of(text)
    if host.startswith("*") or ports != DEFAULT_PORTS:
        raise ValueError("this has to be one host, by its full name and without a port")
    return host


def _canonical(text: str) -> str:
    host, ports = rule_of(text)
    return host if ports == DEFAULT_PORTS else f"{host}:{ports[0]}"


class NetworkPolicy(Edge):
    """A sandbox's network: the hosts that its commands may reach, by name, with a port or without (443 and 80 then).
    Empty, as it is by default, means none."""

    allow: Annotated[tuple[Annotated[str, AfterValidator(_canonical)], ...], Field(max_length=MAX_HOSTS)] = ()

    @property
    def rules(self) -> tuple[HostRule, ...]:
        """What the texts mean."""
        return tuple(rule_of(text) for text in self.allow)


class DenialReason(StrEnum):
    """Why a connection was not made."""

    HOST_NOT_ALLOWED = "host_not_allowed"
    PORT_NOT_ALLOWED = "port_not_allowed"
    PRIVATE_ADDRESS = "private_address"
    """The name is allowed, but leads to an address that is not public."""
    NOT_RESOLVED = "not_resolved"
    UNREACHABLE = "unreachable"
    BAD_REQUEST = "bad_request"
    TOO_MANY = "too_many"
    """As many connections as one sandbox may hold are open."""


class Denial(Wire):
    """A connection that was not made. `host` is what was asked for: a sandbox's words."""

    host: str
    port: int
    reason: DenialReason


def decide(rules: tuple[HostRule, ...], host: str, port: int) -> DenialReason | None:
    """None where the rules let a connection be made to a host of this name (the address is judged after)."""
    named = [rule for rule in rules if rule.names(host.removesuffix(".").lower())]
    if not named:
        return DenialReason.HOST_NOT_ALLOWED
    return None if any(port in rule.ports for rule in named) else DenialReason.PORT_NOT_ALLOWED
