"""A relay that is killed after it has published `argv[1]` events, before it marks any."""

import asyncio
import os
import signal
import sys

from services.mailbox.link import Link
from services.relay.outbox import Outbox
from services.settings import Settings
from services.store.database import Database


class Dying(Link):
    """Kills its process after so many messages."""

    left = int(sys.argv[1])

    async def publish_durably(self, subject: str, body: bytes, message_id: str, *, timeout_s: float = 3.0) -> None:
        await super().publish_durably(subject, body, message_id, timeout_s=timeout_s)
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    settings = Settings()
    link = Dying(settings, "dying")
    link.start()
    await Outbox(Database(settings.pg_url), link).drain()


asyncio.run(main())
