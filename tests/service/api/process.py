"""The API as its own process, as it really runs."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
from pydantic import SecretStr

from services.settings import Settings

CHECKOUT = Path(__file__).parents[3]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def environment(settings: Settings) -> dict[str, str]:
    """The settings as the variables that make them."""
    values = {name: getattr(settings, name) for name in Settings.model_fields}
    plain = {n: v.get_secret_value() if isinstance(v, SecretStr) else str(v) for n, v in values.items()}
    return {f"LONGHAUL_{name.upper()}": value for name, value in plain.items()}


class ApiProcess:
    """`start`, `term`, `kill`, and start again on the same port."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self.settings = settings.model_copy(update={"api_port": free_port()})
        self.url = f"http://127.0.0.1:{self.settings.api_port}"
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process
        return self._process.pid

    def start(self, extra: Mapping[str, str] | None = None) -> "ApiProcess":
        """Start it and wait until it answers."""
        env = {**os.environ, **environment(self.settings), "PYTHONFAULTHANDLER": "1", **(extra or {})}
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "services.api.main"]
            self._process = subprocess.Popen(command, cwd=CHECKOUT, env=env, stderr=log, stdout=log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if httpx.get(f"{self.url}/healthz", timeout=2).status_code == 200:
                    return self
            except httpx.TransportError:
                time.sleep(0.05)
        self.stop()
        raise AssertionError(f"the API did not start: {self.log.read_text()[-2_000:]}")

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process
        self._process.kill()
        self._process.wait(10)

    def term(self) -> tuple[int, float]:
        """SIGTERM; the exit code, and the seconds it took."""
        assert self._process
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(20), time.monotonic() - began

    def stop(self) -> None:
        """However it is."""
        if self._process and self._process.poll() is None:
            self.kill()
