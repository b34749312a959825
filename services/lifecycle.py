"""How a main runs: one event loop, a stop event set by SIGTERM or SIGINT, a bounded drain, an exit code.

    def main() -> int:
        settings = Settings()
        telemetry.configure("relay", settings)
        return lifecycle.run(lambda stop: serve(settings, stop))

`serve` works until `stop` is set, drains, closes what it opened and returns. A second signal cuts the drain short.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine

log = logging.getLogger(__name__)

DRAIN_S = 8.0
"""What a main gets from the signal to its return; whoever stops us kills after 10 s."""
_CANCEL_S = 1.0


def run(main: Callable[[asyncio.Event], Coroutine[None, None, None]], *, drain_s: float = DRAIN_S) -> int:
    """Run `main(stop)` to its end; returns the exit code: 0 for an end that was asked for or reached, 1 for a fault.

    A main that has not returned `drain_s` seconds after the signal is cancelled. One that will not be cancelled, or
    a thread that holds the interpreter up, ends the process hard a second later (exit code 1).
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_supervise(main, drain_s))


async def _supervise(main: Callable[[asyncio.Event], Coroutine[None, None, None]], drain_s: float) -> int:
    stop = asyncio.Event()
    task = asyncio.ensure_future(main(stop))
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            task.cancel()
            return
        stop.set()
        _hard_stop_after(drain_s + _CANCEL_S)
        loop.call_later(drain_s, _cut_short, task)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        await task
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    except Exception:
        log.exception("the process ends: its main failed")
        return 1
    return 0


def _cut_short(task: "asyncio.Future[None]") -> None:
    if not task.done():
        log.warning("the drain took too long and was cut short")
        task.cancel()


def _hard_stop_after(seconds: float) -> None:
    # A thread, because a loop that is stuck cannot time itself out; a daemon, so that it never delays a clean end.
    timer = threading.Timer(seconds, os._exit, args=(1,))
    timer.daemon = True
    timer.start()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
