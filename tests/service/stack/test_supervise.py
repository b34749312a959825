"""One process under supervision, with small real processes."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from services.stack.errors import StackError
from services.stack.spawn import Spawner
from services.stack.supervise import Patience, Supervised
from services.stack.unit import NotReady, Unit

QUICK = Patience(failures=3, steady_s=5.0, first_pause_s=0.01, longest_pause_s=0.05)


def _unit(tmp_path: Path, script: str) -> Unit:
    return Unit(
        name="it",
        argv=("/bin/sh", "-c", script),
        env={"PATH": os.environ["PATH"]},
        cwd=tmp_path,
        log=tmp_path / "it.log",
        grace_s=0.3,
    )


async def test_gives_up_after_failures_in_a_row_and_names_the_log(tmp_path: Path) -> None:
    async def never(pid: int) -> bool:
        return False

    unit = replace(_unit(tmp_path, "echo trouble >&2; exit 7"), ready=never)
    supervised = Supervised(unit, Spawner(), lambda: None, QUICK)
    with pytest.raises(StackError) as caught:
        await supervised.start()
    assert "it exited with status 7, 3 times in a row" in str(caught.value)
    assert str(tmp_path / "it.log") in str(caught.value)
    assert "trouble" in str(caught.value)
    assert supervised.state == "failed"


async def test_restarts_and_counts(tmp_path: Path) -> None:
    supervised = Supervised(_unit(tmp_path, "exec sleep 60"), Spawner(), lambda: None, QUICK)
    await supervised.start()
    first = supervised.pid
    assert first
    os.kill(first, signal.SIGKILL)
    await _until(lambda: supervised.pid not in (None, first) and supervised.state == "ready")
    assert supervised.restarts == 1
    await supervised.stop()
    assert supervised.state == "stopped"
    assert supervised.pid is None


async def test_stops_though_a_probe_swallows_the_cancel(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def swallows(pid: int) -> bool:
        asked.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return True
        return False

    unit = replace(_unit(tmp_path, "exec sleep 60"), ready=swallows)
    supervised = Supervised(unit, Spawner(), lambda: None, QUICK)
    starting = asyncio.create_task(supervised.start())
    await asked.wait()
    async with asyncio.timeout(10):
        await supervised.stop()
        await starting
    assert supervised.pid is None


async def test_a_probe_that_stumbles_is_asked_again(tmp_path: Path) -> None:
    faults = [ValueError("nonsense"), TypeError("worse")]

    async def stumbles(pid: int) -> bool:
        if faults:
            raise faults.pop()
        return True

    supervised = Supervised(replace(_unit(tmp_path, "exec sleep 60"), ready=stumbles), Spawner(), lambda: None, QUICK)
    async with asyncio.timeout(10):
        await supervised.start()
    assert supervised.state == "ready"
    await supervised.stop()


async def test_why_a_probe_stumbles_is_said_at_the_end(tmp_path: Path) -> None:
    async def stumbles(pid: int) -> bool:
        raise ValueError("nonsense")

    unit = replace(_unit(tmp_path, "exec sleep 60"), ready=stumbles, ready_within_s=0.2)
    with pytest.raises(StackError, match=r"was not ready after 0 s \(ValueError\('nonsense'\)\)"):
        await Supervised(unit, Spawner(), lambda: None, QUICK).start()


async def test_one_that_is_never_ready_is_counted_and_given_up_with_its_own_words(tmp_path: Path) -> None:
    """However long each of its lives is: only one that was ready for a while begins a new count."""
    told: list[tuple[int, str]] = []

    async def says(pid: int) -> bool:
        raise NotReady("no template")

    unit = replace(_unit(tmp_path, "exec sleep 60"), ready=says, ready_within_s=0.2)
    patience = replace(QUICK, steady_s=0.1)
    one = Supervised(unit, Spawner(), lambda: told.append((one.restarts, one.detail)), patience)
    with pytest.raises(StackError, match=r"not ready after 0 s \(no template\), 3 times in a row"):
        await one.start()
    assert told[-1] == (2, "no template")
    assert (1, "no template") in told


async def test_an_executable_that_is_not_there_is_a_clear_failure(tmp_path: Path) -> None:
    unit = Unit("it", ("/nowhere/at/all",), {}, tmp_path, tmp_path / "it.log")
    with pytest.raises(StackError, match="cannot be started"):
        await Supervised(unit, Spawner(), lambda: None, QUICK).start()


async def test_a_deaf_process_is_killed_after_its_grace_with_its_group(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 61 & echo $! > child; while :; do sleep 0.1; done"
    supervised = Supervised(_unit(tmp_path, script), Spawner(), lambda: None, QUICK)
    await supervised.start()
    await _until(lambda: (tmp_path / "child").exists() and bool((tmp_path / "child").read_text()))
    child = int((tmp_path / "child").read_text())
    begun = time.monotonic()
    await supervised.stop()
    assert 0.25 < time.monotonic() - begun < 3
    await _until(partial(_dead, child))


async def test_what_a_dead_process_left_in_its_group_is_killed(tmp_path: Path) -> None:
    supervised = Supervised(
        _unit(tmp_path, "sleep 62 & echo $! > child; exec sleep 63"), Spawner(), lambda: None, QUICK
    )
    await supervised.start()
    await _until(lambda: (tmp_path / "child").exists() and bool((tmp_path / "child").read_text()))
    child, pid = int((tmp_path / "child").read_text()), supervised.pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    await _until(partial(_dead, child))
    await supervised.stop()


async def test_a_child_dies_with_a_killed_launcher(tmp_path: Path) -> None:
    """Killed at once after the spawn, over and over: also in the moment before the child has asked to die with us."""
    program = """
import asyncio, sys
from pathlib import Path
from services.stack.spawn import Spawner
async def main():
    here = Path(sys.argv[1])
    process = Spawner().spawn(("/bin/sleep", sys.argv[2]), env={}, cwd=here, output=here / "log")
    print(process.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    for n in range(5):
        launcher = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, str(tmp_path), str(64 + n), stdout=asyncio.subprocess.PIPE
        )
        assert launcher.stdout
        child = int(await launcher.stdout.readline())
        launcher.kill()
        await launcher.wait()
        await _until(partial(_dead, child))


async def _until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def _dead(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat[stat.rindex(")") + 2] in "ZX"
