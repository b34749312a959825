"""One table of task queues, timeouts and retry policies."""

from datetime import timedelta

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig

from agents.contracts.errors import RULES

WORKFLOW_QUEUE = "lh-wf"
BURST_QUEUE = "lh-burst"
TASK_QUEUE = "lh-task"
LONG_QUEUE = "lh-long"
"""Apart, so that what fills a sandbox or runs checks for hours keeps no task from beginning, going on or ending."""

WORKFLOW_TASK_TIMEOUT = timedelta(seconds=4)
"""A worker killed inside a workflow task is noticed after this."""

HEARTBEAT_S = 1.0
HEARTBEAT_TIMEOUT = timedelta(seconds=4)
MAX_HEARTBEAT_THROTTLE = timedelta(seconds=1)
GRACEFUL_SHUTDOWN = timedelta(seconds=6)
"""Longer than a burst's own drain (4 s for a model call, then a transaction), shorter than a main gets."""

STICKY_TIMEOUT = timedelta(seconds=1)

BURSTS_BEFORE_CONTINUE = 200
"""An AgentWorkflow continues as new after this many bursts, or when the server suggests it."""

INTERNAL_ATTEMPTS = 5
"""An unexpected exception is tried this often, then the task ends with the code INTERNAL instead of hanging."""

SANDBOX_ATTEMPTS = 20
"""A host that will not make a sandbox or start a command is asked this often (with `RETRY` more than a minute; a copy
that stays busy takes a minute each time), then the task ends with that code."""

ENGINE_BACKOFF_MAX_S = 60.0

LOOK_AGAIN = timedelta(seconds=60)
"""An agent that waits for an answer or a decision looks at the rows this often, even where no signal woke it."""

RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=0.2),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=5),
    maximum_attempts=0,
    non_retryable_error_types=[
        "PayloadsTooLarge",
        *sorted(code.value for code, rule in RULES.items() if not rule.retryable),
    ],
)

BURST: ActivityConfig = {
    "task_queue": BURST_QUEUE,
    "start_to_close_timeout": timedelta(hours=24),
    "heartbeat_timeout": HEARTBEAT_TIMEOUT,
    "retry_policy": RETRY,
    "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
}

QUICK: ActivityConfig = {
    "task_queue": TASK_QUEUE,
    "start_to_close_timeout": timedelta(seconds=60),
    "heartbeat_timeout": HEARTBEAT_TIMEOUT,
    "retry_policy": RETRY,
    "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
}
"""Transactions."""

ENDING: ActivityConfig = {**QUICK, "start_to_close_timeout": timedelta(hours=24)}
"""What destroys a task's sandboxes and says that it has ended."""

LONG: ActivityConfig = {**ENDING, "task_queue": LONG_QUEUE}
"""What fills a sandbox, or runs a task's checks."""
