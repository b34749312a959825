"""Submitting: accepted means stored, once per key, and refused with the reason where it could not work."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from agents.contracts.artifact import BlobRef
from agents.contracts.sandbox import Capabilities
from services.objects.s3 import S3Objects
from services.store.database import Database
from services.store.idempotency import Once, claim
from services.store.tables import task_starts, tasks
from tests.service.api.process import ApiProcess, free_port
from tests.service.api.world import Tenant, Writer, make_tenant, submit

SPEC = {"instruction": "do it", "tier": "replay"}


async def row_of(db: Database, task_id: str) -> Any:
    async with db.begin() as conn:
        return (await conn.execute(select(tasks).where(tasks.c.id == task_id))).mappings().one()


async def test_accepted_means_stored(http: httpx.AsyncClient, db: Database) -> None:
    answer = await http.post("/v1/tasks", json={**SPEC, "limits": {"tokens": 7, "wall_s": 60}, "metadata": {"a": "b"}})
    assert answer.status_code == 202
    view = answer.json()
    assert answer.headers["location"] == f"/v1/tasks/{view['id']}"
    assert (view["status"], view["last_seq"], view["metadata"]) == ("queued", 1, {"a": "b"})
    row = await row_of(db, view["id"])
    assert (row["tokens_limit"], row["turns_limit"]) == (7, 500)
    assert (row["deadline_at"] - row["created_at"]).total_seconds() == 60
    assert "instruction" not in row["spec"]
    async with db.begin() as conn:
        assert (await conn.execute(select(task_starts).where(task_starts.c.task_id == view["id"]))).one()
    page = (await http.get(f"/v1/tasks/{view['id']}/events")).json()
    assert [e["data"]["type"] for e in page["data"]] == ["task.created"]
    assert (await http.get(answer.headers["location"])).json()["id"] == view["id"]


async def test_accepted_survives_a_kill_right_after(own_api: ApiProcess, db: Database) -> None:
    own_api.start()
    tenant = await make_tenant(db, own_api.url)
    async with tenant.http() as http:
        accepted = []
        for _ in range(5):
            accepted.append(await submit(http))
        own_api.kill()
    for task_id in accepted:
        assert (await row_of(db, task_id))["status"] == "queued"


async def test_a_long_instruction_lies_in_s3(http: httpx.AsyncClient, db: Database, objects: S3Objects) -> None:
    text = "Füge alles zusammen. " * 1_500
    task_id = await submit(http, instruction=text)
    row = await row_of(db, task_id)
    assert row["instruction"] is None
    assert row["instruction_sha256"] == sha256(text.encode()).hexdigest()
    kept = await objects.get(row["tenant_id"], BlobRef.model_validate(row["instruction_blob"]))
    assert kept.decode() == text
    assert (await http.get(f"/v1/tasks/{task_id}")).json()["instruction"] == text[:200]


async def test_a_key_repeats_the_answer(http: httpx.AsyncClient, writer: Writer) -> None:
    headers = {"Idempotency-Key": "a key, with blanks"}
    first = await http.post("/v1/tasks", json=SPEC, headers=headers)
    # the same said in another order and with other spaces is the same
    again = await http.post(
        "/v1/tasks",
        content=json.dumps(dict(reversed(SPEC.items())), indent=3),
        headers={**headers, "Content-Type": "application/json; charset=utf-8"},
    )
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert first.headers["location"] == again.headers["location"]
    other = await http.post("/v1/tasks", json={**SPEC, "instruction": "another"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert await writer.count() == 1


async def test_a_key_is_the_tenants_own(http: httpx.AsyncClient, db: Database, tenant: Tenant) -> None:
    headers = {"Idempotency-Key": "same"}
    mine = await http.post("/v1/tasks", json=SPEC, headers=headers)
    async with (await make_tenant(db, tenant.url)).http() as theirs:
        other = await theirs.post("/v1/tasks", json={**SPEC, "instruction": "other"}, headers=headers)
    assert other.status_code == 202
    assert other.json()["id"] != mine.json()["id"]


async def test_twenty_at_once_make_one_task(http: httpx.AsyncClient, writer: Writer) -> None:
    async def one() -> httpx.Response:
        return await http.post("/v1/tasks", json=SPEC, headers={"Idempotency-Key": "race"})

    answers = await asyncio.gather(*(one() for _ in range(20)))
    done = [a for a in answers if a.status_code == 202]
    held = [a for a in answers if a.status_code == 409]
    assert len(done) + len(held) == 20
    assert done
    assert {a.json()["code"] for a in held} <= {"IDEMPOTENCY_IN_FLIGHT"}
    assert all("retry-after" in a.headers for a in held)
    assert len({a.json()["id"] for a in done}) == 1
    assert await writer.count() == 1
    assert (await one()).json()["id"] == done[0].json()["id"]


async def test_in_flight_is_said(http: httpx.AsyncClient, db: Database, tenant: Tenant) -> None:
    async with db.begin() as conn:
        await claim(conn, Once(tenant.id, "busy", "0" * 64))
        answer = await http.post("/v1/tasks", json=SPEC, headers={"Idempotency-Key": "busy"})
        assert (answer.status_code, answer.json()["code"]) == (409, "IDEMPOTENCY_IN_FLIGHT")
        assert answer.json()["retryable"] is True
    assert (await http.post("/v1/tasks", json=SPEC, headers={"Idempotency-Key": "busy"})).status_code == 202


@pytest.mark.parametrize("key", [b"", b"x" * 256, b"tab\there", "ümlaut".encode("latin-1")])
async def test_a_bad_key_is_refused(http: httpx.AsyncClient, key: bytes) -> None:
    answer = await http.post("/v1/tasks", json=SPEC, headers={b"Idempotency-Key": key})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"


async def test_files_must_exist(http: httpx.AsyncClient, db: Database, tenant: Tenant) -> None:
    mine = (await http.post("/v1/files", params={"name": "a.txt"}, content=b"a")).json()["id"]
    async with (await make_tenant(db, tenant.url)).http() as other:
        theirs = (await other.post("/v1/files", params={"name": "a.txt"}, content=b"b")).json()["id"]
    spec = {
        **SPEC,
        "repo": {"file_id": "file_00000000000000000000000000"},
        "files": [{"file_id": mine, "path": "a"}, {"file_id": theirs, "path": "b"}],
    }
    answer = await http.post("/v1/tasks", json=spec)
    assert answer.status_code == 422
    assert {e["field"] for e in answer.json()["errors"]} == {"repo.file_id", "files.1.file_id"}
    await submit(http, files=[{"file_id": mine, "path": "a"}])
    twice = await http.post(
        "/v1/tasks", json={**SPEC, "files": [{"file_id": mine, "path": p} for p in ("x/y", "./x//y")]}
    )
    assert [e["field"] for e in twice.json()["errors"]] == ["files.1.path"]


@pytest.mark.parametrize("tier", ["auto", "fast", "full"])
async def test_a_model_that_is_not_there(http: httpx.AsyncClient, tier: str) -> None:
    answer = await http.post("/v1/tasks", json={"instruction": "x", "tier": tier})
    assert (answer.status_code, answer.json()["code"]) == (422, "MODEL_NOT_CONFIGURED")
    assert "LONGHAUL_MODEL_BASE_URL" in answer.json()["detail"]


@asynccontextmanager
async def runner(port: int, can: Capabilities) -> AsyncIterator[None]:
    """A runner of which only the capabilities answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = can.model_dump_json().encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port):
        yield


