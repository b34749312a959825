"""What a replay found, in lines for people: the first difference of each agent whole, the others counted."""

from collections.abc import Iterator
from pathlib import Path

from services.cli.words import count, one_line
from workflows.replay.differences import AgentReplay, Difference, Replay

_SIDE_CHARS = 400


def lines(replay: Replay, file: Path) -> Iterator[str]:
    """All of them."""
    calls, agents = count(replay.calls, "call"), count(len(replay.agents), "agent")
    yield f"{file}: {replay.task_id} ({replay.status}), {calls} of {agents}"
    shown: dict[str, str] = {}
    for agent in replay.agents:
        yield from _agent(agent, shown)
    for note in replay.notes:
        yield f"Note: {one_line(note, 600)}"
    differing = [agent for agent in replay.agents if agent.differences]
    if replay.same:
        yield "Same: today's code asks and decides as it did then."
    else:
        found = sum(len(agent.differences) for agent in differing)
        yield f"Differs: {count(found, 'difference')} in {len(differing)} of {agents}."


def _agent(agent: AgentReplay, shown: dict[str, str]) -> Iterator[str]:
    if not agent.differences:
        yield f"  same     {agent.agent}  {count(agent.calls, 'call')}"
        return
    yield f"  differs  {agent.agent}  {count(agent.calls, 'call')} compared"
    first, *more = agent.differences
    yield from _difference(first, shown)
    stop = next((d for d in more if d.kind == "decision"), None)
    texts = [d for d in more if d is not stop]
    fresh = sum(1 for d in texts if d.diff or d.kind != "request")
    if texts:
        yield f"    and {len(texts)} more ({fresh} of another kind or place; --json shows all)"
    if stop is not None:
        yield from _difference(stop, shown)
    if agent.stopped_at is not None:
        yield "    What this agent did after that cannot be compared."


def _difference(d: Difference, shown: dict[str, str]) -> Iterator[str]:
    """`shown` are the diffs printed so far, each with the call where it was."""
    yield f"    at {d.call}: {d.what}"
    if d.then is not None or d.now is not None:
        yield f"      then: {one_line(d.then or '', _SIDE_CHARS)}"
        yield f"      now:  {one_line(d.now or '', _SIDE_CHARS)}"
    if d.diff and d.diff in shown:
        yield f"      the same as at {shown[d.diff]}"
        return
    shown[d.diff] = d.call
    for line in d.diff.splitlines():
        yield "      " + "".join(c if c.isprintable() else " " for c in line)
