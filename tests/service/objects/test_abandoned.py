"""Uploads in parts that a killed process left behind."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from services.objects.abandoned import ABANDONED, give_up_abandoned
from services.objects.s3 import S3Objects
from services.settings import Settings
from tests.service.rooms import environment

MIB = 1 << 20
SENDER = f"""
import asyncio, os
from services.objects.s3 import S3Objects
from services.settings import Settings

async def pieces():
    for _ in range(200):
        yield os.urandom({MIB})

asyncio.run(S3Objects(Settings()).put_stream("ann", pieces(), max_bytes=200 * {MIB}))
"""


@pytest.fixture
async def store(servers: Settings) -> AsyncIterator[S3Objects]:
    objects = S3Objects(servers, threads=2)
    yield objects
    await objects.close()


def uploads(store: S3Objects, servers: Settings) -> list[dict[str, Any]]:
    """What the store knows of uploads in parts."""
    s3: Any = store._bucket._s3
    found = s3.list_multipart_uploads(Bucket=servers.s3_bucket).get("Uploads", ())
    return [one for one in found if one["Key"].startswith("t/ann/blobs/")]


async def killed_in_the_middle(store: S3Objects, servers: Settings) -> dict[str, Any]:
    """A sender that dies once some of its parts have arrived."""
    env = {**os.environ, **environment(servers)}
    sender = await asyncio.create_subprocess_exec(sys.executable, "-c", SENDER, env=env)
    s3: Any = store._bucket._s3
    async with asyncio.timeout(60):
        while True:
            for one in uploads(store, servers):
                there = s3.list_parts(Bucket=servers.s3_bucket, Key=one["Key"], UploadId=one["UploadId"])
                if there.get("Parts"):
                    sender.send_signal(signal.SIGKILL)
                    await sender.wait()
                    return one
            assert sender.returncode is None, "it was done before it could be killed"
            await asyncio.sleep(0.02)


async def test_a_killed_upload_is_given_up_once_it_is_old(store: S3Objects, servers: Settings) -> None:
    await store.abort_uploads(older_than=timedelta())  # those of other tests
    left = await killed_in_the_middle(store, servers)
    assert await store.abort_uploads(older_than=ABANDONED) == 0
    assert [one["UploadId"] for one in uploads(store, servers)] == [left["UploadId"]], "it may still be under way"
    assert await store.abort_uploads(older_than=timedelta()) == 1
    assert uploads(store, servers) == []
    assert await store.abort_uploads(older_than=timedelta()) == 0


class Away:
    """A store that is away at first."""

    def __init__(self) -> None:
        self.asked: list[timedelta] = []
        self.enough = asyncio.Event()

    async def abort_uploads(self, older_than: timedelta) -> int:
        self.asked.append(older_than)
        if len(self.asked) == 1:
            raise LonghaulError(ErrorCode.OBJECTS_UNAVAILABLE, "away")
        if len(self.asked) == 3:
            self.enough.set()
        return 1


async def test_a_store_that_is_away_is_asked_again() -> None:
    store = Away()
    looking = asyncio.create_task(give_up_abandoned(store, every_s=0.01))
    await asyncio.wait_for(store.enough.wait(), 10)
    looking.cancel()
    assert set(store.asked) == {ABANDONED}
