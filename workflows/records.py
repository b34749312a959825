"""What the turn loop hands to the ledger, and what it gets back. These never cross a process."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from agents.contracts.approval import Approval, ApprovalKind
from agents.contracts.artifact import Artifact
from agents.contracts.errors import ErrorCode, ErrorInfo
from agents.contracts.event import EventData
from agents.contracts.ids import Place
from agents.contracts.message import MailKind
from agents.contracts.model import BadReply, ModelReply, Usage
from agents.contracts.run import AgentRef, BurstEnd, BurstReason
from agents.contracts.tool import ToolResult
from agents.contracts.trajectory import Brief, TurnInputs


@dataclass(frozen=True)
class Opened:
    """What an attempt finds: its fence and the agent's brief, or that the round is over (`end`). The brief names the
    sandbox of now; `lost` where that one is still to be made, in place of another. `kept_at` is when its files were
    last kept, None where nobody keeps them."""

    fence: int
    brief: Brief
    turns: int
    waiting: bool = False
    end: BurstEnd | None = None
    lost: bool = False
    kept_at: datetime | None = None


@dataclass
class Held:
    """An attempt's hold on an agent; its keys are those of `agents.contracts.ids`, made up once. `next` numbers its
    transactions, so that each has a key of its own and one whose commit was not answered is found again."""

    ref: AgentRef
    fence: int
    _number: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self.place: Place = self.ref.place
        self.agent_id: str = self.place.agent_id
        self._stem = f"{self.place.path}/{self.ref.round}"

    def next(self) -> str:
        """The key of this attempt's next transaction."""
        self._number += 1
        return f"{self.agent_id}/{self.ref.round}/{self.fence}/{self._number}"

    def model_key(self, turn: int, k: int) -> str:
        """The logical key of a model call."""
        return f"{self._stem}/{turn}/m{k}"

    def call_key(self, turn: int, i: int) -> str:
        """The logical key of a tool call."""
        return f"{self._stem}/{turn}/c{i}"


@dataclass(frozen=True)
class Addressee:
    """Whom a message goes to: the full name, the mailbox (None: a person's), when it will be read, in words, whether an
    answer can be waited for, and the oldest question of this addressee that the sender has not answered."""

    name: str
    agent_id: str | None
    note: str
    can_answer: bool
    open_question: str | None = None


@dataclass(frozen=True)
class Outgoing:
    """A message to be written in the transaction of what it belongs to. Its `id` follows from the call's key. The
    asker of a question waits for `expires_s`, or for ever."""

    id: str
    recipient: str
    agent_id: str | None
    kind: MailKind
    text: str
    reply_to: str | None = None
    expires_s: float | None = None


@dataclass(frozen=True)
class Ran:
    """A tool call that ended: its result, what to tell of it, the files it kept, the messages it sends."""

    i: int
    result: ToolResult
    events: tuple[EventData, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    messages: tuple[Outgoing, ...] = ()


@dataclass(frozen=True)
class Results:
    """Results that are not stored yet, all of one turn. `completes` where nothing of that turn stays open."""

    turn: int = 0
    ran: tuple[Ran, ...] = ()
    completes: bool = False
    calls: int = 0

    @property
    def messages(self) -> tuple[Outgoing, ...]:
        """The messages that go out with them."""
        return tuple(message for ran in self.ran for message in ran.messages)


NOTHING = Results()


@dataclass(frozen=True)
class Intent:
    """A model call about to be made. `opens` where it is the first of a new turn; `tokens` and `cost_micro` are what it
    may use at most, `least_tokens` what it needs at least."""

    turn: int
    k: int
    tier: str
    tokens: int
    least_tokens: int
    cost_micro: int
    opens: bool = True
    fell_back: tuple[str, ErrorCode] | None = None
    """Where the tier differs from the attempt before: that tier, and what was wrong with its reply."""


@dataclass(frozen=True)
class Begun:
    """What came of an intent: the turn's stored inputs; or the round's end; or neither: other calls' reservations are
    in the way for now."""

    inputs: TurnInputs | None = None
    end: BurstEnd | None = None


@dataclass(frozen=True)
class CallIntent:
    """A tool call about to be made; `arguments` is an excerpt."""

    i: int
    tool: str
    arguments: str


@dataclass(frozen=True)
class Question:
    """A person is to be asked about a call. `number` counts the questions about it from 1; `arguments` is cut."""

    i: int
    kind: ApprovalKind
    tool: str
    arguments: str
    arguments_sha256: str
    number: int
    expires_s: float


@dataclass(frozen=True)
class CallRows:
    """What the rows say of a turn's calls that have no result: the questions about them in the order of asking, which
    of those that cannot be repeated were begun and not asked about since, and which may have been begun in a sandbox
    that was lost."""

    approvals: tuple[Approval, ...] = ()
    begun: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()


NO_ROWS = CallRows()


@dataclass(frozen=True)
class Start:
    """Calls of a turn go on after a wait, or one that cannot be repeated (`begins`) is about to begin."""

    turn: int
    activity: str
    begins: int | None = None


@dataclass(frozen=True)
class Answer:
    """A model call that ended: a reply to use with its calls, or something unusable (`bad`), with or without a reply;
    `failed` where the turn is given up. `charge` is what a missing reply is charged: its estimate, or nothing. `asks`
    are the calls about which a person is asked. `request_sha256` is of the request that was answered."""

    turn: int
    k: int
    reply: ModelReply | None = None
    bad: BadReply | None = None
    calls: tuple[CallIntent, ...] = ()
    failed: ErrorInfo | None = None
    asks: tuple[Question, ...] = ()
    activity: str = ""
    resumed: bool = False
    charge_estimate: bool = False
    request_sha256: str | None = None

    @property
    def usage(self) -> Usage:
        """What the reply says it used."""
        return self.reply.usage if self.reply else Usage()


@dataclass(frozen=True)
class RoundEnd:
    """How a round ends. `outcome` is the JSON of the control call's arguments. With `unless_mail` nothing is written
    where a message is unread."""

    reason: BurstReason
    error: ErrorInfo | None = None
    outcome: str | None = None
    unless_mail: bool = False
    charge_estimate: bool = True


@dataclass(frozen=True)
class Waiting:
    """What an agent waits for outside it, and why it has to (never with a secret in it). `asks` are questions to a
    person, about calls of that turn, that were not stored before."""

    waiting_for: str
    retry_after_s: float | None = None
    detail: str | None = None
    turn: int = 0
    asks: tuple[Question, ...] = ()


Heard = Literal["nothing", "answer", "expired", "gone", "message"]
"""What has come since a question was asked: its answer; the word that its time is over, or that who was asked has gone;
or something else."""