async def test_limits_that_nobody_can_promise(own_api: ApiProcess, db: Database) -> None:
    own_api.settings = own_api.settings.model_copy(update={"runner_port": free_port()})
    own_api.start()
    can = Capabilities(backend="namespace", ready=True, limits=("pids",), detail="no writable cgroups")
    async with (await make_tenant(db, own_api.url)).http() as http:
        nobody = await http.post("/v1/tasks", json={**SPEC, "sandbox": {"pids": 50}})
        assert (nobody.status_code, nobody.json()["code"]) == (503, "RUNNER_UNAVAILABLE")
        assert nobody.headers["retry-after"]
        await submit(http)
        async with runner(own_api.settings.runner_port, can):
            await submit(http, sandbox={"pids": 50})
            refused = await http.post("/v1/tasks", json={**SPEC, "sandbox": {"pids": 50, "memory_mb": 512}})
            assert (refused.status_code, refused.json()["code"]) == (422, "CAPABILITY_MISSING")
            assert "memory_mb" in refused.json()["detail"]
            assert "pids" not in refused.json()["detail"]
            await submit(http, sandbox={"memory_mb": 512, "best_effort": True})


@pytest.mark.parametrize("has_one", [False, True])
async def test_a_network_where_sandboxes_can_have_one_and_where_not(
    own_api: ApiProcess, db: Database, has_one: bool
) -> None:
    own_api.settings = own_api.settings.model_copy(update={"runner_port": free_port()})
    own_api.start()
    network = {"allow": ["PyPI.org", "*.example.org:443"]}
    can = Capabilities(backend="namespace", ready=True, limits=(), network=has_one)
    async with (await make_tenant(db, own_api.url)).http() as http:
        await submit(http, network={"allow": []})
        async with runner(own_api.settings.runner_port, can):
            answer = await http.post("/v1/tasks", json={**SPEC, "network": network})
        if not has_one:
            assert (answer.status_code, answer.json()["code"]) == (422, "CAPABILITY_MISSING")
            assert "network.allow" in answer.json()["detail"]
            return
        assert answer.status_code == 202
        row = await row_of(db, answer.json()["id"])
        assert row["spec"]["network"] == {"allow": ["pypi.org", "*.example.org:443"]}


