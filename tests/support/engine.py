"""A Docker engine for tests: in namespaces of its own, on a private socket, gone with the process that started it.

The host's network, its firewall and any engine of its own are left alone. Root only. ``python -m tests.support.engine
DIR`` runs one in the foreground.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import docker
from docker.errors import DockerException

NEEDS = "an engine is needed: run as root, with dockerd and runsc (apt install docker.io runsc iproute2)"
_READY_S = 60.0
# kvm hangs on many machines; a network namespace without interfaces is nothing that gVisor could take over
_RUNSC = '#!/bin/sh\nexec runsc --platform=ptrace --network=none --oci-seccomp "$@"\n'


class Engine:
    """One engine. Use as a context manager."""

    def __init__(self, folder: Path | None = None) -> None:
        if missing():
            raise RuntimeError(NEEDS)
        self._own = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="lh-engine-"))
        self.url = f"unix://{self.folder}/docker.sock"
        self._cgroup = f"/{self.folder.name}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._lay_out()
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(self._argv(), stdout=log, stderr=log, start_new_session=True)
        try:
            self.client = self._ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.client.close()
        self.stop()

    def _lay_out(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "daemon.json").write_text(json.dumps({"log-driver": "none", "live-restore": False}))
        runsc = self.folder / "runsc"
        runsc.write_text(_RUNSC)
        runsc.chmod(0o755)

    def _argv(self) -> list[str]:
        folder = str(self.folder)
        engine = [
            *("dockerd", "-H", self.url, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"),
            *("--pidfile", f"{folder}/pid", "--config-file", f"{folder}/daemon.json", "--storage-driver", "overlay2"),
            *("--bridge", "none", "--iptables=false", "--cgroup-parent", self._cgroup),
            *("--add-runtime", f"runsc={folder}/runsc"),
        ]
        # all of it lives in one PID namespace, whose end is the end of every container
        around = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ]
        return [*around, "sh", "-c", 'ip link set lo up; "$@" & wait $!', "sh", *engine]

    def _ready(self) -> docker.DockerClient:
        until = time.monotonic() + _READY_S
        while True:
            with contextlib.suppress(DockerException, OSError):
                return docker.DockerClient(base_url=self.url, timeout=30)  # asks the engine for its version
            if time.monotonic() > until or (self._process and self._process.poll() is not None):
                raise RuntimeError(f"the engine did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it and everything in it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)  # the namespace's first process goes with it (--kill-child)
            self._process.wait()
            self._process = None
        for groups in Path("/sys/fs/cgroup").glob(f"*{self._cgroup}"):
            _remove_groups(groups)
        if self._own:
            _remove_tree(self.folder)


def missing() -> bool:
    """Whether something is missing for an engine here."""
    return os.geteuid() != 0 or not all(map(shutil.which, ("dockerd", "runsc", "ip", "unshare")))


def _remove_groups(top: Path) -> None:
    until = time.monotonic() + 5
    while top.exists() and time.monotonic() < until:
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        time.sleep(0.05)


def _remove_tree(folder: Path) -> None:
    until = time.monotonic() + 5
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


def main() -> None:
    """Run one until Ctrl-C."""
    with Engine(Path(sys.argv[1]) if len(sys.argv) > 1 else None) as engine:
        print(f"export DOCKER_HOST={engine.url}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
