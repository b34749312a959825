"""The runner, a sandbox or the launcher is killed: nothing runs twice, nothing is lost untold, nothing is left over."""

import asyncio
import json
import os
import random
from pathlib import Path

import pytest

from agents.contracts.errors import ErrorCode, Fenced, LonghaulError
from agents.contracts.sandbox import ExecState, WriteFile
from services.sandbox.client import RunnerClient
from tests.contract.sandbox.runner import (
    Box,
    RunnerProcess,
    ask,
    instance_of,
    make_box,
    new_key,
    owner,
    sleeping,
    until,
    write_intent,
)

COUNT = "echo once >> ran; for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.2; done; cat ran"


async def test_a_runner_killed_in_the_middle_is_attached_to(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        running = asyncio.create_task(client.exec(box.id, ask(COUNT)))
        await until(lambda: own_runner.watch.commands())
        await asyncio.sleep(0.5)
        own_runner.kill()
        await asyncio.sleep(0.3)
        assert own_runner.watch.commands(), "the command goes on without a runner"
        own_runner.start()
        status = await running
        assert (status.exit_code, status.reason, status.started) == (0, "exited", True)
        assert status.output == "".join(f"line {n}\n" for n in range(1, 11)) + "once\n"


async def test_a_command_that_ends_while_no_runner_lives_is_not_lost(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        request = ask("echo once >> ran; sleep 0.5; cat ran")
        running = asyncio.create_task(client.exec(box.id, request))
        await until(lambda: own_runner.watch.commands())
        own_runner.kill()
        await until(lambda: not own_runner.watch.commands())
        own_runner.start()
        assert (await running).output == "once\n"
        assert (await client.exec(box.id, request)).output == "once\n"


async def test_a_runner_killed_between_intent_and_start_starts_it_once(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        await box.run("true")
        request = ask("echo once >> ran; cat ran")
        own_runner.kill()
        write_intent(own_runner.home(box.id), request, instance_of(own_runner.home(box.id)))
        own_runner.start()
        statuses = [await client.exec(box.id, request) for _ in range(2)]
        assert [status.output for status in statuses] == ["once\n"] * 2


@pytest.mark.parametrize("instance", ["ab" * 16, ""], ids=["another supervisor", "the version before"])
async def test_what_another_supervisor_may_have_run_is_lost(own_runner: RunnerProcess, instance: str) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        request = ask("echo ran > ran")
        write_intent(own_runner.home(box.id), request, instance)
        (own_runner.home(box.id).exec_folder(request.exec_id) / "started.json").write_text('{"pid": 1, "at": 2.0}')
        for _ in range(2):
            status = await client.exec(box.id, request)
            assert (status.state, status.reason, status.started) == (ExecState.LOST, "lost", False)
        assert await box.out("ls") == ""


async def test_an_end_that_the_version_before_recorded_is_answered(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        request, home = ask("echo said; exit 3"), own_runner.home(box.id)
        write_intent(home, request, "")
        folder = home.exec_folder(request.exec_id)
        (folder / "output.bin").write_bytes((5).to_bytes(8, "little") + b"said\n")
        ended = {"exit_code": 3, "reason": "exited", "total_bytes": 5, "duration_ms": 12, "started_at": 1767225600.5}
        (folder / "exit.json").write_text(json.dumps(ended))
        status = await client.exec(box.id, request)
        assert (status.exit_code, status.reason, status.output) == (3, "exited", "said\n")
        assert (status.duration_ms, status.started_at.year) == (12, 2026)


async def test_a_runner_killed_between_the_end_and_its_record(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        request = ask("echo once >> ran; cat ran; sleep 0.5; head -c 700000 /dev/zero | tr '\\0' x")
        running = asyncio.create_task(client.exec(box.id, request))
        await until(lambda: own_runner.watch.commands())
        in_the_way = own_runner.home(box.id).exec_folder(request.exec_id) / "exit.json"
        in_the_way.mkdir()
        await until(lambda: not own_runner.watch.commands())
        await asyncio.sleep(0.5)
        assert not running.done(), "without a record it has no end"
        own_runner.kill()
        in_the_way.rmdir()
        own_runner.start()
        for status in (await running, await client.exec(box.id, request)):
            assert (status.exit_code, status.output) == (0, "once\n" + "x" * 700_000)


async def test_a_killed_sandbox_means_lost_and_never_a_second_start(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        request = ask("echo once >> ran; sleep 65432.5")
        running = asyncio.create_task(client.exec(box.id, request))
        await until(lambda: sleeping("65432.5"))
        assert own_runner.watch.kill(own_runner.home(box.id).root)
        status = await running
        assert (status.state, status.reason, status.exit_code) == (ExecState.LOST, "lost", None)
        await until(lambda: not sleeping("65432.5"))
        assert (await client.exec(box.id, request)).state is ExecState.LOST
        assert await box.out("cat ran") == "once\n"


async def test_a_sandbox_that_was_killed_while_no_runner_lived(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        request = ask("echo once >> ran; sleep 65432.25")
        running = asyncio.create_task(client.exec(box.id, request))
        await until(lambda: sleeping("65432.25"))
        own_runner.kill()
        assert own_runner.watch.kill(own_runner.home(box.id).root)
        own_runner.start()
        assert (await running).state is ExecState.LOST
        assert await box.out("cat ran") == "once\n"


async def test_ends_that_nobody_asks_for_are_collected(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        request = ask("sleep 0.3; echo done")
        running = asyncio.create_task(client.exec(box.id, request))
        await until(lambda: own_runner.watch.commands())
        own_runner.kill()
        running.cancel()
        await until(lambda: not own_runner.watch.commands())
        own_runner.start()
        await until((own_runner.home(box.id).exec_folder(request.exec_id) / "exit.json").exists)
        own_runner.kill()
        assert own_runner.watch.kill(own_runner.home(box.id).root)
        own_runner.start()
        assert (await client.exec(box.id, request)).output == "done\n"


async def test_the_launchers_end_ends_every_command(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        request = ask("echo begun; trap '' TERM; sleep 65432.75")
        running = asyncio.create_task(client.exec(box.id, request))
        await until(lambda: sleeping("65432.75"))
        own_runner.kill()  # nobody is left who could tell the sandbox but the pipe
        own_runner.hang_up()
        await until(lambda: not sleeping("65432.75") and not own_runner.watch.supervisors())
        own_runner.start()
        for status in (await running, await client.exec(box.id, request)):
            assert (status.reason, status.exit_code, status.output) == ("killed", 137, "begun\n")


async def test_an_end_that_came_before_the_launchers_is_told_as_it_was(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        request = ask("sleep 0.4; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end; exit 5")
        running = asyncio.create_task(client.exec(box.id, request))
        await until(lambda: own_runner.watch.commands())
        own_runner.kill()
        await until(lambda: not own_runner.watch.commands())
        own_runner.hang_up()
        await until(lambda: not own_runner.watch.supervisors())
        own_runner.start()
        status = await running
        assert (status.reason, status.exit_code, status.total_bytes) == ("exited", 5, 3_000_005)
        assert status.output.endswith("x\nend\n")
        assert f"\n[... {3_000_005 - (1 << 20)} bytes left out ...]\n" in status.output


async def test_a_runner_stops_with_its_launcher(own_runner: RunnerProcess) -> None:
    own_runner.hang_up()
    assert own_runner.process is not None
    assert await asyncio.to_thread(own_runner.process.wait, 10) == 0


async def test_stopping_is_quick_while_a_command_runs(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        running = asyncio.create_task(client.exec(box.id, ask("sleep 1.5; echo done")))
        await until(lambda: own_runner.watch.commands())
        assert await asyncio.to_thread(own_runner.stop) == 0
        own_runner.start()
        assert (await running).output == "done\n"


async def test_fences_and_files_are_remembered_over_a_crash(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        request = WriteFile(key=new_key(), owner=owner(3), path="a.txt", content="first")
        change = await client.write_file(box.id, request)
        await client.announce(box.id, owner(5))
        own_runner.kill()
        own_runner.start()
        with pytest.raises(Fenced):
            await client.write_file(box.id, request)
        await box.client.exec(box.id, ask("echo changed > a.txt", by=owner(5)))
        again = await client.write_file(box.id, request.model_copy(update={"owner": owner(5)}))
        assert again == change
        status = await box.client.exec(box.id, ask("cat a.txt", by=owner(5)))
        assert status.output == "changed\n", "a repeat does nothing"


@pytest.mark.parametrize("renamed", [False, True])
async def test_a_write_cut_at_its_rename(own_runner: RunnerProcess, *, renamed: bool) -> None:
    """The journal holds the change, not done; the staged file tells whether the rename took place."""
    async with own_runner.client() as client:
        box = await make_box(client)
        request = WriteFile(key=new_key(), owner=owner(), path="a.txt", content="text")
        change = await client.write_file(box.id, request)
        own_runner.kill()
        home = own_runner.home(box.id)
        journal = home.journal(request.key)
        journal.write_text(json.dumps(json.loads(journal.read_text()) | {"done": False}))
        if not renamed:
            (home.workspace / "a.txt").rename(home.staging / journal.stem)
        own_runner.start()
        await box.run("echo later >> a.txt" if renamed else "true")
        assert await client.write_file(box.id, request) == change
        assert await box.out("cat a.txt") == ("textlater\n" if renamed else "text")


async def test_what_was_half_made_or_marked_gone_is_removed(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box, kept = await make_box(client), await make_box(client)
        own_runner.kill()
        home = own_runner.home(box.id)
        home.gone.touch()
        _give_like(home.gone, own_runner.data)
        upload = own_runner.home(kept.id).staging / "upload-1"
        upload.touch()
        _give_like(upload, own_runner.data)
        half, odd = own_runner.data / "making" / "sbx_half-1", own_runner.data / "sandboxes" / "sbx_odd"
        for folder in (half, odd):
            (folder / "workspace" / "deep").mkdir(parents=True)
            _give_like(folder, own_runner.data)
        own_runner.start()
        await until(lambda: not home.root.exists() and not half.exists() and not odd.exists())
        with pytest.raises(LonghaulError) as caught:
            await client.info(box.id)
        assert caught.value.code is ErrorCode.SANDBOX_NOT_FOUND
        assert (await client.info(kept.id)).id == kept.id
        assert not upload.exists()


def _give_like(folder: Path, like: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, like.stat().st_uid, like.stat().st_gid)


async def test_files_that_are_gone_are_a_lost_sandbox(own_runner: RunnerProcess) -> None:
    async with own_runner.client() as client:
        box = await make_box(client)
        own_runner.home(box.id).workspace.rename(own_runner.data / "elsewhere")
        with pytest.raises(LonghaulError) as caught:
            await box.run("true")
        assert caught.value.code is ErrorCode.SANDBOX_LOST
        await client.destroy(box.id)


async def test_a_second_runner_on_the_same_folder_is_refused(own_runner: RunnerProcess, template: Path) -> None:
    second = RunnerProcess(own_runner.place, template, own_runner.engine)
    second.switch, second.data, kept = own_runner.switch, own_runner.data, second.data
    try:
        with pytest.raises(AssertionError, match="another runner"):
            second.start()
    finally:
        second.data = kept
        second.remove()
        assert own_runner.lives()


async def test_no_runner_is_said_after_the_patience(own_runner: RunnerProcess) -> None:
    own_runner.kill()
    async with RunnerClient(own_runner.url, "x", patience_s=0.5) as client:
        with pytest.raises(LonghaulError) as caught:
            await client.capabilities()
    assert caught.value.code is ErrorCode.RUNNER_UNAVAILABLE


async def test_a_runner_killed_again_and_again_runs_each_command_once(own_runner: RunnerProcess) -> None:
    chance, done = random.Random(7), asyncio.Event()
    async with own_runner.client() as client:
        boxes = [await make_box(client) for _ in range(2)]

        async def work(box: Box, worker: int) -> list[str]:
            names: list[str] = []
            while not done.is_set():
                names.append(f"{worker}-{len(names)}")
                size = chance.choice([0, 10, 70_000])
                body = f"head -c {size} /dev/zero | tr '\\0' x; sleep {chance.choice([0, 0.05, 0.3])}"
                status = await box.run(f"echo {names[-1]} >> ran; {body}; echo {names[-1]}")
                assert (status.reason, status.started) == ("exited", True)
                assert status.output == "x" * size + names[-1] + "\n"
            return names

        working = [asyncio.create_task(work(box, n)) for n, box in enumerate(boxes * 2)]
        for _ in range(8):
            await asyncio.sleep(chance.uniform(0.05, 0.8))
            own_runner.kill()
            await asyncio.to_thread(own_runner.start, ready=False)
        done.set()
        asked = sorted(name for names in await asyncio.gather(*working) for name in names)
        ran = [name for box in boxes for name in (await box.out("cat ran")).split()]
        assert sorted(ran) == asked
