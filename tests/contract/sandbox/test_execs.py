"""Commands: what comes back, and that nothing outlives its time."""

import asyncio

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import OUTPUT_CAP_BYTES, ExecState, Trait
from tests.contract.sandbox.runner import (
    Box,
    RunnerProcess,
    ask,
    instance_of,
    new_key,
    owner,
    sleeping,
    until,
    write_intent,
)


async def test_exit_code_and_one_stream_of_output(box: Box) -> None:
    status = await box.run("echo out; echo err >&2; pwd; exit 7")
    assert (status.state, status.exit_code, status.reason) == (ExecState.EXITED, 7, "exited")
    assert status.output == "out\nerr\n/workspace\n"
    assert status.total_bytes == len(status.output)
    assert status.started


async def test_a_repeat_attaches_and_runs_nothing(box: Box) -> None:
    request = ask("echo once >> ran; cat ran")
    first, second = await box.client.exec(box.id, request), await box.client.exec(box.id, request)
    assert first.started
    assert first.model_copy(update={"started": False}) == second
    assert await box.out("wc -l < ran") == "1\n"


async def test_many_repeats_at_once_start_it_once(box: Box) -> None:
    request = ask("echo once >> ran; sleep 0.3; cat ran")
    statuses = await asyncio.gather(*(box.client.exec(box.id, request) for _ in range(10)))
    assert {status.output for status in statuses} == {"once\n"}
    assert sum(status.started for status in statuses) == 1


async def test_an_id_used_for_another_command_is_refused(box: Box) -> None:
    name = new_key()
    await box.run("true", exec_id=name)
    with pytest.raises(LonghaulError) as caught:
        await box.run("false", exec_id=name)
    assert caught.value.code is ErrorCode.VALIDATION_FAILED


async def test_a_signal_is_128_plus_its_number(box: Box) -> None:
    status = await box.run("kill -SEGV $$")
    assert (status.exit_code, status.reason) == (139, "signal")


async def test_stdin_is_at_its_end(box: Box) -> None:
    assert await box.out("cat; echo done") == "done\n"


async def test_bytes_that_are_not_utf8_and_no_last_newline(box: Box) -> None:
    status = await box.run(r"printf 'a\377\376b'")
    assert (status.output, status.total_bytes) == ("a��b", 4)


