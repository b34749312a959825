"""Makes recordings for the API: one at a time, beside the event loop."""

import asyncio

from agents.context.render import Prompts
from agents.contracts.recording import Recording
from services.recording.load import Loader
from services.store.database import Database
from workflows.ports import Objects
from workflows.replay.take import take


class Recorder:
    """Build one per process: rendering a long task takes seconds and memory, so only one is made at a time."""

    def __init__(self, db: Database, objects: Objects, prompts: Prompts) -> None:
        self._db = db
        self._objects = objects
        self._prompts = prompts
        self._one_at_a_time = asyncio.Lock()

    async def recording(self, tenant_id: str, task_id: str) -> bytes:
        """The recording as JSON.

        Raises:
            LonghaulError: ``NOT_FOUND``, ``RECORDING_TOO_LARGE``.
        """
        async with self._one_at_a_time:
            async with self._db.begin() as conn:
                instruction, task = await Loader(conn, self._objects, tenant_id, task_id).load()
            return await asyncio.to_thread(lambda: to_json(asyncio.run(take(instruction, task, self._prompts))))


def to_json(recording: Recording) -> bytes:
    """The file's bytes: what is not set is left out, defaults are not, since they may change."""
    return recording.model_dump_json(indent=1, exclude_none=True).encode() + b"\n"
