"""The network of a sandbox: none; or, where its policy names hosts, what its commands send to a port of their loopback
comes out here and goes through a proxy that decides on each connection."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agents.contracts.network import Denial, NetworkPolicy
from services.sandbox.egress.credentials import Credentials
from services.sandbox.egress.proxy import Proxy, World
from services.sandbox.home import Home
from services.sandbox.supervised.client import Supervisor

PORT = 3128
_URL = f"http://127.0.0.1:{PORT}"
_LOCAL = "localhost,127.0.0.1,::1"
_ENVIRONMENT = {
    **{name: _URL for word in ("http", "https", "all") for name in (f"{word}_proxy", f"{word}_proxy".upper())},
    "no_proxy": _LOCAL,
    "NO_PROXY": _LOCAL,
    # what asks hosts of its own accord, or waits for somebody to type, where only a few hosts are reached
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_RETRIES": "2",
    "NPM_CONFIG_UPDATE_NOTIFIER": "false",
    "NPM_CONFIG_FUND": "false",
    "NPM_CONFIG_AUDIT": "false",
    "GIT_TERMINAL_PROMPT": "0",
}


def arguments(policy: NetworkPolicy) -> tuple[str, ...]:
    """What the sandbox's supervisor is started with."""
    return ("--proxy", str(PORT)) if policy.allow else ()


def environment(policy: NetworkPolicy) -> dict[str, str]:
    """What a command's environment gets: for convenience only, nothing else is reached without it either."""
    return _ENVIRONMENT if policy.allow else {}


@dataclass(frozen=True)
class WayOut:
    """What lies outside for all sandboxes of this runner."""

    world: World = field(default_factory=World)
    credentials: Credentials = field(default_factory=Credentials)

    def join(self, home: Home, supervisor: Supervisor, told: Callable[[Denial], None]) -> None:
        """Serve what comes out of a sandbox, for as long as this link to it lasts. `told` hears of what was refused."""
        if not home.meta.network.allow:
            return

        async def tell(denial: Denial) -> None:
            told(denial)

        proxy = Proxy(home.meta.network, tell, self.credentials.of(home.meta.tenant_id), self.world)
        supervisor.net.serve(proxy.serve)
