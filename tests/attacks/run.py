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

ALLOWED = "allowed.test.org"
Verdict = Literal["held", "escaped", "cannot-enforce-here", "not-meant"]


@dataclass(frozen=True)
class Outcome:
    """What came of it; `said` is empty or begins with a colon."""

    verdict: Verdict
    said: str = ""


class Surroundings:
    """What stands outside the sandboxes to be reached: a server on loopback, an abstract socket, a secret in the
    environment of the runner; and a server that some of them may reach, which says ``alive``."""

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
        self._servers.append(socket.create_server(("127.0.0.1", 0), backlog=256))
        threading.Thread(target=self._serve, args=(self._servers[2],), daemon=True).start()
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

    @staticmethod
    def _serve(server: socket.socket) -> None:
        while True:
            try:
                peer, _ = server.accept()
                with peer:
                    peer.settimeout(2)
                    peer.recv(65_536)
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nalive")
            except (TimeoutError, ConnectionError):
                continue
            except OSError:
                return

    @property
    def allowed(self) -> int:
        """The port of the server that may be reached."""
        return int(self._servers[2].getsockname()[1])

    @property
    def policy(self) -> tuple[str, ...]:
        """What a sandbox with a network may reach."""
        return (f"{ALLOWED}:{self.allowed}",)

    @property
    def words(self) -> tuple[str, str, str, str]:
        """What an attack is told: ports, the abstract name, the secret it looks for, the port that is allowed."""
        return str(self._servers[0].getsockname()[1]), self.abstract, self.canary, str(self.allowed)


async def attack(what: Attack, backend: Backend, around: Surroundings) -> Outcome:
    """Make a sandbox, attack, and see whether the sandbox still serves."""
    family = backend.name.split("/")[0]
    if what.needs and family not in what.needs:
        return Outcome("not-meant", ": means nothing on this backend")
    async with backend.place(around.policy if what.network else ()) as place:
        if what.limit is not None and what.limit not in place.limits:
            return Outcome("cannot-enforce-here", f": {what.limit} is refused on this host")
        reached = around.reached
        told = await place.run(program(what.program, *around.words), what.timeout_s)
        escaped = what.escaped(told)
        if around.reached != reached:
            escaped = "a server outside was reached"
        if escaped is None:
            after = await place.run(what.then.replace("ALLOWED", str(around.allowed)), 30)
            if after.output.strip() != "alive":
                escaped = f"afterwards: {after.reason} {after.output[-200:]!r}"
    return Outcome("held") if escaped is None else Outcome("escaped", f": {escaped}")
