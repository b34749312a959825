"""Snapshots of sandboxes: kept once a key, restored whole or not at all, into sandboxes of the same tenant only."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agents.contracts.artifact import BlobRef
from agents.contracts.errors import ErrorCode, Fenced, LonghaulError
from agents.contracts.sandbox import SandboxSpec
from services.objects.client import Bucket
from services.sandbox.client import RunnerClient
from services.settings import Settings
from services.snapshots.s3 import S3Shelf
from tests.contract.sandbox.runner import Box, RunnerProcess, make_box, new_key, owner, places, until
from tests.support.engine import Engine
from tests.support.stack import Stack
from tests.support.trees import state

FILL = (
    "mkdir -p deep/er empty; echo content > deep/er/file; chmod 640 deep/er/file; ln -s /etc/passwd out; "
    "head -c 3000000 /dev/urandom > large; printf x > \"$(printf 'new\\nline')\"; mkdir ro; touch ro/f; chmod 555 ro"
)


@pytest.fixture(scope="module", params=places())
def keeping(
    request: pytest.FixtureRequest, template: Path, stack: Stack, engine: Engine | None
) -> Iterator[RunnerProcess]:
    """A runner that reaches the object store; it may be killed."""
    servers = stack.settings("worker")
    env = {
        "LONGHAUL_S3_ENDPOINT": servers.s3_endpoint,
        "LONGHAUL_S3_BUCKET": servers.s3_bucket,
        "LONGHAUL_S3_ACCESS_KEY": servers.s3_access_key,
        "LONGHAUL_S3_SECRET_KEY": servers.s3_secret_key.get_secret_value(),
    }
    process = RunnerProcess(request.param, template, engine, env=env)
    try:
        yield process
    finally:
        process.remove()


@pytest.fixture
async def client(keeping: RunnerProcess) -> AsyncIterator[RunnerClient]:
    if not keeping.lives():
        keeping.start()
    async with keeping.client() as made:
        yield made


@pytest.fixture
def tenant() -> str:
    return "t" + secrets.token_hex(6)


@pytest.fixture
def shelf(servers: Settings, tenant: str) -> S3Shelf:
    """What the tenant has kept."""
    return S3Shelf(Bucket(servers, connections=2), tenant)


@pytest.fixture
async def box(client: RunnerClient, tenant: str) -> AsyncIterator[Box]:
    made = await make_box(client, tenant_id=tenant)
    await made.out(FILL)
    yield made
    await client.destroy(made.id)


async def restored(client: RunnerClient, tenant: str, ref: BlobRef) -> Box:
    return await make_box(client, tenant_id=tenant, snapshot=ref)


async def test_what_is_kept_comes_back_in_another_sandbox(
    box: Box, client: RunnerClient, keeping: RunnerProcess, tenant: str
) -> None:
    taken = await client.snapshot(box.id, new_key(), owner())
    assert (taken.files, taken.folders, taken.links) == (4, 4, 1)
    expected = state(keeping.home(box.id).workspace)
    await client.destroy(box.id)
    again = await restored(client, tenant, taken.manifest)
    assert state(keeping.home(again.id).workspace) == expected
    assert await again.out("cat deep/er/file; echo more >> deep/er/file; rm -r empty; id -u") == "content\n1000\n"
    await client.destroy(again.id)


async def test_a_repeat_answers_what_the_first_one_did(box: Box, client: RunnerClient) -> None:
    key = new_key()
    await box.out("echo x > /tmp/outside")
    first = await client.snapshot(box.id, key, owner(), state=True)
    assert first.state is not None
    assert {row.matter: row.count for row in first.state.rows if not row.clean and row.matter != "room"} == {
        "outside": 1
    }
    await box.out("echo later > deep/er/file")
    assert await client.snapshot(box.id, key, owner()) == first
    later = await client.snapshot(box.id, new_key(), owner())
    assert later.manifest != first.manifest
    assert later.added_bytes < 10_000 < first.added_bytes


async def test_a_fork_stores_what_it_changes_and_no_more(box: Box, client: RunnerClient, tenant: str) -> None:
    taken = await client.snapshot(box.id, new_key(), owner())
    forks = await asyncio.gather(*(restored(client, tenant, taken.manifest) for _ in range(3)))
    for number, fork in enumerate(forks):
        await fork.out(f"echo {number} > mine")
    kept = [await client.snapshot(fork.id, new_key(), owner()) for fork in forks]
    assert len({one.manifest.sha256 for one in kept}) == 3
    assert all(one.added_bytes < 10_000 for one in kept)
    for fork in forks:
        await client.destroy(fork.id)


async def test_it_waits_for_commands_under_way(
    box: Box, client: RunnerClient, keeping: RunnerProcess, tenant: str
) -> None:
    running = asyncio.create_task(box.run("echo half > f; sleep 1; echo whole > f"))
    await until((keeping.home(box.id).workspace / "f").exists)
    taken = await client.snapshot(box.id, new_key(), owner())
    assert (await running).exit_code == 0
    again = await restored(client, tenant, taken.manifest)
    assert await again.out("cat f") == "whole\n"
    await client.destroy(again.id)


async def test_who_was_replaced_keeps_nothing(box: Box, client: RunnerClient) -> None:
    await client.announce(box.id, owner(agent_fence=5))
    with pytest.raises(Fenced):
        await client.snapshot(box.id, new_key(), owner(agent_fence=4))


async def test_another_tenants_snapshot_is_not_there(box: Box, client: RunnerClient) -> None:
    taken = await client.snapshot(box.id, new_key(), owner())
    with pytest.raises(LonghaulError) as caught:
        await make_box(client, tenant_id="somebody", snapshot=taken.manifest)
    assert caught.value.code is ErrorCode.SNAPSHOT_NOT_FOUND


async def test_a_damaged_snapshot_leaves_no_half_sandbox(
    box: Box, client: RunnerClient, keeping: RunnerProcess, tenant: str, shelf: S3Shelf
) -> None:
    taken = await client.snapshot(box.id, new_key(), owner())
    shelf.delete(max(shelf.names("packs/"), key=lambda part: part.bytes).name)
    spec = SandboxSpec(id="sbx_damaged", tenant_id=tenant, task_id="task_1", snapshot=taken.manifest)
    with pytest.raises(LonghaulError) as caught:
        await client.create(spec)
    assert caught.value.code is ErrorCode.SNAPSHOT_FAILED
    assert not list(keeping.data.glob("making/*/workspace/*")), "what is there is empty, and waits for a claim"
    with pytest.raises(LonghaulError) as caught:
        await client.info("sbx_damaged")
    assert caught.value.code is ErrorCode.SANDBOX_NOT_FOUND


async def test_a_runner_that_is_killed_as_it_keeps_is_asked_again(
    box: Box, client: RunnerClient, keeping: RunnerProcess, tenant: str
) -> None:
    await box.out("head -c 40000000 /dev/urandom > huge")
    key = new_key()
    asked = asyncio.create_task(client.snapshot(box.id, key, owner()))
    await asyncio.sleep(0.15)
    keeping.kill()
    keeping.start()
    taken = await asked
    again = await restored(client, tenant, taken.manifest)
    assert state(keeping.home(again.id).workspace) == state(keeping.home(box.id).workspace)
    await client.destroy(again.id)


async def test_a_copy_from_two_sources_is_refused(box: Box, client: RunnerClient, tenant: str) -> None:
    taken = await client.snapshot(box.id, new_key(), owner())
    with pytest.raises(LonghaulError) as caught:
        await make_box(client, tenant_id=tenant, copy_of=box.id, snapshot=taken.manifest)
    assert caught.value.code is ErrorCode.VALIDATION_FAILED
