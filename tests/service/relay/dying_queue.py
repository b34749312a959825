"""A relay's queue that is killed: ``argv[1]`` says where, ``argv[2]`` after how many, ``argv[3]`` how many places there
are, ``argv[4]`` the queue of Temporal that gets the workflows.

``commit``: a transaction has done its work and is not committed · ``committed``: it is, and nobody was told ·
``start``: a workflow runs, which is not noted.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncConnection
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from agents.contracts.run import TaskRef
from services.relay.admission import Admission
from services.relay.starts import Reconciler, Workflows
from services.settings import Settings
from services.store.database import Database

WHERE, AFTER, PLACES, QUEUE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


class Life:
    """Ends the process after so many."""

    left = AFTER

    def spend(self, where: str) -> None:
        self.left -= where == WHERE
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class DyingDatabase(Database):
    """Dies at the end of a transaction."""

    life = Life()

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        async with super().begin() as conn:
            yield conn
            self.life.spend("commit")
        self.life.spend("committed")


class DyingWorkflows(Workflows):
    """Dies behind a start."""

    life = Life()

    async def start(self, ref: TaskRef, *, even_if_it_ran: bool = False) -> None:
        await super().start(ref, even_if_it_ran=even_if_it_ran)
        self.life.spend("start")


async def main() -> None:
    settings = Settings()
    temporal = await Client.connect(
        settings.temporal_address, namespace=settings.temporal_namespace, data_converter=pydantic_data_converter
    )
    db = DyingDatabase(settings.pg_url)
    reconciler = Reconciler(db, DyingWorkflows(temporal, QUEUE), None)  # type: ignore[arg-type]
    admission = Admission(db, reconciler, PLACES)
    while True:
        await admission.round()


asyncio.run(main())
