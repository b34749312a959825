"""Running the tool calls of a reply: in its order, neighbours that only read side by side, each under its key."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from agents.contracts.errors import ErrorCode, FaultClass, LonghaulError
from agents.contracts.model import ModelReply
from agents.contracts.sandbox import Owner
from agents.contracts.tool import ToolResult
from agents.contracts.trajectory import Brief, Turn
from agents.policy.approval import restrict
from agents.tools.arguments import parse_object
from agents.tools.ask import Ask
from agents.tools.control import accepted
from agents.tools.faults import observe
from agents.tools.finish_step import FinishStep
from agents.tools.parse import CheckedCall, CheckedReply, batches, check_reply
from agents.tools.registry import Toolbox, execute
from workflows.gates import Gates, Way, again, irreversible
from workflows.interrupts import Interrupts
from workflows.ports import CallContext, Workbench
from workflows.records import CallRows, Held, Outgoing, Question, Ran

DRAIN_GRACE_S = 2.0
"""What a worker that shuts down still waits for a tool; a command then goes on without it and is attached to later."""

Take = Callable[[Ran], Awaitable[None]]
"""Receives each result once, as soon as it is there."""
Begin = Callable[[CheckedCall], Awaitable[None]]
"""Hears of each call that is about to run."""


@dataclass(frozen=True)
class Rules:
    """What calls are judged by: the tools there are, whether a check of the task failed, and how long a person has to
    decide where the task does not say."""

    toolbox: Toolbox
    failed_checks: bool
    approval_s: float


@dataclass(frozen=True)
class _Batch:
    """Neighbours of one turn that may overlap, and what the rows say of its calls."""

    turn: Turn
    calls: list[CheckedCall]
    rows: CallRows


class Calling:
    """Runs calls through the workbench. Faults of what is around us pass through; they are never results."""

    def __init__(self, bench: Workbench, held: Held, brief: Brief, interrupts: Interrupts, rules: Rules) -> None:
        self._bench = bench
        self._held = held
        self._brief = brief
        self._interrupts = interrupts
        self._rules = rules
        self.gates = Gates(brief, rules.approval_s)
        self._judged: tuple[ModelReply, CheckedReply] | None = None

    @property
    def owner(self) -> Owner:
        """Who this attempt is to the runner."""
        return Owner(
            agent_id=self._held.agent_id, agent_fence=self._held.fence, sandbox_fence=self._brief.sandbox_fence
        )

    def check(self, reply: ModelReply) -> CheckedReply:
        """Judge a reply; what the task denies is refused. A reply is judged when it comes and again when its calls run:
        the second time costs nothing."""
        if self._judged is None or self._judged[0] is not reply:
            role = self._held.place.role
            checked = check_reply(role, reply, self._rules.failed_checks, self._rules.toolbox)
            self._judged = reply, replace(checked, calls=restrict(checked.calls, self._brief.tools))
        return self._judged[1]

    async def run(
        self, turn: Turn, calls: Sequence[CheckedCall], rows: CallRows, take: Take, begin: Begin
    ) -> tuple[Question, ...] | None:
        """Run every call that has no result yet, in the order of the reply; `take` gets each result. None once each has
        one. Otherwise it has stopped at the first call about which a person has to decide, and these questions are
        still to be asked."""
        open_calls = [call for call in calls if turn.results[call.index] is None]
        ways = {call.index: self._way(turn, call, rows) for call in open_calls}
        for call in open_calls:
            if isinstance(known := ways[call.index], ToolResult):
                await take(Ran(call.index, known))
        left = [call for call in open_calls if not isinstance(ways[call.index], ToolResult)]
        ready = list(takewhile(lambda call: ways[call.index] == "run", left))
        for batch in batches(ready):
            question = await self._batch(_Batch(turn, batch, rows), take, begin)
            if question is not None:
                return (question,)
        questions = tuple(way for way in ways.values() if isinstance(way, Question))
        return None if len(ready) == len(left) else questions

    def _way(self, turn: Turn, call: CheckedCall, rows: CallRows) -> Way:
        known = self._bench.known(self._key(turn, call)) if call.refusal is None else None
        return known or self.gates.way(call, rows)

    async def hand_in(self, turn: Turn, call: CheckedCall, before: Sequence[Turn]) -> Ran:
        """What a control call comes to: accepted, or an error where a file that it names cannot be kept."""
        known = self._bench.known(self._key(turn, call))
        if known is not None:
            return Ran(call.index, known)
        if not isinstance(call.arguments, FinishStep):
            return Ran(call.index, accepted(call.call.name))
        context = self._context(turn, call)
        saved = _saved_paths(before)
        for path in dict.fromkeys(call.arguments.artifacts):
            if _plain(path) in saved:
                continue
            try:
                await context.save(path, None)
            except LonghaulError as fault:
                if fault.code.rule.fault is not FaultClass.TOOL:
                    raise
                return Ran(call.index, observe(call.call.name, ErrorCode.ARTIFACT_MISSING, f"{path}: {fault.detail}"))
        return Ran(call.index, accepted(call.call.name), tuple(context.events), tuple(context.artifacts))

    async def question(self, turn: Turn, call: CheckedCall, asked: Ask) -> Outgoing | ToolResult:
        """The question as it goes out, or why it cannot be asked, or what is known to have come of it."""
        known = self._bench.known(self._key(turn, call))
        if known is not None:
            return known
        try:
            return await self._context(turn, call).ask(asked.to, asked.question, asked.timeout_s)
        except LonghaulError as fault:
            if fault.code.rule.fault is not FaultClass.TOOL:
                raise
            return observe(call.call.name, fault.code, fault.detail)

    async def _batch(self, batch: _Batch, take: Take, begin: Begin) -> Question | None:
        """Run neighbours. A question where one that cannot be undone ended nobody knows how; it always runs alone."""
        one_at_a_time = asyncio.Lock()

        async def run_and_take(call: CheckedCall) -> Question | None:
            await begin(call)
            ran = await self._one(batch, call)
            if irreversible(call) and ran.result.error_code is ErrorCode.EXEC_OUTCOME_UNKNOWN:
                return self.gates.unknown(call, batch.rows)
            async with one_at_a_time:
                await take(ran)
            return None

        if len(batch.calls) == 1:
            return await run_and_take(batch.calls[0])
        tasks = [asyncio.ensure_future(run_and_take(call)) for call in batch.calls]
        try:
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            task.result()
        return None

    async def _one(self, batch: _Batch, call: CheckedCall) -> Ran:
        context = self._context(batch.turn, call, again(call, batch.rows))
        result = await self._interrupts.race(_execute(call, context), DRAIN_GRACE_S, context.kill)
        if context.full is not None and result.full is None:
            result = result.model_copy(update={"full": context.full})
        return Ran(call.index, result, tuple(context.events), tuple(context.artifacts), tuple(context.messages))

    def _context(self, turn: Turn, call: CheckedCall, runs_before: int = 0) -> CallContext:
        key = self._key(turn, call)
        return self._bench.context(self._held, self._brief, f"{key}+{runs_before}" if runs_before else key)

    def _key(self, turn: Turn, call: CheckedCall) -> str:
        return self._held.call_key(turn.turn, call.index)


async def _execute(call: CheckedCall, context: CallContext) -> ToolResult:
    assert call.tool is not None  # batches() holds sound work calls only
    assert call.arguments is not None
    return await execute(call.tool, context, call.arguments)


def _saved_paths(turns: Sequence[Turn]) -> set[str]:
    """Files that this agent has kept already with `save_artifact`."""
    paths: set[str] = set()
    for turn in turns:
        for call, result in zip(turn.reply.tool_calls if turn.reply else (), turn.results, strict=False):
            if call.name == "save_artifact" and result is not None and result.ok:
                paths.add(_plain(str(parse_object(call.arguments).get("path", ""))))
    return paths


def _plain(path: str) -> str:
    return "/".join(part for part in path.removeprefix("/workspace/").split("/") if part not in ("", "."))
