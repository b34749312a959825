"""Pages of lists, as the API answers them."""

from agents.contracts.approval import Approval
from agents.contracts.base import Count, Wire
from agents.contracts.event import Event
from agents.contracts.message import MessageView
from agents.contracts.task import TaskSummary


class TaskPage(Wire):
    """``GET /v1/tasks``. `next_cursor` is opaque and null on the last page."""

    data: list[TaskSummary]
    next_cursor: str | None = None


class ApprovalPage(Wire):
    """``GET /v1/approvals``. `next_cursor` is opaque and null on the last page."""

    data: list[Approval]
    next_cursor: str | None = None


class MessagePage(Wire):
    """``GET /v1/tasks/{id}/messages``, the newest first. `next_cursor` is opaque and null on the last page."""

    data: list[MessageView]
    next_cursor: str | None = None


class EventPage(Wire):
    """``GET /v1/tasks/{id}/events``, in the order asked for. `last_seq` is the task's last number when this was read;
    `next_after` (oldest first) or `next_before` (newest first) asks for the next page and is null on the last."""

    data: list[Event]
    last_seq: Count
    next_after: int | None = None
    next_before: int | None = None
