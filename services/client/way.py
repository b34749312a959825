"""The way to the API: the user's proxy for one that is elsewhere, never for one on this machine."""

from ipaddress import ip_address
from typing import TypedDict

import httpx

from services.client.errors import ClientError


class Http(TypedDict):
    """What both clients are opened with."""

    base_url: str
    headers: dict[str, str]
    trust_env: bool


def http(base_url: str, api_key: str) -> Http:
    """A proxy of the environment is asked only for an API that is not on the loopback.

    Raises:
        ClientError: `base_url` is no address.
    """
    try:
        host = httpx.URL(base_url).host
    except httpx.InvalidURL as error:
        raise ClientError(f"{base_url!r} is no address: {error}") from None
    return {"base_url": base_url, "headers": {"Authorization": f"Bearer {api_key}"}, "trust_env": not is_local(host)}


def is_local(host: str) -> bool:
    """Whether a host's name or address is this machine's loopback."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def no_way(error: Exception) -> ClientError:
    """The fault of a proxy that cannot be used (SOCKS without its package, a scheme that nobody knows)."""
    return ClientError(f"The proxy of the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) cannot be used: {error}")
