"""A task from its acceptance to its end: the phase machine, its deadline, and the clean end that nothing outlives."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from agents.contracts.errors import ErrorCode, ErrorInfo
    from agents.contracts.run import Controls, Finish, TaskEnd, TaskRun, TaskStart
    from agents.contracts.task import StopReason
    from workflows import options
    from workflows.failures import to_info
    from workflows.phases import HistoryFull, Phases, TaskOver


@workflow.defn(name="TaskWorkflow")
class TaskWorkflow:
    """Plans, executes, reviews; ends in exactly one way. With a long history it continues as new, between steps."""

    @workflow.init
    def __init__(self, begun: TaskRun) -> None:
        self._ref = begun.task
        self._cursors = begun.cursors
        self._signals = 0

    @workflow.run
    async def run(self, begun: TaskRun) -> TaskEnd:
        """The task's end, written to its rows before this returns."""
        try:
            end = await self._supervised()
        except HistoryFull as full:
            # a signal that is lost here is no loss: the new run reads the rows first
            workflow.continue_as_new(begun.model_copy(update={"cursors": full.cursors}))
        except asyncio.CancelledError:
            end = _CANCELLED
        except Exception as error:
            end = _ended_by(error)
        return await self._finish(end)

    @workflow.signal(name="control")
    def control(self, control_seq: int) -> None:
        """A control row is newer than before; what it says is read from the row."""
        self._signals += 1

    async def _supervised(self) -> TaskEnd:
        """Run the phases; a cancel request or the deadline cancels them and waits until their children are gone."""
        try:
            start = await workflow.execute_activity("begin_task", self._ref, result_type=TaskStart, **options.QUICK)
        except Exception as error:
            return _ended_by(error)
        if start.cancel_requested:
            return TaskEnd(stop_reason=StopReason.CANCELLED)
        phases = Phases(self._ref, start, self._cursors)
        main = asyncio.create_task(_run(phases))
        stops = [asyncio.create_task(self._cancel_requested())]
        if start.deadline_s is not None:
            stops.append(asyncio.create_task(_deadline(start.deadline_s)))
        stopped: list[asyncio.Task[TaskEnd]] = []
        try:
            await workflow.wait([main, *stops], return_when=asyncio.FIRST_COMPLETED)
            stopped = [] if main.done() else [stop for stop in stops if stop.done()]
        finally:
            if not main.done():
                phases.stop()
            await _cancel_all([*stops, main] if not main.done() else stops)
        return stopped[0].result() if stopped else main.result()

    async def _cancel_requested(self) -> TaskEnd:
        """Return once the rows say that the task shall be cancelled; signals only wake."""
        seen = 0
        while True:
            await workflow.wait_condition(lambda before=seen: self._signals > before)  # type: ignore[misc]
            seen = self._signals
            controls = await workflow.execute_activity(
                "read_controls", self._ref, result_type=Controls, **options.QUICK
            )
            if controls.cancel_requested:
                return _CANCELLED

    async def _finish(self, end: TaskEnd) -> TaskEnd:
        """Nothing stops this: it ends everything that still runs and only then says that the task has ended."""
        finish = asyncio.create_task(
            workflow.execute_activity(
                "finish_task", Finish(task=self._ref, end=end), result_type=TaskEnd, **options.ENDING
            )
        )
        while not finish.done():
            try:
                await asyncio.shield(finish)
            except asyncio.CancelledError:
                continue
        done: TaskEnd = finish.result()
        return done


_CANCELLED = TaskEnd(stop_reason=StopReason.CANCELLED)


async def _run(phases: Phases) -> TaskEnd:
    try:
        return await phases.run()
    except TaskOver as over:
        return over.end
    except HistoryFull:
        raise
    except Exception as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error
        return _ended_by(error)


async def _deadline(seconds: float) -> TaskEnd:
    await asyncio.sleep(max(0.0, seconds))
    detail = f"the limit wall_s left {seconds:.0f} s when work began; raise it or ask for less"
    return TaskEnd(stop_reason=StopReason.DEADLINE, error=ErrorInfo(code=ErrorCode.DEADLINE_EXCEEDED, detail=detail))


def _ended_by(error: BaseException) -> TaskEnd:
    """An error that no phase expected ends the task with its code, where anyone can see it."""
    workflow.logger.error("task ends by an error", extra={"error": str(error)})
    return TaskEnd(stop_reason=StopReason.ERROR, error=to_info(error))


async def _cancel_all(tasks: list["asyncio.Task[TaskEnd]"]) -> None:
    """Cancel and wait until each is over: a child workflow is over when its last activity is."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                continue
            except Exception:  # the caller asks the task itself
                break
