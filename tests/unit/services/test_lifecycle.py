import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import asyncio, sys, time
from services import lifecycle
async def serve(stop):
    print("up", flush=True)
    if "fail" in sys.argv: raise ValueError("broken")
    if "return" in sys.argv: return
    await stop.wait()
    if "slow" in sys.argv:
        try: await asyncio.sleep(60)
        finally: print("cut short", flush=True)
    if "block" in sys.argv: time.sleep(60)
    if "thread" in sys.argv: asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    print("drained", flush=True)
sys.exit(lifecycle.run(serve, drain_s=0.5))
"""


def run(*arguments: str, send: tuple[int, ...]) -> tuple[int, str, float]:
    """Exit code, output and seconds from the first signal."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    began = time.monotonic()
    for number in send:
        process.send_signal(number)
        time.sleep(0.15)
    said, _ = process.communicate(timeout=30)
    return process.returncode, said, time.monotonic() - began


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_well(number: int) -> None:
    assert run(send=(number,))[:2] == (0, "drained\n")


def test_a_drain_that_takes_too_long_is_cut_short() -> None:
    code, said, seconds = run("slow", send=(signal.SIGTERM,))
    assert (code, said) == (0, "cut short\n")
    assert seconds < 5


def test_a_second_signal_cuts_at_once() -> None:
    assert run("slow", send=(signal.SIGTERM, signal.SIGTERM))[:2] == (0, "cut short\n")


@pytest.mark.parametrize("how", ["block", "thread"])
def test_nothing_holds_the_process_up(how: str) -> None:
    code, _, seconds = run(how, send=(signal.SIGTERM,))
    assert code == 1
    assert seconds < 8


def test_a_fault_is_an_exit_code() -> None:
    assert run("fail", send=())[0] == 1
    assert run("return", send=())[0] == 0