async def test_much_output_keeps_head_and_tail(box: Box) -> None:
    status = await box.run("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert (status.truncated, status.total_bytes) == (True, 3_000_012)
    assert status.output.startswith("first\n")
    assert status.output.endswith("\nlast\n")
    left_out = 3_000_012 - OUTPUT_CAP_BYTES
    assert f"\n[... {left_out} bytes left out ...]\n" in status.output
    assert len(status.output) < OUTPUT_CAP_BYTES + 100


@pytest.mark.parametrize("size", [OUTPUT_CAP_BYTES // 2, OUTPUT_CAP_BYTES - 1, OUTPUT_CAP_BYTES, OUTPUT_CAP_BYTES + 1])
async def test_output_at_the_edge_of_the_cap(box: Box, size: int) -> None:
    status = await box.run(f"head -c {size} /dev/zero | tr '\\0' x")
    assert (status.total_bytes, status.truncated) == (size, size > OUTPUT_CAP_BYTES)
    assert status.output.count("x") == min(size, OUTPUT_CAP_BYTES)


async def test_a_gigabyte_of_output_in_bounded_memory(box: Box, runner: RunnerProcess) -> None:
    before = _resident_mb(runner)
    running = asyncio.create_task(box.run("head -c 1000000000 /dev/zero", timeout_s=60))
    peak = 0
    while not running.done():
        peak = max([peak, *(_rss_mb(pid) for pid in [*runner.watch.supervisors(), *runner.watch.commands()])])
        await asyncio.sleep(0.05)
    status = await running
    assert (status.total_bytes, status.exit_code) == (1_000_000_000, 0)
    if Trait.OWN_KERNEL not in (await box.client.capabilities()).traits:  # a kernel has memory of its own
        assert 0 < peak < 16, f"the supervisor grew to {peak} MB"
    assert _resident_mb(runner) - before < 40


def _resident_mb(runner: RunnerProcess) -> int:
    assert runner.process is not None
    return _rss_mb(runner.process.pid)


def _rss_mb(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * 4096 >> 20
    except OSError:
        return 0


async def test_a_grandchild_with_the_pipe_does_not_hold_the_exec(box: Box) -> None:
    status = await asyncio.wait_for(box.run("sleep 55555 & echo done"), 10)
    assert (status.output, status.exit_code) == ("done\n", 0)
    if Trait.ADOPTS_ORPHANS in (await box.client.capabilities()).traits:
        assert not sleeping("55555")


async def test_timeout_ends_everything_whatever_its_session(box: Box) -> None:
    mark = "54321.25"
    command = f"(setsid sh -c 'trap \"\" TERM; sleep {mark}; sleep {mark}' &) ; nohup sleep {mark} & sleep {mark}"
    status = await box.run(command, timeout_s=1)
    assert (status.reason, status.exit_code) == ("timeout", 143)
    assert status.duration_ms >= 1000
    if Trait.ADOPTS_ORPHANS in (await box.client.capabilities()).traits:
        assert not sleeping(mark)


async def test_timeout_ends_what_ignores_the_polite_signal(box: Box) -> None:
    status = await box.run("trap '' TERM; while :; do sleep 0.1; done", timeout_s=2)
    assert (status.reason, status.exit_code) == ("timeout", 137)


async def test_kill_ends_it_and_says_so(box: Box) -> None:
    request = ask("echo begun; sleep 54321.5")
    running = asyncio.create_task(box.client.exec(box.id, request))
    await until(lambda: sleeping("54321.5"))
    await box.client.kill(box.id, request.exec_id, owner())
    assert not sleeping("54321.5")
    status = await running
    assert (status.reason, status.output) == ("killed", "begun\n")


async def test_kill_all_returns_when_none_is_left(box: Box) -> None:
    waiting = [asyncio.create_task(box.run("sleep 54321.75")) for _ in range(4)]
    await until(lambda: len(sleeping("54321.75")) >= 4)
    await box.client.kill_all(box.id, owner())
    assert not sleeping("54321.75")
    assert {status.reason for status in await asyncio.gather(*waiting)} == {"killed"}


async def test_kill_of_what_is_journaled_and_not_begun_wins(box: Box, runner: RunnerProcess) -> None:
    await box.run("true")
    request = ask("echo ran > ran")
    write_intent(runner.home(box.id), request, instance_of(runner.home(box.id)))
    await box.client.kill(box.id, request.exec_id, owner())
    status = await box.client.exec(box.id, request)
    assert (status.reason, status.started) == ("killed", False)
    assert await box.out("ls") == ""


async def test_twenty_at_once(box: Box) -> None:
    statuses = await asyncio.gather(*(box.run(f"sleep 0.2; echo {n}", timeout_s=60) for n in range(20)))
    assert [status.output for status in statuses] == [f"{n}\n" for n in range(20)]


async def test_two_at_once_are_two_and_share_the_sandbox(box: Box) -> None:
    both = await asyncio.gather(
        box.run("until test -e mark; do sleep 0.01; done; cat mark"), box.run("sleep 0.2; echo seen > mark")
    )
    assert [status.output for status in both] == ["seen\n", ""]


async def test_what_kills_all_it_can_see_ends_itself_and_no_more_than_its_sandbox(box: Box) -> None:
    other = asyncio.create_task(box.run("sleep 54320.5"))
    await until(lambda: sleeping("54320.5"))
    status = await asyncio.wait_for(box.run("kill -9 -1; kill -9 1; kill -9 $$; sleep 54320.75"), 20)
    assert status.reason in ("lost", "signal")
    told = await asyncio.wait_for(other, 20)
    if Trait.SUPERVISOR_APART in (await box.client.capabilities()).traits:
        assert told.exit_code == 137, "whoever watches over it lives, and knows how it ended"
    assert told.reason in ("lost", "signal")
    assert not sleeping("54320.5")
    assert not sleeping("54320.75")
    assert await box.out("echo again") == "again\n"


async def test_environment_reaches_the_command_and_ours_does_not(box: Box) -> None:
    request = ask("echo $GREETING; env").model_copy(update={"env": {"GREETING": "hello"}})
    output = (await box.client.exec(box.id, request)).output
    assert output.startswith("hello\n")
    assert "LONGHAUL" not in output
    assert "PATH=/opt/longhaul/venv/bin:" in output


@pytest.mark.parametrize("command", ["echo a\0b", "echo " + "x" * 130_000], ids=["zero byte", "too long"])
async def test_a_command_that_no_system_could_start(box: Box, command: str) -> None:
    with pytest.raises(LonghaulError) as caught:
        await box.run(command)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENTS


async def test_a_long_command_runs(box: Box) -> None:
    assert await box.out("echo " + "x" * 110_000 + " | wc -c") == "110001\n"
