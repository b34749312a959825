"""ErrorCode <-> ApplicationError: how a fault crosses Temporal."""

from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, FailureError

from agents.contracts.errors import ErrorCode, ErrorInfo, LonghaulError
from workflows.options import INTERNAL_ATTEMPTS, SANDBOX_ATTEMPTS

ATTEMPTS = {
    ErrorCode.INTERNAL: INTERNAL_ATTEMPTS,
    ErrorCode.SANDBOX_UNAVAILABLE: SANDBOX_ATTEMPTS,
    ErrorCode.SPAWN_FAILED: SANDBOX_ATTEMPTS,
}
"""Faults that may last for ever, with nobody at work who would end them: how often each is tried before it is final.
(What is merely away comes back, and is waited for without end.)"""


def to_application(error: LonghaulError, attempt: int = 0) -> ApplicationError:
    """The failure that carries a fault; retried by Temporal where its code says so, and for `ATTEMPTS` at most."""
    final = not error.code.rule.retryable or (error.code in ATTEMPTS and attempt >= ATTEMPTS[error.code])
    return ApplicationError(error.detail, type=error.code.value, non_retryable=final)


def unexpected(error: Exception) -> LonghaulError:
    """A bug as a fault with a code."""
    return LonghaulError(ErrorCode.INTERNAL, f"{type(error).__name__}: {error}"[:500])


def to_info(error: BaseException) -> ErrorInfo:
    """What is shown of a failure that reached a workflow: the code and words of its first cause."""
    cause: BaseException | None = error
    while isinstance(cause, ActivityError | ChildWorkflowError):
        cause = cause.cause
    if isinstance(cause, ApplicationError) and cause.type is not None and cause.type in ErrorCode.__members__:
        return ErrorInfo(code=ErrorCode(cause.type), detail=cause.message)
    words = cause.message if isinstance(cause, FailureError) else f"{type(cause).__name__}: {cause}"
    return ErrorInfo(code=ErrorCode.INTERNAL, detail=words[:500])
