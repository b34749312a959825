"""What a sandbox may reach: nothing, unless hosts are named. Decided by name, before and after it is resolved."""

import re
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from agents.contracts.base import Edge, Wire

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?:\*\.)?(?:{_LABEL}\.)+[a-z][a-z0-9-]{{0,61}}[a-z0-9]")
_MAX_HOST = 253


def _host(text: str) -> str:
    host = text.strip().removesuffix(".").lower()
    if len(host) > _MAX_HOST or not _HOST.fullmatch(host):
        raise ValueError("a host is a full name like pypi.org, or *.example.org for all names below one; no address")
    return host


class HostRule(Edge):
    """A host that may be reached. ``*.example.org`` stands for every name below example.org, not for itself."""

    host: Annotated[str, AfterValidator(_host)]
    ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = (443, 80)

    def names(self, host: str) -> bool:
        """Whether a host (lower case, without a final dot) is meant."""
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) > len(self.host) - 1
        return host == self.host


class NetworkPolicy(Edge):
    """A sandbox's network; empty, as it is by default, means none."""

    allow: Annotated[tuple[HostRule, ...], Field(max_length=256)] = ()


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
    """One connection that was not made."""

    host: str
    port: int
    reason: DenialReason


def decide(policy: NetworkPolicy, host: str, port: int) -> DenialReason | None:
    """None where the policy lets a connection be made to a host of this name (the address is judged after)."""
    named = [rule for rule in policy.allow if rule.names(host.removesuffix(".").lower())]
    if not named:
        return DenialReason.HOST_NOT_ALLOWED
    return None if any(port in rule.ports for rule in named) else DenialReason.PORT_NOT_ALLOWED
