"""Every route of the application, for tests that walk them all."""

from dataclasses import dataclass

from fastapi.routing import iter_route_contexts

from services.api.app import create_app


@dataclass(frozen=True)
class Route:
    """One method of one path."""

    method: str
    path: str


def routes() -> list[Route]:
    """All of them."""
    app = create_app(None)  # type: ignore[arg-type]
    found = [(m, r.path) for r in iter_route_contexts(app.routes) for m in sorted(r.methods or ())]
    return [Route(m, path) for m, path in found if path and path != "/openapi.json"]


def concrete(route: Route, task_id: str, **ids: str) -> str:
    """The path with its parameters filled in."""
    same = ("task_id", "artifact_id", "approval_id", "file_id", "checkpoint_id")
    names = {**dict.fromkeys(same, task_id), "path": "a.txt", **ids}
    return route.path.replace(":path}", "}").format(**names)
