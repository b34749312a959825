"""Messages over REST: steering, answering, who there is, pages, and what is refused."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import insert, update

from agents.contracts.ids import Place, Role
from agents.contracts.message import MessageBody
from agents.contracts.plan import Plan, PlanStep
from agents.contracts.run import AgentRef
from services.client import AsyncClient
from services.store import mail
from services.store.database import Database
from services.store.tables import agents, steps, tasks
from tests.service.api.world import Tenant, Writer, submit
from workflows.records import Outgoing

PLAN = Plan(steps=[PlanStep(id=s, title=s, instructions="Do.", acceptance=["done"]) for s in ("one", "two")])


class Scene:
    """A task of two steps; its first executor is at work."""

    def __init__(self, db: Database, tenant: Tenant, task_id: str) -> None:
        self.db, self.tenant, self.task_id = db, tenant, task_id
        self.path = f"/v1/tasks/{task_id}/messages"

    def ref(self, step: str) -> AgentRef:
        return AgentRef(
            tenant_id=self.tenant.id, place=Place(task_id=self.task_id, role=Role.EXECUTOR, step=step), round=1
        )

    async def planned(self) -> None:
        """The plan's rows."""
        rows = [
            {"tenant_id": self.tenant.id, "task_id": self.task_id, "epoch": 0, "revision": 1, "step_id": step.id}
            | {"position": n, "title": step.title, "depends_on": [], "state": "pending"}
            for n, step in enumerate(PLAN.steps)
        ]
        async with self.db.begin() as conn:
            await conn.execute(insert(steps), rows)
            at_work = {"plan_revision": 1, "status": "running", "waiting_for": None, "admitted_at": datetime.now(UTC)}
            await conn.execute(update(tasks).where(tasks.c.id == self.task_id).values(at_work))

    async def born(self, step: str, state: str = "running") -> None:
        """An executor."""
        now, place = datetime.now(UTC), self.ref(step).place
        row = {"id": place.agent_id, "tenant_id": self.tenant.id, "task_id": self.task_id, "epoch": 0, "revision": 1}
        row |= {"role": "executor", "step": step, "round": 1, "state": state, "activity": "", "activity_at": now}
        async with self.db.begin() as conn:
            await conn.execute(insert(agents).values(**row, created_at=now))

    async def asks(self, message_id: str, text: str) -> None:
        """The first executor asks a person."""
        async with self.db.begin() as conn:
            question = Outgoing(message_id, "person", None, "question", text)
            await mail.send(conn, self.ref("one"), [question], datetime.now(UTC))


@pytest.fixture
async def scene(http: httpx.AsyncClient, db: Database, tenant: Tenant) -> Scene:
    made = Scene(db, tenant, await submit(http))
    await made.planned()
    await made.born("one")
    return made


def code(answer: httpx.Response) -> tuple[int, Any]:
    return answer.status_code, answer.json().get("code")


async def test_a_person_steers_and_the_message_is_stored_with_its_event(http: httpx.AsyncClient, scene: Scene) -> None:
    answer = await http.post(scene.path, json={"text": "Keep the old one too."})
    assert answer.status_code == 201
    view = answer.json()
    assert (view["kind"], view["sender"], view["recipient"], view["state"]) == ("steer", "person", "one", "sent")
    assert view["note"] == "It is read before the next turn."
    page = (await http.get(scene.path)).json()
    assert [(m["id"], m["text"]) for m in page["data"]] == [(view["id"], "Keep the old one too.")]
    told = (await http.get(f"/v1/tasks/{scene.task_id}/events?kind=message.sent")).json()["data"]
    assert [(e["data"]["message_id"], e["data"]["kind"], e["data"]["to"]) for e in told] == [
        (view["id"], "steer", "one")
    ]


