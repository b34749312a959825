"""What comes from elsewhere and cannot be used: a source that is gone, a bug of another process, too many bytes."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from agents.contracts.errors import ErrorCode, ErrorInfo, LonghaulError
from agents.contracts.sandbox import Owner
from services.sandbox.client import RunnerClient
from workflows import sizes
from workflows.activities import doing as activities
from workflows.failures import ATTEMPTS


class _Refusal:
    """An upload's source that is gone."""

    async def read(self) -> AsyncIterator[bytes]:
        yield b"x"
        raise LonghaulError(ErrorCode.NOT_FOUND, "the blob is gone")


async def test_a_fault_of_what_is_uploaded_is_no_lost_connection() -> None:
    async def drained(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=204)

    app = web.Application()
    app.router.add_put("/v1/sandboxes/{id}/archive", drained)
    owner = Owner(agent_id="agent_1", agent_fence=1, sandbox_fence=1)
    async with TestServer(app) as server, RunnerClient(str(server.make_url("")), "token") as runner:
        with pytest.raises(LonghaulError) as caught:
            await runner.put_archive("sbx_1", "key", owner, _Refusal().read())
    assert caught.value.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("code", ATTEMPTS)
async def test_a_fault_of_another_process_is_not_met_for_ever(code: ErrorCode) -> None:
    async def work() -> None:
        raise LonghaulError(code, "the runner has a fault")

    for attempt, final in ((1, False), (ATTEMPTS[code] - 1, False), (ATTEMPTS[code], True)):
        world = ActivityEnvironment()
        world.info = replace(ActivityEnvironment.default_info(), attempt=attempt)
        with pytest.raises(ApplicationError) as caught:
            await world.run(activities.doing, activities.here, work())
        assert (caught.value.type, caught.value.non_retryable) == (code.value, final)


async def test_the_end_of_a_task_is_tried_for_ever() -> None:
    async def work() -> None:
        raise KeyError("a bug")

    async def doing() -> None:
        await activities.doing(activities.here, work(), gives_up=False)

    world = ActivityEnvironment()
    world.info = replace(ActivityEnvironment.default_info(), attempt=10_000)
    with pytest.raises(ApplicationError) as caught:
        await world.run(doing)
    assert caught.value.non_retryable is False


def test_sizes_are_bytes() -> None:
    with pytest.raises(ApplicationError):
        sizes.check([ErrorInfo(code=ErrorCode.INTERNAL, detail="\u20ac" * 11_000)], "this")
