"""Another tenant's things are not there: every route, with ids that exist."""

import asyncio
from datetime import UTC, datetime

import httpx
import pytest

from services.api.auth import CACHE_S
from services.objects.s3 import S3Objects
from services.store import keys
from services.store.database import Database
from tests.service.api.routes import concrete, routes
from tests.service.api.world import Tenant, Writer, make_tenant, submit

BODIES = {"/v1/tasks", "/v1/files", "/v1/approvals"}
"""Routes without an id in the path; what they may show is tested below."""


async def test_every_route_hides_another_tenants_ids(
    http: httpx.AsyncClient, db: Database, tenant: Tenant, writer: Writer, objects: S3Objects
) -> None:
    task_id = await submit(http)
    artifact_id = await writer.artifact(objects, task_id, "a.txt", b"mine")
    file_id = (await http.post("/v1/files?name=a", content=b"mine")).json()["id"]
    checkpoint_id = await writer.checkpoint(objects, task_id, {"a.txt": b"mine"})
    approval_id = await writer.approval(task_id, arguments="mine")
    await writer.end(task_id)
    ids = {"artifact_id": artifact_id, "file_id": file_id, "approval_id": approval_id, "checkpoint_id": checkpoint_id}
    bodies = {"decide": {"decision": "deny"}, "messages": {"text": "hello"}}
    walked = 0
    async with (await make_tenant(db, tenant.url)).http() as stranger:
        for route in routes():
            if "{" not in route.path:
                continue
            path = concrete(route, task_id, **ids)
            body = bodies.get(route.path.rsplit("/", 1)[-1]) if route.method == "POST" else None
            answer = await stranger.request(route.method, path, json=body)
            nothing = await stranger.request(route.method, concrete(route, "task_00000000000000000000000000"))
            mine = await http.request(route.method, path, json=body)
            assert mine.status_code in (200, 202, 409), (route, mine.text)
            assert answer.status_code == 404, route
            if route.method != "HEAD":  # whose answer has no body
                assert answer.json()["code"] == "NOT_FOUND", route
                assert answer.json()["title"] == nothing.json()["title"]
            assert "mine" not in answer.text
            walked += 1
        assert walked >= 12
        assert (await stranger.get("/v1/tasks")).json()["data"] == []
        assert (await stranger.get("/v1/approvals")).json()["data"] == []
        spec = {"instruction": "steal", "tier": "replay", "files": [{"file_id": file_id, "path": "x"}]}
        assert (await stranger.post("/v1/tasks", json=spec)).status_code == 422
        own = (await stranger.post("/v1/files?name=a", content=b"mine")).json()
        assert own["id"] != file_id
    assert {r.path for r in routes() if r.path.startswith("/v1") and "{" not in r.path} == BODIES


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks/task_00000000000000000000000000"])
async def test_a_revoked_key_ends_soon(http: httpx.AsyncClient, db: Database, tenant: Tenant, path: str) -> None:
    assert (await http.get(path)).status_code in (200, 404)
    async with db.begin() as conn:
        for key in await keys.list_keys(conn, tenant_id=tenant.id):
            await keys.revoke(conn, tenant_id=tenant.id, key_id=key.id, at=datetime.now(UTC))
    await asyncio.sleep(CACHE_S + 0.1)
    assert (await http.get(path)).status_code == 401
