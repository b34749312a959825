"""ErrorCode <-> ApplicationError: how a fault crosses Temporal."""

from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, FailureError

from agents.contracts.errors import ErrorCode, ErrorInfo, LonghaulError
from workflows.options import INTERNAL_ATTEMPTS


def to_application(error: LonghaulError) -> ApplicationError:
    """The failure that carries a fault; retried by Temporal where its code says so."""
    return ApplicationError(error.detail, type=error.code.value, non_retryable=not error.code.rule.retryable)


def unexpected(error: Exception, attempt: int) -> ApplicationError:
    """The failure for a bug: retried a few times, in case it was a passing state, and then final."""
    detail = f"{type(error).__name__}: {error}"[:500]
    return ApplicationError(detail, type=ErrorCode.INTERNAL.value, non_retryable=attempt >= INTERNAL_ATTEMPTS)


def to_info(error: BaseException) -> ErrorInfo:
    """What is shown of a failure that reached a workflow: the code and words of its first cause."""
    cause: BaseException | None = error
    while isinstance(cause, ActivityError | ChildWorkflowError):
        cause = cause.cause
    if isinstance(cause, ApplicationError) and cause.type is not None and cause.type in ErrorCode.__members__:
        return ErrorInfo(code=ErrorCode(cause.type), detail=cause.message)
    words = cause.message if isinstance(cause, FailureError) else f"{type(cause).__name__}: {cause}"
    return ErrorInfo(code=ErrorCode.INTERNAL, detail=words[:500])
