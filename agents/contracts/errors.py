"""Error codes: one enum, one table ``code -> (HTTP status, retryable, class)``, one exception.

    LonghaulError                 a fault with a code; `code.rule` says how it is treated
      +-- Fenced                  a newer attempt owns the agent; the holder stops silently

`class` decides who hears of a fault: a request's sender, the operator (infrastructure: never shown to a
model), or the model as an observation (tool, model).
"""

from enum import StrEnum
from typing import NamedTuple

from agents.contracts.base import Wire, excerpt


class FaultClass(StrEnum):
    """Whose fault it is, and so who may see it."""

    REQUEST = "request"
    INFRASTRUCTURE = "infrastructure"
    TOOL = "tool"
    MODEL = "model"
    POLICY = "policy"


class ErrorCode(StrEnum):
    """Every code a user, an operator or a model can meet."""

    # requests
    INVALID_JSON = "INVALID_JSON"
    VALIDATION_FAILED = "VALIDATION_FAILED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    NOT_FINISHED = "NOT_FINISHED"
    ALREADY_FINISHED = "ALREADY_FINISHED"
    ALREADY_ANSWERED = "ALREADY_ANSWERED"
    BODY_TOO_LARGE = "BODY_TOO_LARGE"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    INVALID_CURSOR = "INVALID_CURSOR"
    RANGE_NOT_SATISFIABLE = "RANGE_NOT_SATISFIABLE"
    IDEMPOTENCY_KEY_REUSED = "IDEMPOTENCY_KEY_REUSED"
    IDEMPOTENCY_IN_FLIGHT = "IDEMPOTENCY_IN_FLIGHT"
    INVALID_ARCHIVE = "INVALID_ARCHIVE"
    MODEL_NOT_CONFIGURED = "MODEL_NOT_CONFIGURED"
    CAPABILITY_MISSING = "CAPABILITY_MISSING"
    TEMPLATE_NOT_FOUND = "TEMPLATE_NOT_FOUND"
    RATE_LIMITED = "RATE_LIMITED"
    ALREADY_DECIDED = "ALREADY_DECIDED"
    RECORDING_TOO_LARGE = "RECORDING_TOO_LARGE"
    # infrastructure
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    OBJECTS_UNAVAILABLE = "OBJECTS_UNAVAILABLE"
    RUNNER_UNAVAILABLE = "RUNNER_UNAVAILABLE"
    STORAGE_FULL = "STORAGE_FULL"
    ENGINE_UNAVAILABLE = "ENGINE_UNAVAILABLE"
    ENGINE_REFUSED = "ENGINE_REFUSED"
    FENCED = "FENCED"
    SANDBOX_NOT_FOUND = "SANDBOX_NOT_FOUND"
    SANDBOX_LOST = "SANDBOX_LOST"
    SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"
    SPAWN_FAILED = "SPAWN_FAILED"
    SNAPSHOT_NOT_FOUND = "SNAPSHOT_NOT_FOUND"
    SNAPSHOT_FAILED = "SNAPSHOT_FAILED"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    # tools: shown to the model as observations
    INVALID_ARGUMENTS = "INVALID_ARGUMENTS"
    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    TOOL_NOT_ALLOWED = "TOOL_NOT_ALLOWED"
    APPROVAL_DENIED = "APPROVAL_DENIED"
    APPROVAL_EXPIRED = "APPROVAL_EXPIRED"
    CONTROL_CALL_NOT_ALONE = "CONTROL_CALL_NOT_ALONE"
    FILE_NOT_FOUND = "FILE_NOT_FOUND"
    NOT_A_FILE = "NOT_A_FILE"
    PATH_ESCAPE = "PATH_ESCAPE"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    FILE_TOO_LARGE = "FILE_TOO_LARGE"
    DISK_FULL = "DISK_FULL"
    EDIT_NO_MATCH = "EDIT_NO_MATCH"
    EDIT_AMBIGUOUS = "EDIT_AMBIGUOUS"
    EXEC_TIMEOUT = "EXEC_TIMEOUT"
    EXEC_KILLED = "EXEC_KILLED"
    EXEC_OUTCOME_UNKNOWN = "EXEC_OUTCOME_UNKNOWN"
    INVALID_PLAN = "INVALID_PLAN"
    CHECKS_FAILED = "CHECKS_FAILED"
    ARTIFACT_MISSING = "ARTIFACT_MISSING"
    UNKNOWN_RECIPIENT = "UNKNOWN_RECIPIENT"
    RECIPIENT_GONE = "RECIPIENT_GONE"
    ASK_TIMED_OUT = "ASK_TIMED_OUT"
    # models: the reply cannot be used; something is changed and it is asked again
    NO_TOOL_CALL = "NO_TOOL_CALL"
    EMPTY_REPLY = "EMPTY_REPLY"
    REPLY_TRUNCATED = "REPLY_TRUNCATED"
    REPLY_ABORTED = "REPLY_ABORTED"
    UNPARSABLE_CALL = "UNPARSABLE_CALL"
    REFUSED = "REFUSED"
    CONTEXT_TOO_LONG = "CONTEXT_TOO_LONG"
    REPLAY_MISMATCH = "REPLAY_MISMATCH"
    REPLAY_NOT_RECORDED = "REPLAY_NOT_RECORDED"
    # policies that end a task
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"
    TURN_LIMIT = "TURN_LIMIT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NO_PROGRESS = "NO_PROGRESS"

    @property
    def rule(self) -> "Rule":
        """How this code is answered and treated."""
        return RULES[self]


