"""The state of real sandboxes: a fresh one is clean; what is not as it should be is said; a snapshot carries it."""

import asyncio
from pathlib import Path

from agents.contracts.sandbox import StateReport, StateRow
from services.sandbox.client import RunnerClient
from tests.contract.sandbox.runner import Box, RunnerProcess, ask, make_box, owner, until

MATTERS = ("processes", "base", "clock", "outside", "room")


def row(report: StateReport, matter: str) -> StateRow:
    return next(row for row in report.rows if row.matter == matter)


async def test_a_fresh_one_is_clean(client: RunnerClient, box: Box) -> None:
    await box.out("echo x > file")
    report = await client.quality(box.id)
    assert tuple(row.matter for row in report.rows) == MATTERS
    assert not report.fault
    assert [row for row in report.rows if not row.clean and row.matter != "room"] == []
    assert await client.quality(box.id) != report, "it is looked at anew"
    assert await box.out("cat file; find /tmp -type f | grep -v matplotlib || true") == "x\n", "looking leaves no trace"


async def test_what_runs_still_is_named(client: RunnerClient, box: Box) -> None:
    running = asyncio.create_task(client.exec(box.id, ask("sleep 99 & sleep 98; wait", exec_id="long")))
    try:
        for _ in range(200):
            found = row(await client.quality(box.id), "processes")
            if found.count == 3:
                break
        assert not found.clean
        assert sorted(found.detail.split(", ")) == ["sh", "sleep", "sleep"]
    finally:
        await client.kill(box.id, "long", owner())
        await running
    assert row(await client.quality(box.id), "processes").clean


async def test_what_was_written_outside_the_workspace_is_counted(client: RunnerClient, box: Box) -> None:
    await box.out("mkdir -p ~/.cache/x && printf 12345 > ~/.cache/x/y && printf 123 > /tmp/z && ln -s / /tmp/root")
    found = row(await client.quality(box.id), "outside")
    assert (found.clean, found.count, found.bytes) == (False, 2, 8)
    assert "/tmp/z" in found.detail


async def test_a_change_of_the_base_is_seen(own_runner: RunnerProcess) -> None:
    hosts = own_runner.data / "shared" / "etc" / "hosts"
    async with own_runner.client() as client:
        box = await make_box(client)
        assert row(await client.quality(box.id), "base").clean
        await until(lambda: _changed_later(hosts, hosts.read_bytes()))
        found = row(await client.quality(box.id), "base")
        assert (found.clean, found.count, found.detail) == (False, 1, "/etc/hosts")
        await client.destroy(box.id)
    own_runner.kill()  # the next one has a base of its own making


def _changed_later(path: Path, data: bytes) -> bool:
    path.write_bytes(data)
    return path.stat().st_ctime_ns > path.parent.parent.joinpath("laid").stat().st_ctime_ns
