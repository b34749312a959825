"""What the client raises.

ClientError
  +-- LonghaulApiError    the API refused: `problem` says what and why
  +-- Unreachable         no answer, for longer than the client's patience
  +-- DigestMismatch      a download's bytes are not those that were kept
"""

import httpx
from pydantic import ValidationError

from agents.contracts.errors import ErrorCode, Problem


class ClientError(Exception):
    """Any fault of the client."""


class LonghaulApiError(ClientError):
    """The API's refusal. `problem.code` is what to branch on."""

    def __init__(self, problem: Problem) -> None:
        fields = "".join(f"\n  {e.field}: {e.message}" for e in problem.errors)
        super().__init__(f"{problem.code.value}: {problem.detail}{fields}")
        self.problem = problem

    @property
    def code(self) -> ErrorCode:
        """The problem's code."""
        return self.problem.code


class Unreachable(ClientError):
    """The API did not answer, and asking again did not help."""


class DigestMismatch(ClientError):
    """What came is not what was kept; nothing was written."""


def refusal(response: httpx.Response) -> LonghaulApiError:
    """The fault that a response with an error status tells of; a proxy's own pages become one too."""
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        code = ErrorCode.UNAVAILABLE if response.status_code in (429, 502, 503, 504) else ErrorCode.INTERNAL
        problem = Problem(
            type="about:blank",
            title=response.reason_phrase,
            status=response.status_code,
            detail=f"{response.url.host} answered {response.status_code} in a way that is not Longhaul's",
            instance=response.url.path,
            code=code,
            retryable=code.rule.retryable,
        )
    return LonghaulApiError(problem)
