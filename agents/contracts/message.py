"""Messages: steering by a person, questions and their answers, findings of a reviewer, mail between agents."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from agents.contracts.base import Edge, UtcTime, Wire
from agents.contracts.ids import Id, Place, Role

MailKind = Literal["steer", "findings", "mail", "notice", "question", "answer"]

MESSAGE_MAX_BYTES = 8 * 1024
"""A message is short; what is longer is a file, and the message names it."""

PERSON = "person"
"""The recipient or sender that is a person."""

HARNESS = "harness"
"""The sender of notices."""


def small(text: str) -> str:
    """The text of a message, where it may be one.

    Raises:
        ValueError: blank, or longer than a message may be.
    """
    if not text.strip():
        raise ValueError("must say something; it is blank")
    size = len(text.encode("utf-8", "replace"))
    if size > MESSAGE_MAX_BYTES:
        raise ValueError(f"must be at most {MESSAGE_MAX_BYTES} bytes of UTF-8, and is {size}; put the rest into a file")
    return text


MessageText = Annotated[str, Field(min_length=1), AfterValidator(small)]

Recipient = Annotated[str, Field(min_length=1, max_length=80)]
"""Who a message goes to, by name: `recipients` of the tools page."""


class Mail(Wire):
    """One message in an agent's mailbox; `seq` counts per recipient without gaps, in the order of arrival. `reply_to`
    is the question that an answer (or the notice that none will come) belongs to."""

    version: int = 1
    id: str
    seq: int
    kind: MailKind
    sender: str
    text: str
    sent_at: UtcTime
    reply_to: str | None = None


class MessageBody(Edge):
    """The body of ``POST /v1/tasks/{id}/messages``. Without `to` it goes to who is at work; with `reply_to` (the id of
    a question to a person) it is the answer, and goes to who asked."""

    text: MessageText
    to: Recipient | None = None
    reply_to: Id | None = None


MessageState = Literal["sent", "delivered", "read", "undelivered"]


class MessageView(Wire):
    """A message as anyone may see it. `sent`: stored; `delivered`: in its recipient's mailbox; `read`: it entered the
    recipient's context. `undelivered`: the task ended before it was read. `answered_by` is the answer to a question,
    `closed_by` the notice that none will come: after `expires_at`, or because who was asked has ended its round.
    `note` says, where the message was just sent, when its recipient will read it."""

    id: str
    task_id: str
    kind: MailKind
    sender: str
    recipient: str
    text: str
    reply_to: str | None = None
    answered_by: str | None = None
    closed_by: str | None = None
    expires_at: UtcTime | None = None
    state: MessageState
    sent_at: UtcTime
    delivered_at: UtcTime | None = None
    read_at: UtcTime | None = None
    note: str = ""


class Receipt(Wire):
    """What a sender is told: the message's id, its recipient's full name, and when it will be read."""

    message_id: str
    to: str
    note: str


def name_of(place: Place) -> str:
    """The name by which an agent is written to: ``planner``, a step's id (its executor), ``reviewer:STEP``."""
    if place.role is Role.PLANNER:
        return Role.PLANNER.value
    return place.step if place.role is Role.EXECUTOR else f"{Role.REVIEWER.value}:{place.step}"
