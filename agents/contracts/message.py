"""Messages to an agent: steering by a person, findings of a reviewer, mail between agents."""

from typing import Literal

from agents.contracts.base import UtcTime, Wire

MailKind = Literal["steer", "findings", "mail", "notice"]


class Mail(Wire):
    """One message in an agent's mailbox; `seq` counts per recipient without gaps, in the order of arrival."""

    version: int = 1
    id: str
    seq: int
    kind: MailKind
    sender: str
    text: str
    sent_at: UtcTime
