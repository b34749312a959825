"""One attack on one backend: in a fresh sandbox, with something outside that it could reach, judged from both sides."""

import secrets
import socket
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from tests.attacks.backends import Backend
from tests.attacks.catalogue import Attack
from tests.attacks.places import program

Verdict = Literal["held", "escaped", "cannot-enforce-here", "not-meant"]


@dataclass(frozen=True)
class Outcome:
    """What came of it; `said` is empty or begins with a colon."""

    verdict: Verdict
    said: str = ""


class Surroundings:
    """What stands outside the sandboxes to be reached: a server on loopback, an abstract socket, a secret in the
    environment of the runner."""

    def __init__(self) -> None:
        self.canary = f"canary-{secrets.token_hex(8)}"
        self.abstract = f"longhaul-{secrets.token_hex(4)}"
        self.reached = 0
        self._servers: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._servers = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
        self._servers[1].bind(f"\0{self.abstract}")
        self._servers[1].listen()
        for server in self._servers:
            threading.Thread(target=self._listen, args=(server,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for server in self._servers:
            server.close()

    def _listen(self, server: socket.socket) -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            self.reached += 1
            peer.close()

    @property
    def words(self) -> tuple[str, str, str]:
        """What an attack is told: ports, the abstract name, the secret it looks for."""
        return str(self._servers[0].getsockname()[1]), self.abstract, self.canary


async def attack(what: Attack, backend: Backend, around: Surroundings) -> Outcome:
    """Make a sandbox, attack, and see whether the sandbox still serves."""
    family = backend.name.split("/")[0]
    if what.needs and family not in what.needs:
        return Outcome("not-meant", ": means nothing on this backend")
    async with backend.place() as place:
        if what.limit is not None and what.limit not in place.limits:
            return Outcome("cannot-enforce-here", f": {what.limit} is refused on this host")
        reached = around.reached
        told = await place.run(program(what.program, *around.words), what.timeout_s)
        escaped = what.escaped(told)
        if around.reached != reached:
            escaped = "a server outside was reached"
        if escaped is None:
            after = await place.run(what.then, 30)
            if after.output.strip() != "alive":
                escaped = f"afterwards: {after.reason} {after.output[-200:]!r}"
    return Outcome("held") if escaped is None else Outcome("escaped", f": {escaped}")
