"""The application: routes, faults, headers. It gets its parts and builds none."""

from fastapi import FastAPI

from services.api import (
    approvals,
    artifacts,
    checkpoints,
    docs,
    events,
    files,
    health,
    messages,
    problems,
    recordings,
    tasks,
)
from services.api.guard import Guard
from services.api.parts import Parts


def create_app(parts: Parts) -> FastAPI:
    """The ASGI application over these parts."""
    app = FastAPI(
        title="Longhaul",
        version="1",
        description="Submit a task to a team of agents, watch it work, take its results.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.parts = parts
    for resource in (tasks, events, messages, approvals, artifacts, checkpoints, recordings, files, health):
        app.include_router(resource.router)
    problems.install(app)
    docs.install(app)
    app.add_middleware(Guard)
    return app
