"""A relay's mail part that is killed: ``argv[1]`` says at which hop, ``argv[2]`` after how many messages.

``publish``: published, not marked · ``deliver``: in the mailbox, not acknowledged.
"""

import asyncio
import os
import signal
import sys

from nats.aio.msg import Msg

from services.mailbox.link import Link
from services.relay.mail import Mailroom, PostBag
from services.settings import Settings
from services.store.database import Database

HOP, AFTER = sys.argv[1], int(sys.argv[2])


class Life:
    """Ends the process after so many messages."""

    left = AFTER

    def spend(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class DyingLink(Link):
    """Dies behind a publish."""

    life = Life()

    async def publish_durably(self, subject: str, body: bytes, message_id: str, *, timeout_s: float = 3.0) -> None:
        await super().publish_durably(subject, body, message_id, timeout_s=timeout_s)
        if HOP == "publish":
            self.life.spend()


class DyingMailroom(Mailroom):
    """Dies between a delivery and its acknowledgement."""

    life = Life()

    async def _acknowledge(self, message: Msg) -> None:
        if HOP == "deliver":
            self.life.spend()
        await super()._acknowledge(message)


async def main() -> None:
    settings = Settings()
    link = DyingLink(settings, "dying")
    link.start()
    await link.wait_connected(10)
    db = Database(settings.pg_url)
    bag, room = PostBag(db, link), DyingMailroom(db, link, lambda: None)
    while True:
        await bag.drain()
        await room.take()


asyncio.run(main())