async def test_a_key_sends_it_once_and_only_there(http: httpx.AsyncClient, scene: Scene) -> None:
    key = {"Idempotency-Key": "once"}
    first = await http.post(scene.path, json={"text": "hello"}, headers=key)
    again = await http.post(scene.path, json={"text": "hello"}, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert len((await http.get(scene.path)).json()["data"]) == 1
    assert code(await http.post(scene.path, json={"text": "other"}, headers=key)) == (422, "IDEMPOTENCY_KEY_REUSED")
    other = f"/v1/tasks/{await submit(http)}/messages"
    assert code(await http.post(other, json={"text": "hello"}, headers=key)) == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_an_answer_goes_to_who_asked_and_there_is_one(http: httpx.AsyncClient, scene: Scene) -> None:
    await scene.asks("msg_question1", "Which colour?")
    first = await http.post(scene.path, json={"text": "Blue.", "reply_to": "msg_question1"})
    assert (first.json()["kind"], first.json()["recipient"]) == ("answer", "one")
    second = await http.post(scene.path, json={"text": "Red.", "reply_to": "msg_question1"})
    assert code(second) == (409, "ALREADY_ANSWERED")
    listed = (await http.get(scene.path)).json()["data"]
    assert [(m["kind"], m["reply_to"], m["answered_by"]) for m in listed] == [
        ("answer", "msg_question1", None),
        ("question", None, first.json()["id"]),
    ]
    assert listed[1]["state"] == "delivered"
    unknown = await http.post(scene.path, json={"text": "?", "reply_to": "msg_nobodyasked"})
    assert code(unknown) == (404, "NOT_FOUND")
    wrong = await http.post(scene.path, json={"text": "?", "reply_to": first.json()["id"]})
    assert code(wrong) == (404, "NOT_FOUND")


async def test_names(http: httpx.AsyncClient, scene: Scene) -> None:
    unborn = await http.post(scene.path, json={"text": "hello", "to": "two"})
    assert (unborn.status_code, unborn.json()["note"]) == (
        201,
        "That agent has not begun; it reads this when it does.",
    )
    nobody = await http.post(scene.path, json={"text": "hello", "to": "three"})
    assert code(nobody) == (404, "UNKNOWN_RECIPIENT")
    assert "planner, one, two, reviewer:one, reviewer:two, reviewer:final" in nobody.json()["detail"]
    assert code(await http.post(scene.path, json={"text": "hello", "to": "person"})) == (404, "UNKNOWN_RECIPIENT")
    await scene.born("two")
    both = await http.post(scene.path, json={"text": "hello"})
    assert code(both) == (404, "UNKNOWN_RECIPIENT")
    assert "say to which of them: one, two" in both.json()["detail"]


async def test_an_ended_task_takes_none_and_shows_what_nobody_read(
    http: httpx.AsyncClient, scene: Scene, db: Database, tenant: Tenant
) -> None:
    await http.post(scene.path, json={"text": "hello", "to": "two"})
    await Writer(db, tenant).end(scene.task_id)
    assert code(await http.post(scene.path, json={"text": "late"})) == (409, "ALREADY_FINISHED")
    assert [m["state"] for m in (await http.get(scene.path)).json()["data"]] == ["undelivered"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"text": ""}, "text"),
        ({"text": " \n"}, "text"),
        ({"text": "é" * 4_097}, "text"),
        ({"text": "a\x00b"}, "text"),
        ({"text": "x", "to": ""}, "to"),
        ({"text": "x", "reply_to": "1"}, "reply_to"),
        ({"text": "x", "kind": "answer"}, "kind"),
        ({}, "text"),
    ],
)
async def test_a_wrong_body_is_named(http: httpx.AsyncClient, scene: Scene, body: Any, field: str) -> None:
    answer = await http.post(scene.path, json=body)
    assert code(answer) == (422, "VALIDATION_FAILED")
    assert [e["field"] for e in answer.json()["errors"]] == [field]


async def test_pages_are_newest_first_and_whole(scene: Scene, tenant: Tenant) -> None:
    async with AsyncClient(tenant.url, tenant.key) as client:
        for n in range(5):
            await client.send(scene.task_id, MessageBody(text=str(n)))
        found, cursor = [], None
        while True:
            page = await client.messages(scene.task_id, limit=2, cursor=cursor)
            found += [message.text for message in page.data]
            cursor = page.next_cursor
            if cursor is None:
                break
    assert found == ["4", "3", "2", "1", "0"]


@pytest.mark.parametrize("cursor", ["x", "m", "m-1", "mm1", "m1.0", "m" + "9" * 30])
async def test_a_cursor_that_was_never_given(http: httpx.AsyncClient, scene: Scene, cursor: str) -> None:
    assert code(await http.get(scene.path, params={"cursor": cursor})) == (422, "INVALID_CURSOR")


async def test_a_waiting_agent_shows_in_the_task_even_where_others_work(
    http: httpx.AsyncClient, scene: Scene, db: Database
) -> None:
    async with db.begin() as conn:
        mine = agents.c.id == scene.ref("one").place.agent_id
        await conn.execute(update(agents).where(mine).values(state="waiting", waiting_for="person"))
    view = (await http.get(f"/v1/tasks/{scene.task_id}")).json()
    assert (view["status"], view["waiting_for"], view["agents"][0]["waiting_for"]) == ("running", "person", "person")
    listed = (await http.get("/v1/tasks")).json()["data"]
    assert [task["waiting_for"] for task in listed if task["id"] == scene.task_id] == ["person"]
