"""Fences: who was replaced may change nothing any more. Stored before the call acts."""

from agents.contracts.errors import Fenced
from agents.contracts.sandbox import Owner
from services.sandbox.home import Home
from services.sandbox.records import Fences, read, write


def current(home: Home) -> Fences:
    """The highest fences seen."""
    return read(home.fences, Fences) or Fences(sandbox=0)


def known(home: Home, owner: Owner) -> bool:
    """Whether these are the highest fences, and nothing has to be written to admit them."""
    seen = current(home)
    return (owner.agent_fence, owner.sandbox_fence) == (seen.agents.get(owner.agent_id), seen.sandbox)


def admit(home: Home, owner: Owner) -> None:
    """Remember the owner's fences, on disk, or refuse them.

    Raises:
        Fenced: a higher one has been seen, of the agent or of the sandbox.
    """
    seen = current(home)
    agent = seen.agents.get(owner.agent_id, 0)
    if owner.agent_fence < agent:
        raise Fenced(f"fence {owner.agent_fence} of {owner.agent_id} is behind {agent}")
    if owner.sandbox_fence < seen.sandbox:
        raise Fenced(f"sandbox fence {owner.sandbox_fence} is behind {seen.sandbox}")
    if owner.agent_fence > agent or owner.sandbox_fence > seen.sandbox:
        agents = {**seen.agents, owner.agent_id: owner.agent_fence}
        write(home.fences, Fences(sandbox=owner.sandbox_fence, agents=agents))


def raise_sandbox(home: Home, fence: int) -> int:
    """Remember a sandbox fence if it is higher; the highest."""
    seen = current(home)
    if fence > seen.sandbox:
        write(home.fences, seen.model_copy(update={"sandbox": fence}))
    return max(fence, seen.sandbox)