async def test_a_template_that_is_built_and_one_that_is_not(own_api: ApiProcess, db: Database) -> None:
    own_api.settings = own_api.settings.model_copy(update={"runner_port": free_port()})
    own_api.start()
    can = Capabilities(backend="namespace", ready=True, limits=(), templates=("default", "standard_dev"))
    async with (await make_tenant(db, own_api.url)).http() as http:
        await submit(http, template="default")  # comes with every installation: nobody is asked
        nobody = await http.post("/v1/tasks", json={**SPEC, "template": "standard_dev"})
        assert (nobody.status_code, nobody.json()["code"]) == (503, "RUNNER_UNAVAILABLE")
        async with runner(own_api.settings.runner_port, can):
            task_id = await submit(http, template="standard_dev")
            refused = await http.post("/v1/tasks", json={**SPEC, "template": "other"})
        assert (await row_of(db, task_id))["spec"]["template"] == "standard_dev"
        assert (refused.status_code, refused.json()["code"]) == (422, "TEMPLATE_NOT_FOUND")
        assert "default, standard_dev" in refused.json()["detail"]
        no_name = await http.post("/v1/tasks", json={**SPEC, "template": "../other"})
        assert (no_name.status_code, no_name.json()["errors"][0]["field"]) == (422, "template")


async def test_cancel(http: httpx.AsyncClient, db: Database, writer: Writer) -> None:
    task_id = await submit(http)
    await writer.admit(task_id)
    for _ in range(2):
        answer = await http.post(f"/v1/tasks/{task_id}/cancel")
        assert (answer.status_code, answer.json()["status"]) == (202, "cancelling")
    row = await row_of(db, task_id)
    assert (row["control_seq"], row["last_seq"]) == (1, 2)
    waiting = asyncio.create_task(http.post(f"/v1/tasks/{task_id}/cancel", params={"wait_s": 20}))
    await asyncio.sleep(0.2)
    await writer.end(task_id)
    done = await asyncio.wait_for(waiting, 5)
    assert (done.status_code, done.json()["status"]) == (200, "completed")
    late = await http.post(f"/v1/tasks/{task_id}/cancel")
    assert (late.status_code, late.json()["code"]) == (409, "ALREADY_FINISHED")


async def test_a_cancel_in_the_queue_is_done_at_once(http: httpx.AsyncClient, db: Database) -> None:
    first, second = await submit(http), await submit(http)
    page = (await http.get("/v1/tasks", params={"status": "queued"})).json()["data"]
    assert {(task["id"], task["waiting_for"]) for task in page} == {(first, "slot"), (second, "slot")}
    assert (await http.get(f"/v1/tasks/{second}")).json()["queue_position"] == 2
    for _ in range(2):
        answer = await http.post(f"/v1/tasks/{first}/cancel")
        assert (answer.status_code, answer.json()["status"], answer.json()["waiting_for"]) == (200, "cancelled", None)
    assert (await http.get(f"/v1/tasks/{first}/result")).json()["stop_reason"] == "cancelled"
    assert (await http.get(f"/v1/tasks/{second}")).json()["queue_position"] == 1
    found = (await http.get(f"/v1/tasks/{first}/events")).json()["data"]
    assert [event["data"]["type"] for event in found] == ["task.created", "task.cancelled"]


async def test_result_comes_at_the_end(http: httpx.AsyncClient, writer: Writer, objects: S3Objects) -> None:
    task_id = await submit(http)
    early = await http.get(f"/v1/tasks/{task_id}/result")
    assert (early.status_code, early.json()["code"]) == (409, "NOT_FINISHED")
    await writer.artifact(objects, task_id, "out/report.txt", b"text")
    await writer.end(task_id)
    result = (await http.get(f"/v1/tasks/{task_id}/result")).json()
    assert (result["status"], result["stop_reason"], result["summary"]) == ("completed", "completed", "done")
    assert result["artifacts"][0]["sha256"] == sha256(b"text").hexdigest()
    assert result["seconds"] > 0
