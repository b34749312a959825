"""The OpenAPI document: bodies that routes read for themselves, the answer of every fault, examples."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from agents.contracts.approval import ApprovalDecision
from agents.contracts.errors import Problem
from agents.contracts.event import Event
from agents.contracts.message import MessageBody
from agents.contracts.model import Delta
from agents.contracts.task import TaskSpec
from services.api.problems import MEDIA_TYPE

_REF = "#/components/schemas/{model}"
_BESIDES: tuple[type[BaseModel], ...] = (TaskSpec, MessageBody, ApprovalDecision, Problem, Event, Delta)

SPEC_EXAMPLES = {
    "smallest": {"value": {"instruction": "Say what this repository does."}},
    "repair": {
        "summary": "Repair an uploaded repository until its tests pass",
        "value": {
            "instruction": "The tests fail. Find out why and repair the code, not the tests.",
            "repo": {"file_id": "file_01J9ZK3V8Q4T5W6X7Y8Z9A0B1C"},
            "checks": ["python -m pytest -q"],
            "limits": {"tokens": 500_000, "wall_s": 1_800},
            "network": {"allow": ["pypi.org", "files.pythonhosted.org"]},
            "metadata": {"ticket": "OPS-7"},
        },
    },
}


MESSAGE_EXAMPLES = {
    "steer": {"value": {"text": "Keep the old function too.", "to": "repair"}},
    "answer": {"value": {"text": "Blue.", "reply_to": "msg_01J9ZK3V8Q4T5W6X7Y8Z9A0B1C"}},
}


def body_of(model: type[BaseModel], examples: dict[str, Any]) -> dict[str, Any]:
    """The `openapi_extra` of a route that reads a JSON body for itself."""
    content = {"schema": {"$ref": _REF.format(model=model.__name__)}, "examples": examples}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def install(app: FastAPI) -> None:
    """Serve the document with what FastAPI cannot see."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    _, extra = models_json_schema([(m, "validation") for m in _BESIDES], ref_template=_REF)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name, schema in extra.get("$defs", {}).items():
        schemas.setdefault(name, schema)
    for path in document["paths"].values():
        for operation in path.values():
            answers = operation["responses"]
            answers.pop("422", None)  # FastAPI's own shape, which is never sent
            content = {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}}
            answers["default"] = {"description": "A problem; `code` says which", "content": content}
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    return document
