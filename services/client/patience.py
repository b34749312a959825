"""When to ask again, and for how long: one rule for calls, streams and downloads."""

import time
from collections.abc import Callable
from typing import Any

import httpx

from agents.contracts.errors import ErrorCode
from services.client.calls import Call
from services.client.errors import LonghaulApiError, Unreachable

_FIRST_S = 0.2
_LONGEST_S = 5.0
_LONG_S = 2.0
"""After so long without an answer it is told that there is none."""
_PASSING = {429, 502, 503, 504}

Fault = httpx.TransportError | LonghaulApiError


def passing(fault: Fault) -> bool:
    """Whether a fault is of the kind that goes away. A conflict does not, except with a request of our own."""
    if isinstance(fault, LonghaulApiError):
        return fault.problem.status in _PASSING or fault.code is ErrorCode.IDEMPOTENCY_IN_FLIGHT
    return not isinstance(fault, httpx.UnsupportedProtocol | httpx.LocalProtocolError)


class Patience:
    """The pauses between tries: longer each time, until `seconds` have gone by without a success. `waiting` is called
    once where that becomes long."""

    def __init__(self, seconds: float, waiting: Callable[[], None] = lambda: None) -> None:
        self._seconds = seconds
        self._waiting = waiting
        self._told = False
        self.renew()

    def renew(self) -> None:
        """Something came: all patience is back."""
        self._pause = _FIRST_S
        self._since: float | None = None

    def pause(self, fault: Fault | None, what: str) -> float:
        """For how many seconds to wait before the next try.

        Raises:
            Unreachable, LonghaulApiError: where there were tries enough.
        """
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since + self._pause > self._seconds:
            if isinstance(fault, LonghaulApiError):
                raise fault
            why = f": {type(fault).__name__} {fault}".rstrip() if fault else ""
            raise Unreachable(f"{what} was given up after {now - self._since:.0f} s{why}") from fault
        if now - self._since >= _LONG_S and not self._told:
            self._told = True
            self._waiting()
        self._pause, pause = min(self._pause * 2, _LONGEST_S), self._pause
        return pause


def pause_before_repeat(call: Call[Any], fault: Fault, patience: Patience) -> float:
    """For how many seconds to wait before the call is sent again.

    Raises:
        LonghaulApiError, Unreachable: where it may not be sent again, or was often enough.
    """
    if passing(fault) and call.repeatable:
        return patience.pause(fault, f"{call.method} {call.path}")
    if isinstance(fault, LonghaulApiError):
        raise fault
    raise unreachable(call, fault) from fault


def unreachable(call: Call[Any], fault: httpx.TransportError) -> Unreachable:
    """A call that got no answer; whether it was done is not known."""
    return Unreachable(f"{call.method} {call.path} got no answer: {type(fault).__name__} {fault}".rstrip())