class Rule(NamedTuple):
    """One row of the table: the HTTP status where a code reaches an API answer, and whether to try again."""

    status: int
    retryable: bool
    fault: FaultClass


_R, _I, _T, _M, _P = (
    FaultClass.REQUEST,
    FaultClass.INFRASTRUCTURE,
    FaultClass.TOOL,
    FaultClass.MODEL,
    FaultClass.POLICY,
)
E = ErrorCode
RULES: dict[ErrorCode, Rule] = {
    E.INVALID_JSON: Rule(400, False, _R),
    E.VALIDATION_FAILED: Rule(422, False, _R),
    E.UNAUTHENTICATED: Rule(401, False, _R),
    E.FORBIDDEN: Rule(403, False, _R),
    E.NOT_FOUND: Rule(404, False, _R),
    E.METHOD_NOT_ALLOWED: Rule(405, False, _R),
    E.NOT_FINISHED: Rule(409, True, _R),
    E.ALREADY_FINISHED: Rule(409, False, _R),
    E.ALREADY_ANSWERED: Rule(409, False, _R),
    E.BODY_TOO_LARGE: Rule(413, False, _R),
    E.UNSUPPORTED_MEDIA_TYPE: Rule(415, False, _R),
    E.INVALID_CURSOR: Rule(422, False, _R),
    E.RANGE_NOT_SATISFIABLE: Rule(416, False, _R),
    E.IDEMPOTENCY_KEY_REUSED: Rule(422, False, _R),
    E.IDEMPOTENCY_IN_FLIGHT: Rule(409, True, _R),
    E.INVALID_ARCHIVE: Rule(422, False, _R),
    E.MODEL_NOT_CONFIGURED: Rule(422, False, _R),
    E.CAPABILITY_MISSING: Rule(422, False, _R),
    E.TEMPLATE_NOT_FOUND: Rule(422, False, _R),
    E.RATE_LIMITED: Rule(429, True, _R),
    E.ALREADY_DECIDED: Rule(409, False, _R),
    E.RECORDING_TOO_LARGE: Rule(413, False, _R),
    E.INTERNAL: Rule(500, True, _I),
    E.UNAVAILABLE: Rule(503, True, _I),
    E.STORE_UNAVAILABLE: Rule(503, True, _I),
    E.OBJECTS_UNAVAILABLE: Rule(503, True, _I),
    E.RUNNER_UNAVAILABLE: Rule(503, True, _I),
    E.STORAGE_FULL: Rule(507, True, _I),
    E.ENGINE_UNAVAILABLE: Rule(503, True, _I),
    E.ENGINE_REFUSED: Rule(502, False, _I),
    E.FENCED: Rule(409, True, _I),
    E.SANDBOX_NOT_FOUND: Rule(404, False, _I),
    E.SANDBOX_LOST: Rule(410, False, _I),
    E.SANDBOX_UNAVAILABLE: Rule(503, True, _I),
    E.SPAWN_FAILED: Rule(503, True, _I),
    E.SNAPSHOT_NOT_FOUND: Rule(404, False, _I),
    E.SNAPSHOT_FAILED: Rule(500, False, _I),
    E.PAYLOAD_TOO_LARGE: Rule(500, False, _I),
    E.INVALID_ARGUMENTS: Rule(422, False, _T),
    E.UNKNOWN_TOOL: Rule(422, False, _T),
    E.TOOL_NOT_ALLOWED: Rule(403, False, _T),
    E.APPROVAL_DENIED: Rule(403, False, _T),
    E.APPROVAL_EXPIRED: Rule(409, False, _T),
    E.CONTROL_CALL_NOT_ALONE: Rule(422, False, _T),
    E.FILE_NOT_FOUND: Rule(404, False, _T),
    E.NOT_A_FILE: Rule(422, False, _T),
    E.PATH_ESCAPE: Rule(422, False, _T),
    E.PERMISSION_DENIED: Rule(403, False, _T),
    E.FILE_TOO_LARGE: Rule(413, False, _T),
    E.DISK_FULL: Rule(507, False, _T),
    E.EDIT_NO_MATCH: Rule(422, False, _T),
    E.EDIT_AMBIGUOUS: Rule(422, False, _T),
    E.EXEC_TIMEOUT: Rule(200, False, _T),
    E.EXEC_KILLED: Rule(200, False, _T),
    E.EXEC_OUTCOME_UNKNOWN: Rule(200, False, _T),
    E.INVALID_PLAN: Rule(422, False, _T),
    E.CHECKS_FAILED: Rule(422, False, _T),
    E.ARTIFACT_MISSING: Rule(404, False, _T),
    E.UNKNOWN_RECIPIENT: Rule(404, False, _T),
    E.RECIPIENT_GONE: Rule(409, False, _T),
    E.ASK_TIMED_OUT: Rule(408, False, _T),
    E.NO_TOOL_CALL: Rule(502, True, _M),
    E.EMPTY_REPLY: Rule(502, True, _M),
    E.REPLY_TRUNCATED: Rule(502, True, _M),
    E.REPLY_ABORTED: Rule(502, True, _M),
    E.UNPARSABLE_CALL: Rule(502, True, _M),
    E.REFUSED: Rule(502, True, _M),
    E.CONTEXT_TOO_LONG: Rule(502, False, _M),
    E.REPLAY_MISMATCH: Rule(409, False, _I),
    E.REPLAY_NOT_RECORDED: Rule(404, False, _I),
    E.BUDGET_EXHAUSTED: Rule(402, False, _P),
    E.TURN_LIMIT: Rule(402, False, _P),
    E.DEADLINE_EXCEEDED: Rule(402, False, _P),
    E.NO_PROGRESS: Rule(402, False, _P),
}


class ErrorInfo(Wire):
    """A fault as it is stored and shown: a code, what happened, what to do."""

    code: ErrorCode
    detail: str


class LonghaulError(Exception):
    """A fault with a code. `detail` says what happened and what to do; it never holds a secret."""

    def __init__(self, code: ErrorCode, detail: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(f"{code.value}: {detail}")
        self.code = code
        self.detail = detail
        self.retry_after_s = retry_after_s

    @property
    def info(self) -> ErrorInfo:
        """The storable form; of a long detail, an excerpt."""
        return ErrorInfo(code=self.code, detail=excerpt(self.detail))


class Fenced(LonghaulError):
    """A newer attempt of the same burst took over. Retryable for the loser's caller, shown to no one."""

    def __init__(self, detail: str = "a newer attempt owns this agent") -> None:
        super().__init__(ErrorCode.FENCED, detail)


class Problem(Wire):
    """An ``application/problem+json`` body (RFC 9457) with our `code` and `retryable`."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: ErrorCode
    retryable: bool
    errors: list["FieldProblem"] = []


class FieldProblem(Wire):
    """One field that was wrong: where (``limits.tokens``) and why."""

    field: str
    message: str
