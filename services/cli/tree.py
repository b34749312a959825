"""The live picture of a task: its state, the plan as a tree, who does what since when, what a model is writing."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rich.console import Console, Group, RenderableType
from rich.text import Text

from agents.contracts.event import Event
from agents.contracts.ids import FINAL_STEP, PLAN_STEP
from agents.contracts.model import Delta
from agents.contracts.task import AgentView, StepState, StepView, TaskView
from services.cli.fit import Row, fit
from services.cli.words import age, approve_command, arguments_line, awaited, count, one_line

_MARKS: dict[StepState, tuple[str, str]] = {
    "pending": ("○", "dim"),
    "running": ("◐", "cyan"),
    "reviewing": ("◑", "magenta"),
    "completed": ("●", "green"),
    "failed": ("✗", "red"),
}
_AGENT = 1
_RANKS: dict[StepState, int] = {"running": 2, "reviewing": 2, "failed": 3, "pending": 5, "completed": 6}
_WORDS = 4
"""What goes first where there is too little room: see `fit.Row`."""
_PLAIN_MARKS = {"○": " ", "◐": ">", "◑": "?", "●": "+", "✗": "x"}


@dataclass
class Picture:
    """What the live view shows of a task. `view` was read at `read_at` of our own clock; `link` tells of the connection
    alone. A picture with a `label` is one of several: it says which, and folds once its task has ended."""

    label: str = ""
    view: TaskView | None = None
    read_at: datetime | None = None
    link: str = "ok"
    delta: Delta | None = None
    delta_text: str = ""
    asked: dict[str, str] = field(default_factory=dict)
    """What waits for a person, by the approval's id: the call in words."""

    def told(self, event: Event) -> None:
        """An event: what waits for a person comes and goes by these."""
        d = event.data
        if d.type == "approval.requested":
            self.asked[d.approval_id] = f"{d.tool} {arguments_line(d.arguments)}"
        elif d.type in ("approval.decided", "approval.expired"):
            self.asked.pop(d.approval_id, None)

    def saw(self, view: TaskView, now: datetime) -> None:
        """A new reading of the task."""
        self.view, self.read_at, self.link = view, now, "ok"

    def heard(self, delta: Delta) -> None:
        """A piece of a reply: text of an older try is dropped, and so is that of another call."""
        old = self.delta
        if old and old.key == delta.key and old.fence > delta.fence:
            return
        same = old is not None and (old.key, old.fence) == (delta.key, delta.fence)
        self.delta_text = (self.delta_text if same else "")[-2_000:] + delta.text
        self.delta = delta

    def render(self, console: Console, now: datetime, room: int | None = None) -> RenderableType:
        """The picture at a moment of our own clock, in at most `room` rows, none wider than the terminal."""
        rows = self.rows(console, now)
        lines = fit(rows, len(rows) if room is None else room)
        for line in lines:
            line.truncate(max(20, console.width - 1), overflow="ellipsis")
        return Group(*lines)

    def rows(self, console: Console, now: datetime) -> list[Row]:
        """All of its rows."""
        if self.view is None:
            return [Row(Text(f"{self.label}  connecting … (link {self.link})".strip(), style="dim"))]
        server_now = self.view.as_of + max(timedelta(0), now - (self.read_at or now))
        head = Row(self._head(self.view, server_now))
        if self.view.status.ended:
            return [head] if self.label else [head, *_tree(self.view, server_now, _plain(console))]
        rows = [head, *_tree(self.view, server_now, _plain(console))]
        for name, call in self.asked.items():
            rows.append(Row(Text(f"  waits for you: {call}", style="yellow")))
            rows.append(Row(Text(f"    {approve_command(name)}", style="yellow")))
        if self.delta_text:
            flat = one_line(self.delta_text, 4_000)
            rows.append(Row(Text("  » " + flat[-max(10, console.width - 6) :], style="dim"), _WORDS))
        return rows

    def _head(self, view: TaskView, now: datetime) -> Text:
        waiting = f" for {awaited(view.waiting_for, view.queue_position)}" if view.waiting_for else ""
        head = Text(f"{self.label or view.id}  ", style="bold")
        head.append(f"{view.status.value}{waiting}", style="yellow" if waiting else "bold cyan")
        if self.link != "ok":
            head.append(f"  link {self.link}", style="red")
        spent = f"{count(view.turns, 'turn')}  {view.usage.tokens:,} tokens"
        head.append(f"  {age(view.created_at, now)}  {spent}", style="dim")
        if self.link == "ok":
            head.append("  link ok", style="dim")
        return head


def _plain(console: Console) -> bool:
    return "utf" not in console.encoding.lower()


def _tree(view: TaskView, now: datetime, plain_marks: bool) -> list[Row]:
    """Planner, steps with their agents, final reviewer; agents that have finished are left out."""
    active = [a for a in view.agents if a.state != "finished"]
    rows = [_agent(a, now, "  ") for a in active if a.step == PLAN_STEP]
    for step in view.steps:
        rows.append(Row(_step(step, plain_marks), _RANKS[step.state]))
        rows += [_agent(a, now, "      ") for a in active if a.step == step.id]
    return rows + [_agent(a, now, "  ") for a in active if a.step == FINAL_STEP]


def _step(step: StepView, plain_marks: bool) -> Text:
    mark, style = _MARKS[step.state]
    text = Text(f"  {_PLAIN_MARKS[mark] if plain_marks else mark} ", style=style)
    text.append(f"{step.id}", style="bold")
    text.append(f"  {one_line(step.title)}  ")
    text.append(step.state + (f", round {step.round}" if step.round > 1 else ""), style=style)
    if step.depends_on and step.state == "pending":
        text.append(f"  after {', '.join(step.depends_on)}", style="dim")
    return text


def _agent(agent: AgentView, now: datetime, indent: str) -> Row:
    text = Text(f"{indent}{agent.role.value}: ", style="magenta")
    text.append(one_line(agent.activity))
    text.append(f"  {age(agent.activity_at, now)}", style="dim")
    return Row(text, _AGENT)
