"""A proxy of the environment never comes between us and our own machine."""

import pytest

from services.client import AsyncClient, Client, ClientError
from services.client.way import http, is_local

PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "api.localhost"])
def test_the_loopback_needs_no_proxy(host: str) -> None:
    assert is_local(host)
    assert http(f"http://[{host}]:1" if ":" in host else f"http://{host}:1", "k")["trust_env"] is False


def test_others_may_have_one() -> None:
    assert http("https://longhaul.example.com", "k")["trust_env"] is True


def test_a_proxy_that_cannot_be_used_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")
    Client("http://127.0.0.1:1", "k").close()
    for kind in (Client, AsyncClient):
        with pytest.raises(ClientError, match="ALL_PROXY"):
            kind("https://longhaul.example.com", "k")


def test_nonsense_is_a_message() -> None:
    with pytest.raises(ClientError, match="no address"):
        Client("http://[::1", "k")
