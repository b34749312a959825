"""An agent's complete turns with the prompt they make, and the trajectories that a worker keeps between bursts.

A complete turn never changes in the ledger, so what a burst had when it left the round open still holds when the next
one begins, whoever had the agent in between: only what has come since is read. Else every burst would read the whole
history.
"""

from collections import OrderedDict

from agents.context.render import CHARS_PER_TOKEN, Prompts, Rendered, Renderer
from agents.contracts.ids import Place
from agents.contracts.trajectory import Brief, Turn

MAX_TURNS = 10_000
"""All that is kept by one worker, in turns; about 5 KiB each besides their texts."""
MAX_CHARS = 32_000_000
"""And in characters of their prompts."""


class Trajectory:
    """Complete turns in order, and the prompt as it grows with them."""

    def __init__(self, prompts: Prompts, brief: Brief) -> None:
        self.brief = brief
        self.turns: list[Turn] = []
        self._prompts = prompts
        self._renderer = Renderer(prompts, brief)
        self._estimate: int | None = None

    def emptied(self) -> "Trajectory":
        """The same agent's, without a turn."""
        return Trajectory(self._prompts, self.brief)

    @property
    def last(self) -> tuple[int, int] | None:
        """Round and turn of the last one."""
        return (self.turns[-1].round, self.turns[-1].turn) if self.turns else None

    @property
    def chars(self) -> int:
        """The length of the prompt."""
        return self._renderer.chars

    def push(self, turn: Turn) -> None:
        """Take in a complete turn: it becomes part of what every later prompt begins with."""
        self._renderer.push(turn)
        self.turns.append(turn)
        if self._estimate is not None:
            self._estimate += _tokens(turn)

    def open(self, turn: Turn) -> Rendered:
        """The prompt that asks for `turn`."""
        rendered = self._renderer.open(turn)
        self._estimate = rendered.prompt_tokens_estimate
        return rendered

    def prompt_tokens(self, turn: Turn) -> int:
        """About how long the prompt that asks for `turn` will be: that of the last one and what has come since."""
        return self._estimate if self._estimate is not None else self.open(turn).prompt_tokens_estimate


class Kept:
    """Trajectories of agents whose round goes on; those used longest ago make room. Build one per worker."""

    def __init__(self, max_turns: int = MAX_TURNS, max_chars: int = MAX_CHARS) -> None:
        self._max = (max_turns, max_chars)
        self._by_agent: OrderedDict[str, Trajectory] = OrderedDict()

    def take(self, place: Place, brief: Brief) -> Trajectory | None:
        """The agent's trajectory, no longer kept: two attempts never share one. None where another brief began it."""
        kept = self._by_agent.pop(place.agent_id, None)
        return kept if kept is not None and kept.brief == brief else None

    def put(self, place: Place, trajectory: Trajectory) -> None:
        """Keep one, all of whose turns are stored."""
        self._by_agent.pop(place.agent_id, None)
        self._by_agent[place.agent_id] = trajectory
        while self._by_agent and self._too_much():
            self._by_agent.popitem(last=False)

    def _too_much(self) -> bool:
        kept = self._by_agent.values()
        max_turns, max_chars = self._max
        return sum(len(t.turns) for t in kept) > max_turns or sum(t.chars for t in kept) > max_chars


def _tokens(turn: Turn) -> int:
    """About what a turn adds to every later prompt."""
    reply = turn.reply
    said = len(reply.text) + sum(len(c.arguments) for c in reply.tool_calls) if reply else 0
    return (said + sum(len(result.content) + 100 for result in turn.results if result)) // CHARS_PER_TOKEN
