"""A real stack for tests: started by the real launcher in a process of its own, on its own directory and free ports."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from services.settings import Settings
from services.stack import ours
from services.stack.layout import CHECKOUT, DataDir, Secrets, default_data_dir
from services.stack.servers.context import Context
from services.stack.status import StackStatus, UnitStatus, report

_STARTS_WITHIN_S = 90.0
_STOPS_WITHIN_S = 45.0


def new_data_dir(name: str = "data") -> Path:
    """A directory that, as root, the users of database and sandboxes can pass through (pytest's own are private)."""
    outer = Path(tempfile.mkdtemp(prefix="lh-test-"))
    outer.chmod(0o755)
    return outer / name


class Stack:
    """One running stack. `env` is added to the launcher's environment."""

    def __init__(
        self,
        root: Path,
        *,
        env: Mapping[str, str] | None = None,
        arguments: Sequence[str] = ("--port", "0"),
        user: int | None = None,
        python: str = sys.executable,
    ) -> None:
        """Describes it; `start` starts it. `user` is a uid to start it as."""
        self.data = DataDir(root)
        self.output = root.parent / (root.name + ".out")
        self._arguments = arguments
        self._env = _clean_environment() | dict(env or {})
        self._user = user
        self._python = python
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Stack":
        """Start it and wait until it is ready; raises with what it printed where it is not."""
        self.launch()
        self.wait(lambda: self.report().ready, _STARTS_WITHIN_S, "the stack is up")
        return self

    def launch(self) -> None:
        """Start the launcher only."""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [self._python, "-m", "services.cli.main", "up", "--data-dir", str(self.data.root), *self._arguments],
                cwd=CHECKOUT,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                user=self._user,
                group=self._user,
                extra_groups=[] if self._user else None,
                preexec_fn=_stop_with_the_tests,
            )

    def wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for something while the launcher lives."""
        assert self.process
        deadline = time.monotonic() + seconds
        while not condition():
            code = self.process.poll()
            assert code is None, f"the launcher ended with status {code} before {what}:\n{self.said()}"
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{self.said()}\n{self.report()}"
            time.sleep(0.05)

    def said(self) -> str:
        """Everything the launcher printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def report(self) -> StackStatus:
        """As ``longhaul status``."""
        return report(self.data)

    def unit(self, name: str) -> UnitStatus:
        """One process."""
        return next(unit for unit in self.report().units if unit.name == name)

    def pid(self, name: str) -> int:
        """The process of a unit, without the figures of `unit` that take their time."""
        pid = self._noted(name)["pid"]
        assert isinstance(pid, int), f"{name} does not run"
        return pid

    def running(self, name: str) -> bool:
        """Whether a unit is ready."""
        return bool(self._noted(name)["state"] == "ready")

    def _noted(self, name: str) -> dict[str, Any]:
        noted: dict[str, dict[str, dict[str, Any]]] = json.loads((self.data.root / "status.json").read_text())
        return noted["units"][name]

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Signal one process of the stack."""
        os.kill(self.pid(name), number)

    def kill_and_wait(self, name: str, seconds: float = 30.0) -> float:
        """SIGKILL one process and wait until it is back; returns how long that took."""
        before, begun = self.unit(name), time.monotonic()
        self.kill(name)

        def back() -> bool:
            now = self.unit(name)
            return now.restarts > before.restarts and now.state == "ready" and now.pid != before.pid

        self.wait(back, seconds, f"{name} is back")
        return time.monotonic() - begun

    def end(self) -> int:
        """Stop it as Ctrl-C does; returns the exit code."""
        assert self.process
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(_STOPS_WITHIN_S)

    @property
    def ports(self) -> dict[str, int]:
        """By the names of ``run.json``."""
        return self.data.run().ports

    @property
    def secrets(self) -> Secrets:
        """What the launcher made."""
        return self.data.secrets()

    @property
    def mark(self) -> str:
        """In the environment of every process that the launcher started, and of what those started."""
        noted: dict[str, Any] = json.loads((self.data.root / "status.json").read_text())
        return str(noted["mark"])

    def context(self) -> Context:
        """As the launcher has it."""
        return Context(self.data, self.secrets, self.ports, self.mark)

    def settings(self, role: str = "worker") -> Settings:
        """What one of our processes would read; the NATS user is that of `role` (api, worker, relay)."""
        prefix = "LONGHAUL_"
        env = ours.environment(self.context(), role, self.template, {})
        values = {name.removeprefix(prefix).lower(): value for name, value in env.items() if name.startswith(prefix)}
        return Settings.model_validate(values)

    @property
    def template(self) -> Path:
        """The sandbox template that it uses."""
        return Path(self._env.get("LONGHAUL_RUNNER_TEMPLATE_DIR") or default_data_dir() / "template")

    def leftovers(self) -> list[str]:
        """Its processes, found by the mark in their environment or the directory in their command."""
        return processes_of(self.mark, self.data.root)

    def assert_no_leftovers(self, seconds: float = 5.0) -> None:
        """Nothing of it is left, at the latest after `seconds`."""
        mark, deadline = self.mark, time.monotonic() + seconds
        while found := processes_of(mark, self.data.root):
            assert time.monotonic() < deadline, "left behind:\n" + "\n".join(found)
            time.sleep(0.05)

    def remove(self) -> None:
        """Kill what still runs and delete the directory."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.data.root.parent, ignore_errors=True)


def _stop_with_the_tests() -> None:
    """Have the kernel ask the launcher to stop where the tests are killed; and let it hear Ctrl-C where they do not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell starts what it puts into the background with SIGINT ignored
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def processes_of(mark: str, root: Path) -> list[str]:
    """Every process with that mark in its environment or that directory in its command line."""
    found, here = [], os.fsencode(root)
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            stat = (entry / "stat").read_text()
            ours = mark.encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        alive = stat[stat.rindex(")") + 2] not in "ZX"
        if int(entry.name) != os.getpid() and alive and (ours or here in command):
            found.append(f"{entry.name} {command.replace(bytes(1), b' ').decode(errors='replace')}")
    return found


def _clean_environment() -> dict[str, str]:
    """The caller's, without what would make a test depend on the machine's own Longhaul."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LONGHAUL_")}
    if template := os.environ.get("LONGHAUL_RUNNER_TEMPLATE_DIR"):
        kept["LONGHAUL_RUNNER_TEMPLATE_DIR"] = template
    return kept | {"LONGHAUL_REPLAY_PACE_MS": "0"}
