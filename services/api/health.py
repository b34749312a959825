"""``/healthz``: this process lives. ``/readyz``: what it needs works, each with its state."""

import asyncio
import logging
from typing import Literal

from fastapi import APIRouter, Response

from agents.contracts.base import Wire
from services.api.parts import Probe, Using

router = APIRouter(tags=["health"])

_PATIENCE_S = 2.0
State = Literal["ok", "unavailable"]

log = logging.getLogger(__name__)


class Alive(Wire):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(Wire):
    """Whether requests can be served now, and by which server not."""

    status: State
    servers: dict[str, State]


@router.get("/healthz", summary="Alive")
async def healthz() -> Alive:
    """Always ok; a process that cannot answer does not."""
    return Alive()


@router.get("/readyz", summary="Ready")
async def readyz(response: Response, parts: Using) -> Ready:
    """503 where a server does not work. Tasks are accepted as long as the database works: NATS (and Temporal,
    which the relay and the workers talk to) may be away for a while and nothing is lost, but nothing moves either."""
    states = await asyncio.gather(*(_state(name, probe) for name, probe in parts.probes.items()))
    servers = dict(zip(parts.probes, states, strict=True))
    ready: State = "ok" if all(state == "ok" for state in states) else "unavailable"
    response.status_code = 200 if ready == "ok" else 503
    return Ready(status=ready, servers=servers)


async def _state(name: str, probe: Probe) -> State:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await probe()
    except Exception as error:
        log.info("not ready", extra={"server": name, "why": repr(error)})
        return "unavailable"
    return "ok"
