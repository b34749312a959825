"""Every subject there is. Ids are checked here, so that no text of a user can add a token or a wildcard."""

import re

ALL_EVENTS = "lh.v1.ev.>"
ALL_LIVE = "lh.v1.live.>"
ALL_CONTROL = "lh.v1.ctl.>"
WAKE_OUTBOX = "lh.v1.wake.outbox"
EVENT_STREAM = "EV"
ALL_MESSAGES = "lh.v1.msg.>"
MESSAGE_STREAM = "MSG"
MAILROOM = "mailroom"
"""The durable consumer by which the relay takes messages to their mailboxes."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,80}")


def event(tenant_id: str, task_id: str) -> str:
    """Where a task's events go: the JetStream stream `EVENT_STREAM` keeps them."""
    return f"lh.v1.ev.{token(tenant_id)}.{token(task_id)}"


def tokens_of(tenant_id: str, task_id: str, agent_id: str) -> str:
    """Where the text of a reply goes while it streams."""
    return f"lh.v1.live.{token(tenant_id)}.{token(task_id)}.{token(agent_id)}.tok"


def control(tenant_id: str, task_id: str) -> str:
    """Where it is told that a task's control rows have changed."""
    return f"lh.v1.ctl.{token(tenant_id)}.{token(task_id)}"


def message(tenant_id: str, task_id: str, to: str) -> str:
    """Where a message to an agent (its id), or to a ``person``, goes: `MESSAGE_STREAM` keeps it."""
    return f"lh.v1.msg.{token(tenant_id)}.{token(task_id)}.{token(to)}"


def task_of(subject: str) -> tuple[str, str]:
    """The tenant and the task of a subject under `ALL_EVENTS`, `ALL_LIVE` or `ALL_CONTROL`."""
    parts = subject.split(".")
    return parts[3], parts[4]


def token(text: str) -> str:
    """The text, where it can stand in a subject.

    Raises:
        ValueError: where it holds a dot, a blank, a wildcard or anything else outside ``[A-Za-z0-9_-]``.
    """
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"{text!r} cannot stand in a NATS subject")
    return text
