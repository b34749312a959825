"""Which addresses are public: the others belong to the host, its network or its cloud, and no sandbox reaches them."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from agents.contracts.network import exact_host

Address = IPv4Address | IPv6Address
Judge = Callable[[str, Address], bool]
"""Whether a host of this name may be connected to at this address."""

_CARRIES_ANOTHER = (
    IPv6Network("64:ff9b::/96"),  # NAT64, RFC 6052
    IPv6Network("64:ff9b:1::/48"),  # NAT64 for local use, RFC 8215
    IPv6Network("2002::/16"),  # 6to4, RFC 3056
    IPv6Network("2001::/32"),  # Teredo, RFC 4380
    IPv6Network("::/96"),  # IPv4-compatible, RFC 4291
)
"""IPv6 ranges that carry an IPv4 address inside, which may be a private one: refused whole."""


def public(address: Address) -> bool:
    """Whether an address is reachable on the whole internet and means one host."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return public(address.ipv4_mapped)
        if any(address in network for network in _CARRIES_ANOTHER):
            return False
    return address.is_global and not address.is_multicast


async def resolve(host: str, port: int) -> list[Address]:
    """The addresses of a name, as the host sees them; empty where there is none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [ip_address(where[0]) for *_, where in found if isinstance(where[0], str) and "%" not in where[0]]


class Hosts:
    """Names as this host resolves them, only to public addresses. `private` are exceptions that an operator made: exact
    names that may lead into a network of ours, with their address where it is fixed."""

    def __init__(self, private: Mapping[str, Address | None] | None = None) -> None:
        self._private = private or {}

    async def resolve(self, host: str, port: int) -> list[Address]:
        """The addresses of a name; empty where there is none."""
        fixed = self._private.get(host)
        return [fixed] if fixed is not None else await resolve(host, port)

    def judge(self, host: str, address: Address) -> bool:
        """Whether it may be connected to there. Link-local addresses, where clouds keep their secrets, never."""
        plain = (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
        odd = plain.is_link_local or plain.is_multicast or plain.is_unspecified
        return public(address) or (host in self._private and not odd)


def private_hosts(text: str) -> dict[str, Address | None]:
    """``name`` or ``name=address``, with commas between.

    Raises:
        ValueError: a name or an address is none.
    """
    found: dict[str, Address | None] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, equals, address = item.partition("=")
        found[exact_host(name)] = ip_address(address.strip()) if equals else None
    return found
