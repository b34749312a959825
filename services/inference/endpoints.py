"""Which endpoint answers which tier."""

from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.plan import Tier
from services.settings import Settings

_CHAT = "/chat/completions"


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible base URL, the model to name there, and the bearer key (may be empty)."""

    base_url: str
    model: str
    key: str
    replay: bool = False

    @property
    def chat_url(self) -> str:
        """Where chat completions are asked for."""
        return self.base_url + _CHAT

    @property
    def shown(self) -> str:
        """The address as a message may show it: without user, password or query."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def hide(self, text: str) -> str:
        """The text without the key, in case the other side repeats it."""
        return text.replace(self.key, "***") if self.key else text


def _base(url: str) -> str:
    return url.strip().rstrip("/").removesuffix(_CHAT).rstrip("/")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half an IPv6 address
        return False


def endpoint_for(settings: Settings, tier: Tier) -> Endpoint:
    """The endpoint of a tier. `fast` and `full` stand in for each other where only one is named; `auto` means `full`.

    Raises:
        LonghaulError: ``ENGINE_REFUSED`` where the tier is not configured; says which setting is missing.
    """
    if tier == "replay":
        return Endpoint(_base(settings.replay_url), "replay", settings.replay_token.get_secret_value(), replay=True)
    fast, full = settings.model_fast.strip(), settings.model_full.strip()
    model = (fast or full) if tier == "fast" else (full or fast)
    base = _base(settings.model_base_url)
    if not _is_address(base):
        raise LonghaulError(
            ErrorCode.ENGINE_REFUSED,
            "no model is configured: set LONGHAUL_MODEL_BASE_URL to an OpenAI-compatible address such as "
            "http://127.0.0.1:8000/v1, with LONGHAUL_MODEL_FULL and LONGHAUL_MODEL_FAST; then start the stack again",
        )
    if not model:
        raise LonghaulError(
            ErrorCode.ENGINE_REFUSED,
            "no model is named: set LONGHAUL_MODEL_FULL (and LONGHAUL_MODEL_FAST) to a name that "
            f"{Endpoint(base, model, '').shown}/models lists; then start the stack again",
        )
    return Endpoint(base, model, settings.model_api_key.get_secret_value())


def proxy_for(endpoint: Endpoint) -> str | None:
    """The proxy that the machine's conventions (HTTPS_PROXY, NO_PROXY, …) name for an endpoint; none for the replay
    engine. Done by hand because the HTTP library's own way would also send passwords of ~/.netrc instead of the key."""
    parts = urlsplit(endpoint.base_url)
    if endpoint.replay or not parts.hostname or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
