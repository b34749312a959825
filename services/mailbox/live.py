"""The `Live` port over NATS core: what is fast and may be lost."""

import logging
from collections.abc import Awaitable, Callable

from agents.contracts.model import Delta
from services.mailbox import subjects
from services.mailbox.link import Link

log = logging.getLogger(__name__)


class NatsLive:
    """Implements `workflows.ports.Live` on a link. One subscription a process, whatever the number of tasks."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._wakes: dict[str, list[Callable[[], None]]] = {}
        self._listening = False

    async def delta(self, tenant_id: str, delta: Delta) -> None:
        """Send a piece of a streaming reply to whoever watches."""
        await self._send(
            lambda: subjects.tokens_of(tenant_id, delta.task_id, delta.agent_id), delta.model_dump_json().encode()
        )

    async def poke(self) -> None:
        """Tell the relay that the outbox has something."""
        await self._send(lambda: subjects.WAKE_OUTBOX, b"")

    async def control(self, tenant_id: str, task_id: str) -> None:
        """Wake whoever listens with `on_control`, in whichever process."""
        await self._send(lambda: subjects.control(tenant_id, task_id), b"")

    async def on_control(self, tenant_id: str, task_id: str, wake: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call `wake` when the task's controls may have changed; await what this returns to stop that."""
        key = f"{tenant_id}.{task_id}"
        self._wakes.setdefault(key, []).append(wake)
        if not self._listening:
            self._listening = True
            await self._link.subscribe(subjects.ALL_CONTROL, self._on_message)

        async def stop() -> None:
            listeners = self._wakes.get(key, [])
            if wake in listeners:
                listeners.remove(wake)
            if not listeners:
                self._wakes.pop(key, None)

        return stop

    def _on_message(self, subject: str, body: bytes) -> None:
        for wake in tuple(self._wakes.get(".".join(subjects.task_of(subject)), ())):
            wake()

    async def _send(self, subject: Callable[[], str], body: bytes) -> None:
        try:
            where = subject()
        except ValueError as error:
            # an id that the edge should have refused; a lost hint is no reason to fail a turn
            log.error("not sent: %s", error)
            return
        await self._link.publish(where, body)
