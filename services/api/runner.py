"""What the API asks the runner: its capabilities, nothing else."""

import httpx
from pydantic import ValidationError

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import Capabilities

_PATIENCE_S = 2.0


class RunnerCapabilities:
    """Asks over HTTP; a fault of any kind is ``RUNNER_UNAVAILABLE``."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        """`client` has the runner's base URL and its token."""
        self._client = client

    async def capabilities(self) -> Capabilities:
        """What the host of the sandboxes can do."""
        try:
            response = await self._client.get("/v1/capabilities", timeout=_PATIENCE_S)
            response.raise_for_status()
            return Capabilities.model_validate_json(response.content)
        except (httpx.HTTPError, ValidationError) as error:
            raise LonghaulError(
                ErrorCode.RUNNER_UNAVAILABLE,
                f"the runner of sandboxes does not answer ({type(error).__name__}), so nobody can say which limits "
                "hold; try again",
                retry_after_s=2,
            ) from error
