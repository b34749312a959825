"""One connection to NATS that comes back by itself, whatever happened to it.

The traps of the client library that this shuts (each has a test):
it stops trying after two minutes (never here); it closes for good on some refusals, an expired user for one (a new
client is made); a half-open link is noticed after minutes (seconds here); publishing while it is away is buffered
and comes late (left out here); `publish_async` loses messages and `drain` hangs (not used); a denied
publish is told only to a callback (logged here).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NoStreamResponseError

from agents.contracts.errors import ErrorCode, LonghaulError
from services.settings import Settings

log = logging.getLogger(__name__)

OnMessage = Callable[[str, bytes], None]
"""Receives subject and body; must neither block nor raise."""

_PING_S = 5
_RETRY_S = 0.5
_END_S = 2.0
_SAY_AGAIN_S = 30.0
_BACKLOG_BYTES = 1 << 20


async def connect(settings: Settings, name: str, *, wait_s: float = 3.0) -> "Link":
    """A link that is being connected: waits for the first connection at most `wait_s`, then goes on trying behind."""
    link = Link(settings, name)
    link.start()
    await link.wait_connected(wait_s)
    return link


class Link:
    """The connection. Subscriptions outlive every loss of it; what is sent meanwhile to them is lost."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._client = Client()
        self._subscriptions: list[tuple[str, OnMessage]] = []
        self._active = 0  # how many of them the present client has
        self._closing = False
        self._connected = asyncio.Event()
        self._gone = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._away_since: float | None = None
        self._said: dict[str, float] = {}

    @property
    def connected(self) -> bool:
        """Whether something can be sent at this moment."""
        return self._connected.is_set() and self._client.is_connected

    def start(self) -> None:
        """Begin to connect; never stops trying until `close`."""
        self._keeper = asyncio.create_task(self._keep(), name=f"nats {self._name}")

    async def wait_connected(self, timeout_s: float) -> bool:
        """Whether there is a connection within `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
        return self.connected

    async def subscribe(self, subject: str, on_message: OnMessage) -> None:
        """Have `on_message` called for what arrives, over all later connections too. While the link is away messages
        are lost, so a reader of numbered things looks for gaps."""
        self._subscriptions.append((subject, on_message))
        if self.connected:
            await self._subscribe_missing()
            with suppress(NatsError, OSError, TimeoutError):
                await self._client.flush(2)  # the server has it when this returns

    async def publish(self, subject: str, body: bytes) -> bool:
        """Send once, and forget: False where it was left out because the link is away or behind. Never raises."""
        if not self.connected or self._client.pending_data_size > _BACKLOG_BYTES:
            return False
        try:
            await self._client.publish(subject, body)
        except (NatsError, OSError) as error:
            self._say(f"not sent to {subject}: {error!r}")
            return False
        return True

    async def publish_durably(self, subject: str, body: bytes, message_id: str, *, timeout_s: float = 3.0) -> None:
        """Put a message into the stream of `subject` and wait until it is there. The same `message_id` again within two
        minutes is answered but not kept twice.

        Raises:
            LonghaulError: ``UNAVAILABLE``; whether the message arrived is then unknown, so send it again.
        """
        if not self.connected:
            raise _unavailable("there is no connection")
        try:
            await self._client.jetstream(timeout=timeout_s).publish(
                subject, body, headers={"Nats-Msg-Id": message_id}, timeout=timeout_s
            )
        except NoStreamResponseError as error:
            raise _unavailable("no stream takes this subject") from error
        except (NatsError, APIError, OSError, TimeoutError) as error:
            raise _unavailable(repr(error)) from error

    @property
    def client(self) -> Client:
        """The client library's own object, for the administration of streams; it is not kept: there may be another."""
        return self._client

    async def close(self) -> None:
        """Send what is buffered, end the connection; takes at most a few seconds."""
        self._closing = True
        if self._keeper:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        # flushed and closed, not drained: that cannot be cut short, it eats the cancellation
        ending = asyncio.create_task(self._end())
        await asyncio.wait([ending], timeout=_END_S)
        self._connected.clear()

    async def _end(self) -> None:
        with suppress(NatsError, OSError, TimeoutError):
            if self._client.is_connected:
                await self._client.flush(1)
        with suppress(NatsError, OSError):
            await self._client.close()

    async def _keep(self) -> None:
        while True:
            self._gone.clear()
            try:
                await self._connect_once()
                await self._gone.wait()
            except (NatsError, OSError, TimeoutError) as error:
                self._say(f"cannot connect: {error!r}")
            except Exception:  # what listens there talks nonsense, and the library stumbles over it
                log.exception("cannot connect to NATS")
            self._connected.clear()
            await asyncio.sleep(_RETRY_S)

    async def _connect_once(self) -> None:
        self._client = client = Client()
        self._active = 0
        settings = self._settings
        await client.connect(
            settings.nats_url,
            name=self._name,
            user=settings.nats_user or None,
            password=settings.nats_password.get_secret_value() or None,
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
            connect_timeout=2,
            ping_interval=_PING_S,
            max_outstanding_pings=2,
            flush_timeout=2.0,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
        )
        await self._on_reconnected()

    async def _subscribe_missing(self) -> None:
        while self._active < len(self._subscriptions):
            subject, on_message = self._subscriptions[self._active]
            self._active += 1
            await self._subscribe(subject, on_message)

    async def _subscribe(self, subject: str, on_message: OnMessage) -> None:
        async def receive(message: Msg) -> None:
            try:
                on_message(message.subject, message.data)
            except Exception:
                log.exception("a reader of %s failed", subject)

        try:
            await self._client.subscribe(subject, cb=receive)
        except (NatsError, OSError) as error:  # closed meanwhile: the next client gets it
            self._say(f"not yet subscribed to {subject}: {error!r}")

    async def _on_error(self, error: Exception) -> None:
        self._say(repr(error))

    async def _on_disconnected(self) -> None:
        self._connected.clear()
        if self._away_since is None and not self._closing:
            self._away_since = time.monotonic()
            log.warning("NATS is away")

    async def _on_reconnected(self) -> None:
        if self._away_since is not None:
            log.info("NATS is back after %.1f s", time.monotonic() - self._away_since)
        self._away_since = None
        await self._subscribe_missing()
        self._connected.set()

    async def _on_closed(self) -> None:
        self._gone.set()

    def _say(self, what: str) -> None:
        """Log it, unless the same was logged a moment ago: an outage is one line, not one a retry."""
        now = time.monotonic()
        if now - self._said.get(what, -_SAY_AGAIN_S) < _SAY_AGAIN_S:
            return
        if len(self._said) > 100:
            self._said.clear()
        self._said[what] = now
        log.warning("NATS: %s", what)


def _unavailable(why: str) -> LonghaulError:
    return LonghaulError(ErrorCode.UNAVAILABLE, f"NATS did not take a message: {why}; try again", retry_after_s=1)
