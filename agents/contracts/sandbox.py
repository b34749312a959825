"""Sandboxes: where code runs, the port's requests and answers. One runner process owns all sandboxes of a host."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from agents.contracts.artifact import BlobRef
from agents.contracts.base import Count, Edge, UtcTime, Wire
from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Sha256
from agents.contracts.network import Denial, NetworkPolicy

WORKSPACE = "/workspace"
"""Where a task's files are inside a sandbox, and the working directory of every command."""

MAX_DENIALS = 20
"""How many connections that were not made are told of one exec; the same one is told once."""

DEFAULT_TEMPLATE = "default"
TemplateName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
"""What a sandbox's programs are goes by a name."""

OUTPUT_CAP_BYTES = 1 << 20
"""What an exec keeps of its output, head and tail together; the rest is counted, not kept."""


class SandboxLimits(Edge):
    """Hard limits a task may ask for. A host that cannot enforce one refuses the task (``CAPABILITY_MISSING``) unless
    `best_effort`; a limit not asked for is not set."""

    memory_mb: Annotated[int, Field(ge=64, le=1_048_576)] | None = None
    cpu: Annotated[float, Field(gt=0, le=256)] | None = None
    disk_mb: Annotated[int, Field(ge=16, le=10_485_760)] | None = None
    pids: Annotated[int, Field(ge=16, le=100_000)] | None = None
    best_effort: bool = False


class Trait(StrEnum):
    """In what the sandboxes of one backend differ from those of another, where both hold what all must hold."""

    OWN_KERNEL = "own_kernel"
    """What runs inside talks to a kernel of its own, never to the host's."""
    OOM_TOLD = "oom_told"
    """A command that was ended for want of memory says so (`oom`). Elsewhere the whole sandbox ends: it is `lost`."""
    ADOPTS_ORPHANS = "adopts_orphans"
    """What a command leaves in the background ends with it. Elsewhere what it leaves may end only with the sandbox."""
    SUPERVISOR_APART = "supervisor_apart"
    """The sandbox's supervisor is another user than its commands: none of them can end it."""


class Capabilities(Wire):
    """What a runner's host can do. `limits` names the fields of `SandboxLimits` that it enforces; `network`: a sandbox
    may be let reach hosts; `templates` are those that are built."""

    backend: str
    ready: bool
    limits: tuple[str, ...]
    network: bool = False
    templates: tuple[str, ...] = (DEFAULT_TEMPLATE,)
    traits: tuple[Trait, ...] = ()
    detail: str = ""


class PoolState(Wire):
    """Sandboxes that are started and nobody's, what claims met since the runner's start (`warm`: one was ready), and
    how long its last thousand starts took."""

    ready: Count
    warm_claims: Count
    cold_claims: Count
    start_p50_ms: float | None = None
    start_p99_ms: float | None = None


class SandboxState(StrEnum):
    """`lost`: its files or its host are gone; `gone`: destroyed on request."""

    READY = "ready"
    LOST = "lost"
    GONE = "gone"


class SandboxSpec(Wire):
    """What to make. `copy_of` makes a clean copy: a fresh sandbox holding the files of another at this moment;
    `snapshot` one that holds the files of a snapshot of the same tenant. One of the two at most. A copy has the build
    of the template that its source has, whatever `template` says."""

    id: str
    tenant_id: str
    task_id: str
    fence: int = 1
    limits: SandboxLimits = SandboxLimits()
    network: NetworkPolicy = NetworkPolicy()
    template: TemplateName = DEFAULT_TEMPLATE
    copy_of: str | None = None
    snapshot: BlobRef | None = None


class SandboxInfo(Wire):
    """A sandbox as the runner knows it."""

    id: str
    tenant_id: str
    task_id: str
    state: SandboxState
    fence: int
    backend: str
    template: str = DEFAULT_TEMPLATE
    created_at: UtcTime


