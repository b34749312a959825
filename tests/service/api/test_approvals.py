"""Approvals over the API: the inbox, one decision, three outcomes."""

import asyncio
from typing import Any

import httpx
import pytest

from services.store.approvals import expire_due
from services.store.database import Database
from tests.service.api.world import Tenant, Writer, submit

DECIDED = {"approve": "approved", "deny": "denied"}


async def decide(http: httpx.AsyncClient, approval_id: str, decision: str, **more: object) -> httpx.Response:
    return await http.post(f"/v1/approvals/{approval_id}/decide", json={"decision": decision, **more})


async def kinds(http: httpx.AsyncClient, task_id: str) -> list[dict[str, Any]]:
    events = (await http.get(f"/v1/tasks/{task_id}/events?kind=approval")).json()["data"]
    return [event["data"] for event in events]


async def test_the_inbox_holds_what_waits(http: httpx.AsyncClient, writer: Writer) -> None:
    one, two = await submit(http), await submit(http)
    asked = [await writer.approval(task) for task in (one, one, two)]
    assert (await decide(http, asked[0], "approve")).status_code == 200
    inbox = (await http.get("/v1/approvals?state=pending")).json()["data"]
    assert [a["id"] for a in inbox] == asked[:0:-1]
    assert inbox[0] | {"tool": "shell", "arguments": "{}", "kind": "call", "task_id": two} == inbox[0]
    of_one = (await http.get(f"/v1/tasks/{one}/approvals?order=asc")).json()["data"]
    assert [(a["id"], a["state"]) for a in of_one] == [(asked[0], "approved"), (asked[1], "pending")]


async def test_pages_of_the_inbox(http: httpx.AsyncClient, writer: Writer) -> None:
    task_id = await submit(http)
    asked = [await writer.approval(task_id) for _ in range(5)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await http.get("/v1/approvals", params={"limit": 2, **cursor})).json()
        seen += [a["id"] for a in page["data"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == asked[::-1]
    assert (await http.get("/v1/approvals?cursor=nonsense")).json()["code"] == "INVALID_CURSOR"


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_decision_is_made_once(http: httpx.AsyncClient, writer: Writer, decision: str) -> None:
    task_id = await submit(http)
    approval_id = await writer.approval(task_id)
    first = await decide(http, approval_id, decision, note="as agreed")
    assert first.status_code == 200
    assert (first.json()["state"], first.json()["note"]) == (DECIDED[decision], "as agreed")
    assert first.json()["actor"].startswith("key:")
    again = await decide(http, approval_id, decision, note="another word")
    assert (again.status_code, again.json()) == (200, first.json())
    other = await decide(http, approval_id, "deny" if decision == "approve" else "approve")
    assert (other.status_code, other.json()["code"]) == (409, "ALREADY_DECIDED")
    told = await kinds(http, task_id)
    assert [(e["type"], e["decision"], e["note"]) for e in told] == [("approval.decided", decision, "as agreed")]


async def test_of_two_decisions_at_once_one_wins(http: httpx.AsyncClient, writer: Writer) -> None:
    for _ in range(5):
        task_id = await submit(http)
        approval_id = await writer.approval(task_id)
        answers = await asyncio.gather(*(decide(http, approval_id, d) for d in ("approve", "deny") * 3))
        state = (await http.get(f"/v1/approvals/{approval_id}")).json()["state"]
        for answer, decision in zip(answers, ("approve", "deny") * 3, strict=True):
            assert answer.status_code == (200 if DECIDED[decision] == state else 409)
        assert len(await kinds(http, task_id)) == 1


async def test_a_timeout_is_its_own_outcome_and_no_denial(
    http: httpx.AsyncClient, writer: Writer, db: Database
) -> None:
    task_id = await submit(http)
    late, open_still = await writer.approval(task_id, expires_s=-1), await writer.approval(task_id)
    early = await decide(http, late, "approve")  # late, and nobody has noticed yet
    assert (early.status_code, early.json()["code"]) == (409, "APPROVAL_EXPIRED")
    await expire_due(db)
    await expire_due(db)
    states = {a["id"]: a["state"] for a in (await http.get(f"/v1/tasks/{task_id}/approvals")).json()["data"]}
    assert states == {late: "expired", open_still: "pending"}
    for decision in ("approve", "deny"):
        answer = await decide(http, late, decision)
        assert (answer.status_code, answer.json()["code"]) == (409, "APPROVAL_EXPIRED")
    assert [e["type"] for e in await kinds(http, task_id)] == ["approval.expired"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"decision": "yes"},
        {"decision": "APPROVE"},
        {"decision": True},
        {"decision": None},
        {"decision": "expired"},
        {"decision": "approve", "actor": "ceo"},
        {"decision": "deny", "note": "x" * 2_001},
        {"decision": "deny", "note": "\x00"},
        [],
    ],
)
async def test_an_unknown_decision_is_none(http: httpx.AsyncClient, writer: Writer, body: object) -> None:
    approval_id = await writer.approval(await submit(http))
    answer = await http.post(f"/v1/approvals/{approval_id}/decide", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "VALIDATION_FAILED")
    assert (await http.get(f"/v1/approvals/{approval_id}")).json()["state"] == "pending"


async def test_a_cancelled_task_takes_no_decision(http: httpx.AsyncClient, writer: Writer) -> None:
    task_id = await submit(http)
    await writer.admit(task_id)
    approval_id = await writer.approval(task_id)
    await http.post(f"/v1/tasks/{task_id}/cancel")
    answer = await decide(http, approval_id, "approve")
    assert (answer.status_code, answer.json()["code"]) == (409, "ALREADY_FINISHED")


async def test_who_may_decide(http: httpx.AsyncClient, tenant: Tenant, writer: Writer) -> None:
    approval_id = await writer.approval(await submit(http))
    async with tenant.http(tenant.reading_key) as reader:
        assert (await reader.get(f"/v1/approvals/{approval_id}")).status_code == 200
        answer = await decide(reader, approval_id, "approve")
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


async def test_a_task_says_what_its_tools_may(http: httpx.AsyncClient) -> None:
    spec = {"instruction": "x", "tier": "replay"}
    assert (await http.post("/v1/tasks", json={**spec, "tools": {"shell": "ask"}})).status_code == 202
    for tools, field in (
        ({"shel": "ask"}, "tools.shel"),
        ({"finish_step": "deny"}, "tools.finish_step"),
        ({"shell": "maybe"}, "tools.shell"),
        ({"shell": True}, "tools.shell"),
    ):
        answer = await http.post("/v1/tasks", json={**spec, "tools": tools})
        assert answer.status_code == 422, tools
        assert answer.json()["errors"][0]["field"] == field
