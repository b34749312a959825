"""Calls to an engine: every one is bounded, and every fault has one of our codes."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from requests.exceptions import RequestException

from agents.contracts.errors import ErrorCode, LonghaulError

T = TypeVar("T")

WITHIN_S = 30.0
"""How long one call may take: an engine that accepts and never answers must not hold anybody."""
THREADS = 8


class EngineClient:
    """Connects at the first call, so that a runner can start before its engine does.

    The threads are its own: an engine that hangs takes none of those that serve files.
    """

    def __init__(self, url: str, within_s: float = WITHIN_S) -> None:
        self.url = url
        self._within_s = within_s
        self._api: docker.APIClient | None = None
        self._connecting = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, "engine")

    async def ask(self, call: Callable[[Any], T]) -> T:
        """The answer to a call of the engine's API. Raises as `ask_now` does."""
        return await self.aside(lambda: self.ask_now(call))

    async def aside(self, work: Callable[[], T]) -> T:
        """What consists of such calls, in a thread of the engine's own."""
        try:
            async with asyncio.timeout(self._within_s * 2):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TimeoutError as error:
            raise self._away("it holds every call") from error

    def ask_now(self, call: Callable[[Any], T]) -> T:
        """The answer to a call of the engine's API.

        Raises:
            LonghaulError: ``SANDBOX_UNAVAILABLE``: it does not answer; ``NOT_FOUND``: it has no such container or
                image; ``SPAWN_FAILED``: it refused.
        """
        try:
            return call(self._connected())
        except (ImageNotFound, NotFound) as error:
            raise LonghaulError(ErrorCode.NOT_FOUND, f"the engine knows no such thing: {error.explanation}") from error
        except APIError as error:
            raise LonghaulError(ErrorCode.SPAWN_FAILED, f"the engine refused: {error.explanation}") from error
        except (DockerException, RequestException, OSError) as error:
            raise self._away(f"{error!s:.200}") from error

    def _connected(self) -> docker.APIClient:
        with self._connecting:
            if self._api is None:
                self._api = docker.APIClient(base_url=self.url, version="auto", timeout=self._within_s)
            return self._api

    def _away(self, why: str) -> LonghaulError:
        detail = f"no engine answers at {self.url} ({why}): start it, or set LONGHAUL_RUNNER_ENGINE_URL"
        return LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, detail)

    def close(self) -> None:
        """Let go of it."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._api is not None:
            self._api.close()
