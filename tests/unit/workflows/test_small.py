"""The small parts around the loop."""

import asyncio
from concurrent.futures import Future

import pytest
from temporalio.exceptions import ApplicationError

from agents.contracts.errors import RULES, ErrorCode, ErrorInfo, LonghaulError
from agents.contracts.ids import Place, Role, call_key, model_key
from agents.contracts.run import AgentRef, BurstReason, TaskEnd
from agents.contracts.task import StopReason
from agents.contracts.tool import ToolCall
from tests.support.memory import BRIEF, InMemoryLedger, SilentLive, StillClock
from workflows import failures, options, sizes
from workflows.interrupts import Interrupted, Interrupts
from workflows.persist import persist
from workflows.records import Held
from workflows.wording import doing

REF = AgentRef(tenant_id="t", place=Place(task_id="task_1", role=Role.EXECUTOR, step="s"), round=2)


def test_keys_are_those_of_the_contracts() -> None:
    held = Held(REF, 3)
    assert held.model_key(4, 1) == model_key(REF.place, 2, 4, 1)
    assert held.call_key(4, 0) == call_key(REF.place, 2, 4, 0)
    assert held.next() != held.next()
    assert Held(REF, 3).next() == Held(REF, 3).next()  # a retried transaction has the same key


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ((("shell", '{"command": "pytest  -q\\n"}'),), "running: pytest -q"),
        ((("read_file", '{"path": "a"}'), ("read_file", "{}")), "reading: a (+1)"),
        ((("finish_step", "{}"),), "handing in the step"),
        ((("shell", "not json"),), "running"),
        ((("shell", "[1]"),), "running"),
        ((), "asking the model"),
    ],
)
def test_what_an_agent_does_in_words(calls: tuple[tuple[str, str], ...], words: str) -> None:
    assert doing(tuple(ToolCall(id=str(n), name=c[0], arguments=c[1]) for n, c in enumerate(calls))) == words


async def test_passing_faults_are_tried_again_and_others_are_not() -> None:
    tries: list[int] = []

    async def third_time() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise LonghaulError(ErrorCode.STORE_UNAVAILABLE, "away")
        return "there"

    assert await persist(third_time, StillClock(), 60.0) == "there"

    async def refused() -> str:
        tries.append(1)
        raise LonghaulError(ErrorCode.NOT_FOUND, "no")

    with pytest.raises(LonghaulError, match="NOT_FOUND"):
        await persist(refused, StillClock(), 60.0)
    assert len(tries) == 4


async def test_patience_ends() -> None:
    async def away() -> str:
        raise LonghaulError(ErrorCode.STORE_UNAVAILABLE, "away")

    with pytest.raises(LonghaulError, match="STORE_UNAVAILABLE"):
        await persist(away, StillClock(), 0.0)


@pytest.fixture
async def interrupts() -> Interrupts:
    return Interrupts(InMemoryLedger(BRIEF), SilentLive(), REF, Future())


async def test_a_cancel_takes_the_result_that_it_brings_about(interrupts: Interrupts) -> None:
    ended = asyncio.Event()

    async def command() -> str:
        await ended.wait()
        return "killed"

    async def kill() -> None:
        ended.set()

    asyncio.get_running_loop().call_later(0.01, interrupts.cancel)
    assert await interrupts.race(command(), 1.0, kill) == "killed"


async def test_what_does_not_end_is_left(interrupts: Interrupts) -> None:
    left: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            left.append("cancelled")
            raise

    interrupts.cancel()
    with pytest.raises(Interrupted) as stop:
        await interrupts.race(stubborn(), 0.01)
    assert stop.value.reason is BurstReason.CANCELLED
    assert left in (["cancelled"], [])  # it may not even have begun


async def test_our_own_cancellation_ends_the_work_too(interrupts: Interrupts) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    waiter = asyncio.create_task(interrupts.race(work(), 1.0))
    await begun.wait()
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert ended.is_set()


@pytest.mark.parametrize("code", list(ErrorCode))
def test_codes_cross_temporal_and_back(code: ErrorCode) -> None:
    failure = failures.to_application(LonghaulError(code, "words"))
    assert failures.to_info(failure) == ErrorInfo(code=code, detail="words")
    assert failure.non_retryable is not RULES[code].retryable
    assert (code.value in (options.RETRY.non_retryable_error_types or [])) is not RULES[code].retryable


@pytest.mark.parametrize("code", failures.ATTEMPTS)
def test_what_may_never_pass_is_tried_so_often_and_not_for_ever(code: ErrorCode) -> None:
    most = failures.ATTEMPTS[code]
    assert failures.to_application(LonghaulError(code, "words"), most - 1).non_retryable is False
    assert failures.to_application(LonghaulError(code, "words"), most).non_retryable is True


def test_what_is_only_away_is_waited_for_without_end() -> None:
    for code in (ErrorCode.STORE_UNAVAILABLE, ErrorCode.RUNNER_UNAVAILABLE, ErrorCode.FENCED):
        assert failures.to_application(LonghaulError(code, "words"), 10_000).non_retryable is False


def test_a_bug_has_a_code() -> None:
    assert failures.unexpected(KeyError("x")).info == ErrorInfo(code=ErrorCode.INTERNAL, detail="KeyError: 'x'")
    assert failures.to_info(ValueError("plain")).code is ErrorCode.INTERNAL


def test_nothing_large_crosses_temporal(caplog: pytest.LogCaptureFixture) -> None:
    def of(size: int) -> TaskEnd:
        error = ErrorInfo(code=ErrorCode.INTERNAL, detail="x" * size)
        return TaskEnd(stop_reason=StopReason.ERROR, error=error)

    sizes.check([of(100)], "small")
    assert caplog.text == ""
    sizes.check([of(sizes.SOFT_BYTES)], "largish")
    assert "largish" in caplog.text
    with pytest.raises(ApplicationError) as refused:
        sizes.check([of(sizes.HARD_BYTES)], "large")
    assert refused.value.type == "PAYLOAD_TOO_LARGE"
    assert refused.value.non_retryable
