"""What travels in frames, as values: orders, entries, output, faults."""

import struct
from dataclasses import dataclass, field, fields

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import OUTPUT_CAP_BYTES, WORKSPACE
from services.sandbox.supervised.protocol import MAX_ID, EntryBit, ExecFlag, Fault, Reason, State, Stream

NEVER_MS = 0xFFFFFFFF
DEFAULT_WINDOW = 1 << 20
_ORDER = struct.Struct("<IIIIIQIHH")
_ENTRY = struct.Struct("<BBBxiiIIQQQQQQQQQI")
_CODES: dict[int, ErrorCode] = {
    Fault.STALE: ErrorCode.FENCED,
    Fault.NO_EXEC: ErrorCode.NOT_FOUND,
    Fault.MISMATCH: ErrorCode.VALIDATION_FAILED,
    Fault.LIMIT: ErrorCode.SANDBOX_UNAVAILABLE,
    Fault.SPAWN: ErrorCode.SPAWN_FAILED,
    Fault.NOT_RUNNING: ErrorCode.ALREADY_FINISHED,
    Fault.STILL_RUNNING: ErrorCode.NOT_FINISHED,
    Fault.BUSY: ErrorCode.SANDBOX_UNAVAILABLE,
}


class Refused(LonghaulError):
    """A supervisor's ERROR: `fault` says why, `errno` is the system's where there is one."""

    def __init__(self, fault: int, errno: int, detail: str) -> None:
        super().__init__(_CODES.get(fault, ErrorCode.INTERNAL), detail)
        self.fault = fault
        self.errno = errno


class LinkLost(LonghaulError):
    """The channel is closed. Whether the supervisor lives is for its owner to say; commands may go on."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.SANDBOX_LOST, "the sandbox's supervisor does not answer any more")


def text(value: str) -> bytes:
    """A short string."""
    raw = value.encode("utf-8", "surrogateescape")
    return struct.pack("<H", len(raw)) + raw


def blob(raw: bytes) -> bytes:
    """Bytes with their length."""
    return struct.pack("<I", len(raw)) + raw


def take_text(payload: bytes, at: int) -> tuple[str, int]:
    """A short string and where it ends."""
    (size,) = struct.unpack_from("<H", payload, at)
    return payload[at + 2 : at + 2 + size].decode("utf-8", "surrogateescape"), at + 2 + size


@dataclass(frozen=True, slots=True)
class Order:
    """A command to start. `argv` is one shell command where `shell`; `env` is all it gets. Times are in seconds, 0 for
    none; `head` and `tail` are the bytes kept of each stream; `window` 0 means that nothing is streamed."""

    id: str
    argv: tuple[str | bytes, ...]
    env: dict[str, str] = field(default_factory=dict)
    folder: str = WORKSPACE
    shell: bool = False
    merge: bool = False
    pty: bool = False
    rows: int = 24
    columns: int = 80
    stdin: bytes = b""
    more_stdin: bool = False
    background: bool = False
    timeout_s: float = 0.0
    grace_s: float = 2.0
    head: int = OUTPUT_CAP_BYTES // 2
    tail: int = OUTPUT_CAP_BYTES // 2
    output_limit: int = 0
    window: int = DEFAULT_WINDOW

    @property
    def flags(self) -> ExecFlag:
        """As the protocol has them."""
        told = {
            ExecFlag.PTY: self.pty,
            ExecFlag.SHELL: self.shell,
            ExecFlag.MERGE: self.merge,
            ExecFlag.STDIN: self.more_stdin,
            ExecFlag.BACKGROUND: self.background,
        }
        return ExecFlag(sum(flag for flag, on in told.items() if on))

    def encode(self) -> bytes:
        """The payload of EXEC.

        Raises:
            LonghaulError: ``INVALID_ARGUMENTS`` for an id that is empty or too long.
        """
        if not 0 < len(self.id.encode()) <= MAX_ID:
            raise LonghaulError(ErrorCode.INVALID_ARGUMENTS, f"an id has 1 to {MAX_ID} bytes")
        numbers = _ORDER.pack(
            self.flags,
            _ms(self.timeout_s),
            _ms(self.grace_s),
            self.head,
            self.tail,
            self.output_limit,
            self.window,
            self.rows,
            self.columns,
        )
        argv = [word if isinstance(word, bytes) else word.encode("utf-8", "surrogateescape") for word in self.argv]
        env = [f"{name}={value}".encode("utf-8", "surrogateescape") for name, value in self.env.items()]
        return b"".join(
            [text(self.id), numbers, text(self.folder), _list(argv), _list(env), blob(self.stdin)],
        )


def _ms(seconds: float) -> int:
    return min(NEVER_MS - 1, max(1, round(seconds * 1000))) if seconds > 0 else 0


def _list(words: list[bytes]) -> bytes:
    return struct.pack("<H", len(words)) + b"".join(map(blob, words))


@dataclass(frozen=True, slots=True)
class Entry:
    """A command as the supervisor has it. Times: nanoseconds since 1970, and microseconds; `deadline_ms` from now."""

    id: str
    handle: int
    state: State
    reason: Reason
    bits: EntryBit
    code: int
    signal: int
    errno: int
    left_behind: int
    started_ns: int
    ended_ns: int
    duration_us: int
    user_us: int
    system_us: int
    max_rss_kb: int
    stdout_bytes: int
    stderr_bytes: int
    stdin_taken: int
    deadline_ms: int | None

    @property
    def exit_code(self) -> int | None:
        """The code, 128+N after signal N, None where it is not known."""
        if self.signal:
            return 128 + self.signal
        return self.code if self.code >= 0 else None

    @property
    def total_bytes(self) -> int:
        """All it said."""
        return self.stdout_bytes + self.stderr_bytes


_NUMBERS = [field.name for field in fields(Entry)][5:]


def take_entry(payload: bytes, handle: int, at: int = 0) -> Entry:
    """The entry in a payload."""
    name, at = take_text(payload, at)
    state, reason, bits, *numbers = _ENTRY.unpack_from(payload, at)
    told: dict[str, int] = dict(zip(_NUMBERS, numbers, strict=True))
    deadline = told.pop("deadline_ms")
    return Entry(
        id=name,
        handle=handle,
        state=State(state),
        reason=Reason(reason),
        bits=EntryBit(bits),
        deadline_ms=None if deadline == NEVER_MS else deadline,
        **told,
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """Some output. `end`: the stream is over (no bytes then)."""

    stream: Stream
    offset: int
    data: bytes
    end: bool = False


def take_piece(payload: bytes, *, end: bool) -> Piece:
    """The output in a payload of DATA."""
    number, offset = struct.unpack_from("<BQ", payload)
    return Piece(Stream(number), offset, payload[9:], end)


def take_refusal(payload: bytes) -> Refused:
    """The fault in a payload of ERROR."""
    fault, errno = struct.unpack_from("<HI", payload)
    return Refused(fault, errno, take_text(payload, 6)[0])
