"""``python -m gpu.engine.main``: the replay engine. SIGTERM ends it with 0 after the replies under way."""

import logging
import sys

from aiohttp import web

from gpu import logs
from gpu.engine.app import ReplayEngine
from gpu.engine.recording import OWN_DIR, Library
from gpu.settings import GpuSettings

log = logging.getLogger(__name__)

SHUTDOWN_S = 5.0


def main() -> int:
    """Serve until a signal; 2 where the configuration is not usable."""
    logs.configure("replay")
    settings = GpuSettings()
    token = settings.replay_token.get_secret_value()
    if not token:
        log.error("LONGHAUL_REPLAY_TOKEN is not set; without it anyone could use the engine")
        return 2
    folders = [OWN_DIR] + ([settings.recordings_dir] if settings.recordings_dir else [])
    engine = ReplayEngine(Library(*folders), token, settings.replay_pace_ms)
    log.info("replay engine on http://%s:%d/v1", settings.replay_host, settings.replay_port)
    web.run_app(
        engine.app(),
        host=settings.replay_host,
        port=settings.replay_port,
        print=None,
        access_log=None,
        shutdown_timeout=SHUTDOWN_S,
        handler_cancellation=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
