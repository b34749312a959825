"""Who may do what: the tools of each role and the file of its prompt. Mains read the files; nothing here does."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.contracts.ids import Role

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """A role. `tools` are all tools it is offered, by name, sorted; `control` those of them that stand alone in a
    reply: they end its round, or make it wait."""

    role: Role
    tools: tuple[str, ...]
    control: tuple[str, ...]
    prompt_file: Path


def _spec(role: Role, *, work: tuple[str, ...], control: tuple[str, ...]) -> RoleSpec:
    return RoleSpec(role, tuple(sorted(work + control)), tuple(sorted(control)), _HERE / f"{role.value}.md")


ROLES: Mapping[Role, RoleSpec] = {
    Role.PLANNER: _spec(Role.PLANNER, work=(), control=("submit_plan",)),
    Role.EXECUTOR: _spec(
        Role.EXECUTOR,
        work=("shell", "read_file", "write_file", "edit_file", "save_artifact", "send_message"),
        control=("ask", "finish_step", "give_up"),
    ),
    Role.REVIEWER: _spec(Role.REVIEWER, work=("shell", "read_file", "send_message"), control=("submit_review",)),
}
