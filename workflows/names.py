"""Names that follow from a place, so that doing something twice finds the same thing."""

from agents.contracts.ids import short_digest
from agents.contracts.run import AgentRef, TaskRef
from agents.contracts.sandbox import Owner

SANDBOX_FENCE = 1
"""The first holder of a sandbox."""


def workspace_id(task: TaskRef) -> str:
    """The sandbox in which a task's executors work."""
    return f"sbx_{short_digest(f'{task.task_id}/{task.epoch}/workspace')}"


def clean_copy_id(reviewer: AgentRef) -> str:
    """The sandbox of one review."""
    return f"sbx_{short_digest(f'{reviewer.place.path}/{reviewer.round}/copy')}"


def checkpoint_key(executor: AgentRef) -> str:
    """The key under which the workspace is kept as an executor left it."""
    return f"{executor.place.path}/{executor.round}/checkpoint"


def checkpoint_id(executor: AgentRef) -> str:
    """The checkpoint of a round of a step."""
    return f"chk_{short_digest(checkpoint_key(executor))}"


def exec_id(key: str) -> str:
    """The runner's name for the command with this key."""
    return f"exec_{short_digest(key)}"


def message_id(key: str) -> str:
    """The id of the message that the call with this key sends."""
    return f"msg_{short_digest(key)}"


def again_id(origin: str, fence: int) -> str:
    """The sandbox that is made in place of a lost one; `fence` counts how often that was, from 1 for the first."""
    return f"sbx_{short_digest(f'{origin}/{fence}')}"


def snapshot_key(executor: AgentRef, turn: int) -> str:
    """The key under which the workspace is kept between two turns of an executor; `turn` is the one before."""
    return f"{executor.place.path}/{executor.round}/{turn}/snapshot"


def snapshot_id(key: str) -> str:
    """The snapshot of this key."""
    return f"snap_{short_digest(key)}"


def harness(task: TaskRef, sandbox_fence: int = SANDBOX_FENCE) -> Owner:
    """Who the harness is to the runner when it fills a workspace, runs checks or cleans up."""
    name = f"agent_{short_digest(f'{task.task_id}/{task.epoch}/harness')}"
    return Owner(agent_id=name, agent_fence=1, sandbox_fence=sandbox_fence)


def task_of(ref: AgentRef) -> TaskRef:
    """The task an agent belongs to."""
    return TaskRef(tenant_id=ref.tenant_id, task_id=ref.place.task_id, epoch=ref.place.epoch)


def child_id(ref: AgentRef) -> str:
    """The id of an AgentWorkflow: ``agent/{task}/{epoch}/{role}/{rev}.{step}/{round}``."""
    return f"agent/{ref.place.path}/{ref.round}"