class Owner(Wire):
    """Who asks: carried by every call that changes something. The runner refuses a fence lower than the highest it
    has seen, for the agent and for the sandbox (two numbers)."""

    agent_id: str
    agent_fence: int
    sandbox_fence: int


class ExecRequest(Wire):
    """Start a command, or attach to it where `exec_id` has been seen: it never runs twice.

    `command` is run by ``/bin/sh -c`` in the workspace; stdin is empty; stdout and stderr are one stream.
    """

    exec_id: str
    key: str
    owner: Owner
    command: str
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    env: dict[str, str] = {}


class ExecState(StrEnum):
    """`lost`: the command was started and its end is not known."""

    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"


ExecReason = Literal["exited", "signal", "timeout", "oom", "killed", "lost", "output_limit"]
"""What ended a command. `oom`: the sandbox ran out of memory, and the system killed the command for it."""


class ExecStatus(Wire):
    """A command's state. `exit_code` is the shell's, or 128+N after signal N; `reason` says what ended it. `output` is
    decoded with replacement characters, head and tail with a line between them where `truncated`. `denied`: connections
    that were refused while it ran, each once."""

    exec_id: str
    state: ExecState
    started: bool
    """Whether this request started it (False: attached to an earlier start)."""
    exit_code: int | None = None
    reason: ExecReason | None = None
    output: str = ""
    total_bytes: Count = 0
    truncated: bool = False
    started_at: UtcTime
    duration_ms: Count = 0
    denied: tuple[Denial, ...] = ()


class ReadFile(Wire):
    """Read text. `offset` and `limit` count lines; `offset` from 1."""

    path: str
    offset: int = 1
    limit: int = 2_000


class FileText(Wire):
    """A part of a text file: `limit` lines from line `offset` on, or less."""

    path: str
    text: str
    total_lines: Count
    total_bytes: Count
    truncated: bool


class WriteFile(Wire):
    """Create or replace a file, with its folders. Journaled by `key`: a repeat answers what the first one did."""

    key: str
    owner: Owner
    path: str
    content: str


class EditFile(Wire):
    """Replace the only occurrence of `old` by `new`. Journaled by `key`."""

    key: str
    owner: Owner
    path: str
    old: str
    new: str


class FileChange(Wire):
    """What a write or an edit did."""

    path: str
    sha256: Sha256
    bytes: Count
    created: bool


class FileEntry(Wire):
    """One regular file of a workspace; `path` is relative to it."""

    path: str
    bytes: Count


Matter = Literal["processes", "base", "clock", "outside", "room"]


class StateRow(Wire):
    """One matter of a sandbox's state: `processes` that run still, files of its read-only `base` that changed, its
    `clock` against the host's, files `outside` the workspace ($HOME, /tmp), `room` on the disk. `detail` has names."""

    matter: Matter
    clean: bool
    count: Count = 0
    bytes: Count = 0
    detail: Annotated[str, Field(max_length=200)] = ""


class StateReport(Wire):
    """What state a sandbox is in, beside its files. `fault`: why nobody could look."""

    at: UtcTime
    rows: tuple[StateRow, ...] = ()
    fault: Annotated[str, Field(max_length=200)] = ""


class TakeSnapshot(Wire):
    """Keep a workspace's files, `state`: and say what state the sandbox is in. Journaled by `key`. `wait_s` is how long
    commands under way are waited for."""

    key: str
    owner: Owner
    state: bool = False
    wait_s: Annotated[float, Field(ge=0, le=60)] = 60.0


class Snapshot(Wire):
    """Files that were kept, by `manifest`. `bytes` is what they hold, `added_bytes` what had to be stored for it."""

    manifest: BlobRef
    files: Count
    folders: Count
    links: Count
    bytes: Count
    added_bytes: Count
    state: StateReport | None = None


class RunnerFault(Wire):
    """The body of a runner's refusal."""

    code: ErrorCode
    detail: str
