"""Sandboxes that were started before they were asked for."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import PoolState, SandboxSpec
from services.sandbox.client import RunnerClient
from services.sandbox.home import load
from tests.contract.sandbox.runner import Box, RunnerProcess, make_box, owner, places, until
from tests.support.engine import Engine

SIZE = 2


@pytest.fixture(scope="module", params=places())
def pooling(request: pytest.FixtureRequest, template: Path, engine: Engine | None) -> Iterator[RunnerProcess]:
    process = RunnerProcess(request.param, template, engine, env={"LONGHAUL_RUNNER_POOL": str(SIZE)})
    try:
        yield process
    finally:
        process.remove()


@pytest.fixture
def runner(pooling: RunnerProcess) -> RunnerProcess:
    return pooling if pooling.lives() else pooling.start()


@pytest.fixture
async def client(runner: RunnerProcess) -> AsyncIterator[RunnerClient]:
    async with runner.client() as made:
        yield made


async def filled(client: RunnerClient, count: int = SIZE) -> PoolState:
    """The pool, once so many are ready: more, where a test before has asked for others."""
    for _ in range(750):
        if (state := await client.pool()).ready >= count:
            return state
        await asyncio.sleep(0.02)
    pytest.fail(f"not ready in time: {state}")


def runs(runner: RunnerProcess, box: Box) -> bool:
    return runner.watch.runs(runner.data / "sandboxes" / box.id)


async def test_a_claim_takes_one_that_is_ready_and_another_takes_its_place(
    client: RunnerClient, runner: RunnerProcess
) -> None:
    before = await filled(client)
    box = await make_box(client)
    assert runs(runner, box), "it runs already"
    after = await client.pool()
    assert (after.warm_claims, after.cold_claims) == (before.warm_claims + 1, before.cold_claims)
    assert await box.out("pwd; touch here; ls; id -un; hostname") == "/workspace\nhere\nuser\nsandbox\n"
    assert (await filled(client)).start_p50_ms is not None
    await client.destroy(box.id)


async def test_none_is_handed_out_twice(client: RunnerClient) -> None:
    await filled(client)
    boxes = await asyncio.gather(*(make_box(client) for _ in range(8)))
    await asyncio.gather(*(box.out(f"echo {box.id} > mine; echo {box.id} > /tmp/mine") for box in boxes))
    for box in boxes:
        assert await box.out("cat mine /tmp/mine; ls | wc -l") == f"{box.id}\n{box.id}\n1\n"
        await client.destroy(box.id)


async def test_a_destroyed_one_never_comes_back(client: RunnerClient, runner: RunnerProcess) -> None:
    await filled(client)
    first = await make_box(client)
    await first.out("touch trace /tmp/trace; echo x > $HOME/trace")
    await client.destroy(first.id)
    assert load(runner.data / "sandboxes" / first.id) is None
    for _ in range(2 * SIZE):
        box = await make_box(client)
        assert await box.out("find . /tmp $HOME | grep -c trace || true") == "0\n"
        await client.destroy(box.id)


async def test_limits_in_use_are_kept_ready_too_and_hold(client: RunnerClient) -> None:
    if "pids" not in (await client.capabilities()).limits:
        with pytest.raises(LonghaulError) as refused:
            await make_box(client, limits={"pids": 40})
        assert refused.value.code is ErrorCode.CAPABILITY_MISSING
        return
    await filled(client)
    cold = await make_box(client, limits={"pids": 40})
    before = await filled(client, SIZE + 1)
    warm = await make_box(client, limits={"pids": 40})
    assert (await client.pool()).warm_claims == before.warm_claims + 1
    for box in (cold, warm):
        status = await box.run("for n in $(seq 80); do sleep 5 & done; wait")
        assert "fork" in status.output, status
        await client.destroy(box.id)


async def test_a_copy_and_its_files(client: RunnerClient) -> None:
    await filled(client)
    source = await make_box(client)
    await source.out("mkdir d; echo deep > d/file; ln -s d/file link; chmod 700 d")
    await filled(client)
    copy = await make_box(client, copy_of=source.id)
    assert (
        await copy.out("cat link; find d -maxdepth 0 -printf '%m\\n'; echo more >> d/file; cat d/file")
        == "deep\n700\ndeep\nmore\n"
    )
    assert await source.out("cat d/file") == "deep\n"
    for box in (source, copy):
        await client.destroy(box.id)


async def test_one_that_has_died_is_not_handed_out(client: RunnerClient, runner: RunnerProcess) -> None:
    await filled(client)
    for folder in (runner.data / "making").iterdir():
        runner.watch.kill(folder)
    box = await make_box(client)
    assert await box.out("echo well") == "well\n"
    await client.destroy(box.id)


async def test_a_killed_runners_ready_ones_are_gone_and_its_claimed_ones_stay(runner: RunnerProcess) -> None:
    async with runner.client() as client:
        await filled(client)
        box = await make_box(client)
        await box.out("echo kept > file")
        await filled(client)
    before = set((runner.data / "making").iterdir())
    assert len(before) >= SIZE
    runner.kill()
    runner.start()
    async with runner.client() as client:
        await filled(client)
        await until(lambda: not before & set((runner.data / "making").iterdir()))
        assert await Box(client, box.id).out("cat file") == "kept\n"
        await client.destroy(box.id)


async def test_a_claim_that_was_not_answered_is_found(client: RunnerClient) -> None:
    await filled(client)
    name = f"sbx_{secrets.token_hex(6)}"
    spec = SandboxSpec(id=name, tenant_id="t", task_id="task_1", fence=3)
    first, again = await client.create(spec), await client.create(spec)
    assert first == again
    with pytest.raises(LonghaulError) as fenced:
        await client.kill_all(name, owner(1, 2))
    assert fenced.value.code is ErrorCode.FENCED
    await client.destroy(name)
