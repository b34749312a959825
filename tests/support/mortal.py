"""Ports that die: the n-th moment at which a process could be killed around a call, a test kills it there."""

import inspect
from typing import Any


class Killed(BaseException):
    """The process is gone: nothing of it runs any more. No handler of ours catches it."""


class Life:
    """Counts the moments; at the `until`-th everything ends. None lives for ever and only counts."""

    def __init__(self, until: int | None = None) -> None:
        self.until = until
        self.moments = 0
        self.where: list[str] = []

    def moment(self, where: str) -> None:
        """One more moment. Raises `Killed` at the last, and ever after."""
        self.moments += 1
        self.where.append(where)
        if self.until is not None and self.moments >= self.until:
            raise Killed(where)


class Mortal:
    """A port whose every call has two such moments: before it is made, and after it was done but before its answer is
    heard."""

    def __init__(self, port: Any, life: Life, name: str) -> None:
        self._port = port
        self._life = life
        self._name = name

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._life.moment(f"before {self._name}.{name}")
            answer = await method(*args, **kwargs)
            self._life.moment(f"after {self._name}.{name}")
            return answer

        return call
