"""Which API a command talks to: the one of the environment, else the stack on the data directory."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import typer

from services.cli import exits
from services.client import Client
from services.stack.layout import DataDir


@dataclass(frozen=True)
class Access:
    """An address and a key; `data` where it is the stack of a directory on this machine."""

    url: str
    key: str
    data: DataDir | None = None

    def client(self, *, patience_s: float = 60.0) -> Client:
        """A client of its own."""
        return Client(self.url, self.key, patience_s=patience_s, waiting=self._waiting)

    def quiet_client(self, *, patience_s: float) -> Client:
        """One for a thread: whoever draws the screen tells that there is no answer."""
        return Client(self.url, self.key, patience_s=patience_s)

    def _waiting(self) -> None:
        typer.echo(f"No answer from {self.url} yet; it is tried again and again …", err=True)

    def stopped(self) -> bool:
        """Whether nothing runs there any more, as far as that can be seen from here."""
        return self.data is not None and self.data.lock_holder() is None


def local(data: DataDir) -> Access | None:
    """The stack that runs on a data directory, if one does."""
    run = data.run()
    if data.lock_holder() is None or not run.api_url:
        return None
    return Access(run.api_url, data.secrets().api_key, data)


def find(data: DataDir, environment: Mapping[str, str] = os.environ) -> Access:
    """``LONGHAUL_URL`` with ``LONGHAUL_API_KEY``; without the URL the local stack, whose key the variable may replace.

    Raises:
        CliError: there is none, or a URL without a key.
    """
    url, key = environment.get("LONGHAUL_URL", "").rstrip("/"), environment.get("LONGHAUL_API_KEY", "")
    if url and key:
        return Access(url, key)
    here = local(data)
    if url and here and url == here.url:
        return here
    if url:
        raise exits.CliError(f"LONGHAUL_URL is set to {url}, but LONGHAUL_API_KEY holds no key for it.")
    if here:
        return Access(here.url, key or here.key, data)
    raise exits.CliError(
        f"No stack runs on {data.root}.\nStart one with `longhaul up` (or see it all with `longhaul demo`), or set "
        "LONGHAUL_URL and LONGHAUL_API_KEY to use another one.",
        exits.UNREACHABLE,
    )
