"""Messages between agents and questions, on real parts; the relay carries them where a test does not first."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, update

from agents.contracts.errors import LonghaulError
from agents.contracts.event import Event
from agents.contracts.ids import PLAN_STEP, Role
from agents.contracts.message import MessageBody
from agents.contracts.plan import Plan, PlanStep
from agents.contracts.run import AgentRef, BurstReason
from services.ids import new_id
from services.relay.questions import close_questions
from services.store import mail, messages, tables
from tests.service.turns.test_rules import Forgetful
from tests.support.mortal import Killed, Life, Mortal
from tests.support.scripts import ScriptedModel, says
from tests.support.turns import Parts, Scene, new_scene, until
from workflows.names import message_id
from workflows.records import Outgoing

FINISH = says(("finish_step", {"summary": "done"}))


def step(name: str) -> PlanStep:
    return PlanStep(id=name, title=name, instructions="Do it.", acceptance=["done"])


def send(to: str, text: str) -> Any:
    return says(("send_message", {"to": to, "text": text}))


def ask(question: str, **more: object) -> Any:
    return says(("ask", {"question": question, **more}))


async def pair(parts: Parts, tenant_id: str, one: ScriptedModel, two: ScriptedModel) -> tuple[Scene, Scene]:
    """The executors of steps s1 and s2 of one plan."""
    planner = await new_scene(parts, tenant_id, ScriptedModel([]), role=Role.PLANNER, step=PLAN_STEP)
    await parts.rounds.record_plan(planner.ref, 1, Plan(steps=[step("s1"), step("s2"), step("s3")]))
    first = await new_scene(parts, tenant_id, one, task=planner.task, step="s1")
    return first, await new_scene(parts, tenant_id, two, task=planner.task, step="s2")


async def carry(scene: Scene) -> None:
    """As the relay does."""
    async with scene.parts.db.begin() as conn:
        await mail.deliver(conn, scene.ref.tenant_id, scene.ref.place.agent_id, datetime.now(UTC))


async def answer(scene: Scene, question: str, text: str, kind: str = "answer") -> None:
    """As the API does it for a person."""
    await scene.mail(text, kind=kind, reply_to=question)


def told(events: list[Event], kind: str) -> list[Any]:
    return [event.data for event in events if event.data.type == kind]


def words(model: ScriptedModel, turn: int) -> str:
    return "\n".join(message.content for message in model.asked[turn].messages)


async def test_a_message_is_read_once_at_the_next_turn(parts: Parts, tenant_id: str) -> None:
    again = says(("send_message", {"to": "person", "text": "still here"}))
    reader = ScriptedModel([again, again, FINISH])
    reader.gate = asyncio.Event()
    one, two = await pair(parts, tenant_id, ScriptedModel([send("s2", "the port is 8080"), FINISH]), reader)
    running = asyncio.create_task(two.burst())
    await until(lambda: reader.under_way == 1)
    assert (await one.burst()).reason is BurstReason.FINISHED
    await carry(two)
    reader.gate.set()
    assert (await running).reason is BurstReason.FINISHED
    assert [words(reader, n).count("the port is 8080") for n in range(3)] == [0, 1, 1]
    texts = [[m.content for m in request.messages] for request in reader.asked]
    assert texts[2][: len(texts[1]) - 1] == texts[1][:-1], "the cached prefix stays as it is"
    [row] = await one.rows(tables.messages, sender="s1")
    assert (row.kind, row.recipient, row.seq) == ("mail", "s2", 1)
    [sent] = [d for d in told(await one.events(), "message.sent") if d.sender == "s1"]
    assert (sent.to, sent.text, sent.kind, sent.message_id) == ("s2", "the port is 8080", "mail", row.id)
    result = (await one.rows(tables.tool_calls, agent_id=one.ref.place.agent_id))[0].result
    assert result["content"] == "Sent to s2. It is read before the next turn."


async def test_8_a_finish_waits_for_a_message_that_is_still_on_its_way(parts: Parts, tenant_id: str) -> None:
    """Rule 8, where nobody has carried it yet: it is stored, so it counts."""
    reader = ScriptedModel([FINISH, FINISH])
    reader.gate = asyncio.Event()
    one, two = await pair(parts, tenant_id, ScriptedModel([]), reader)
    running = asyncio.create_task(two.burst())
    await until(lambda: reader.under_way == 1)
    note = Outgoing("msg_" + two.ref.place.agent_id[-8:], "s2", two.ref.place.agent_id, "mail", "the port is 8080")
    async with parts.db.begin() as conn:  # as the sender's transaction does, but no relay will take it
        await mail.send(conn, one.ref, [note], datetime.now(UTC))
        await conn.execute(
            update(tables.messages).where(tables.messages.c.id == note.id).values(published_at=func.now())
        )
    reader.gate.set()
    assert (await running).reason is BurstReason.FINISHED
    assert "the port is 8080" not in words(reader, 0)
    assert words(reader, 1).count("[mail 1 from s1]") == words(reader, 1).count("the port is 8080") == 1
    [row] = await one.rows(tables.messages)
    assert row.seq == 1
    assert row.read_at is not None
    assert [d.message_id for d in told(await one.events(), "message.delivered")] == [row.id]
    calls = await two.rows(tables.tool_calls, agent_id=two.ref.place.agent_id)
    assert [call.result["content"][:8] for call in calls] == ["Not yet:", "Accepted"]


async def test_who_is_not_born_yet_gets_it_at_birth_and_who_was_never_born_by_its_name(
    parts: Parts, tenant_id: str
) -> None:
    sender = ScriptedModel([send("s3", "apple"), send("s3", "pear"), FINISH])
    one, two = await pair(parts, tenant_id, sender, ScriptedModel([]))
    await one.burst()
    first = (await one.rows(tables.tool_calls))[0].result
    assert "has not begun" in first["content"]
    reader = ScriptedModel([FINISH])
    three = await new_scene(parts, tenant_id, reader, task=one.task, step="s3")
    assert (await three.burst()).reason is BurstReason.FINISHED
    text = words(reader, 0)
    assert text.index("[mail 1 from s1]") < text.index("apple") < text.index("[mail 2 from s1]") < text.index("pear")
    assert two


async def test_a_message_to_a_plan_that_changed_reaches_who_bears_the_name_now(parts: Parts, tenant_id: str) -> None:
    one, _ = await pair(parts, tenant_id, ScriptedModel([send("s3", "for whoever does it"), FINISH]), ScriptedModel([]))
    await one.burst()
    planner = AgentRef(tenant_id=tenant_id, place=one.ref.place.model_copy(update={"role": Role.PLANNER}), round=2)
    await parts.rounds.record_plan(planner, 2, Plan(steps=[step("s3")]))
    reader = ScriptedModel([FINISH])
    three = await new_scene(parts, tenant_id, reader, task=one.task, step="s3", revision=2)
    await three.burst()
    assert "for whoever does it" in words(reader, 0)


@pytest.mark.parametrize("to", ["s9", "s1", "reviewer:s9", ""])
async def test_an_unknown_name_is_an_observation_that_says_who_there_is(parts: Parts, tenant_id: str, to: str) -> None:
    one, _ = await pair(parts, tenant_id, ScriptedModel([send(to, "hello"), FINISH]), ScriptedModel([]))
    await one.burst()
    result = (await one.rows(tables.tool_calls))[0].result
    assert await one.rows(tables.messages) == []
    if to:
        assert result["error_code"] == "UNKNOWN_RECIPIENT"
        assert "planner, s2, s3, reviewer:s1, reviewer:s2, reviewer:s3, reviewer:final, person" in result["content"]
    else:
        assert result["error_code"] == "INVALID_ARGUMENTS"


async def test_a_message_over_the_cap_is_refused_and_the_cap_is_said(parts: Parts, tenant_id: str) -> None:
    texts = ["é" * 4_097, "é" * 4_096]
    one, _ = await pair(parts, tenant_id, ScriptedModel([*(send("s2", t) for t in texts), FINISH]), ScriptedModel([]))
    await one.burst()
    long, right, _ = [call.result for call in await one.rows(tables.tool_calls)]
    assert (long["error_code"], "8192 bytes" in long["content"]) == ("INVALID_ARGUMENTS", True)
    assert right.get("error_code") is None


async def test_a_question_waits_and_its_answer_is_the_next_thing_read(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([ask("Which colour?"), FINISH])
    one, two = await pair(parts, tenant_id, model, ScriptedModel([]))
    async with parts.db.begin() as conn:  # a task waits where none of its agents works
        others = tables.agents.c.id != one.ref.place.agent_id
        mine = tables.agents.c.task_id == two.ref.place.task_id
        await conn.execute(update(tables.agents).where(mine, others).values(state="finished"))
    first = await one.burst()
    assert first.reason is BurstReason.ASKED
    agent = await one.row(tables.agents, id=one.ref.place.agent_id)
    task = await one.row(tables.tasks)
    assert (agent.state, agent.waiting_for, agent.activity) == ("waiting", "person", "waiting for a person")
    assert (task.status, task.waiting_for, task.reserved_tokens) == ("waiting", "person", 0)
    assert await one.burst() == first, "found again in the ledger"
    [question] = await one.rows(tables.messages)
    assert (question.kind, question.recipient, question.agent_id) == ("question", "person", None)
    await answer(one, question.id, "blue")
    assert (await one.burst()).reason is BurstReason.FINISHED
    assert len(model.asked) == 2
    said = words(model, 1)
    assert said.index("Answered.") < said.index("[answer 1 from person] This answers your question.\nblue")
    events = await one.events()
    kinds = [event.data.type for event in events]
    assert (kinds.count("agent.waiting"), kinds.count("message.sent")) == (1, 1)
    assert kinds.count("steer.applied") == 1
    assert [d.status for d in told(events, "task.status")][-2:] == ["waiting", "running"]
    assert (await one.row(tables.tasks)).waiting_for is None


async def test_any_message_ends_the_wait_and_the_question_stays_open(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([ask("Which colour?"), ask("Which colour?"), FINISH])
    one, _ = await pair(parts, tenant_id, model, ScriptedModel([]))
    await one.burst()
    await one.mail("hurry up")
    assert (await one.burst()).reason is BurstReason.ASKED
    assert "Not answered yet" in words(model, 1)
    assert "hurry up" in words(model, 1)
    [question] = await one.rows(tables.messages, kind="question")
    await answer(one, question.id, "blue")
    assert (await one.burst()).reason is BurstReason.FINISHED
    assert (await one.count())["agent.waiting"] == 2


async def test_two_that_ask_each_other_both_get_their_answers(parts: Parts, tenant_id: str) -> None:
    """A wait that only the answer ended would be one for ever."""
    one_says = ScriptedModel([ask("your port?", to="s2"), send("s2", "mine is 1"), ask("your port?", to="s2"), FINISH])
    two_says = ScriptedModel([ask("your port?", to="s1"), send("s1", "mine is 2"), ask("your port?", to="s1"), FINISH])
    two_says.gate = asyncio.Event()
    one, two = await pair(parts, tenant_id, one_says, two_says)
    running = asyncio.create_task(two.burst())
    await until(lambda: two_says.under_way == 1)
    assert (await one.burst()).reason is BurstReason.ASKED
    assert (await one.row(tables.tasks)).waiting_for is None, "nobody outside is waited for"
    two_says.gate.set()
    ends = {"s2": (await running).reason}
    for _ in range(10):
        for scene in (one, two):
            await carry(scene)
            ends[scene.ref.place.step] = (await scene.burst()).reason
    assert ends == dict.fromkeys(("s1", "s2"), BurstReason.FINISHED)
    answers = sorted(row.sender for row in await one.rows(tables.messages, kind="answer"))
    assert answers == ["s1", "s2"]
    assert "This answers your question.\nmine is 2" in words(one_says, -1)
    assert "This answers your question.\nmine is 1" in words(two_says, -1)


async def test_who_asks_with_a_limit_goes_on_without_an_answer(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([ask("Which colour?", timeout_s=3_600), FINISH])
    one, _ = await pair(parts, tenant_id, model, ScriptedModel([]))
    assert (await one.burst()).reason is BurstReason.ASKED
    await close_questions(parts.db)
    assert (await one.burst()).reason is BurstReason.ASKED, "its time is not over"
    [question] = await one.rows(tables.messages)
    assert question.expires_at - question.sent_at == timedelta(hours=1)
    async with parts.db.begin() as conn:
        over = update(tables.messages).where(tables.messages.c.id == question.id)
        await conn.execute(over.values(expires_at=question.sent_at))
    await until(lambda: _closed(one), 20)
    assert (await one.burst()).reason is BurstReason.FINISHED
    [asked] = await one.rows(tables.tool_calls, tool="ask")
    assert asked.result["error_code"] == "ASK_TIMED_OUT"
    assert "Go on without it" in asked.result["content"]
    assert "person did not answer your question in time" in words(model, 1)
    assert (await one.row(tables.tasks)).waiting_for is None
    [sent, _] = told(await one.events(), "message.sent")
    assert sent.expires_s == 3_600
    async with parts.db.begin() as conn:
        [_, (_, shown)] = await messages.page(conn, tenant_id, one.task.task_id, limit=5)
    assert (shown.answered_by, shown.closed_by) == (None, (await one.row(tables.messages, kind="notice")).id)
    late = MessageBody(text="blue", reply_to=question.id)
    async with parts.db.begin() as conn:
        with pytest.raises(LonghaulError, match="ALREADY_ANSWERED: nobody answered this question in time"):
            await messages.send(conn, tenant_id, one.task.task_id, new_id("msg"), late)


async def _closed(scene: Scene) -> bool:
    """Whether the question was closed, by this or by the stack's relay."""
    await close_questions(scene.parts.db)
    return len(await scene.rows(tables.messages, kind="notice")) == 1


async def test_who_is_not_at_work_cannot_be_asked(parts: Parts, tenant_id: str) -> None:
    one, two = await pair(
        parts, tenant_id, ScriptedModel([ask("done?", to="s2"), ask("you?", to="s3"), FINISH]), ScriptedModel([FINISH])
    )
    await two.burst()
    assert (await one.burst()).reason is BurstReason.FINISHED
    results = [c.result for c in await one.rows(tables.tool_calls, tool="ask")]
    assert [r["error_code"] for r in results] == ["RECIPIENT_GONE"] * 2
    assert await one.rows(tables.messages) == []


async def test_a_call_that_is_repeated_sends_once(parts: Parts, tenant_id: str) -> None:
    """The id follows from the call's key, so what an attempt that died has stored is found."""
    one, _ = await pair(parts, tenant_id, ScriptedModel([ask("Which colour?")]), ScriptedModel([]))
    await one.burst()
    [question] = await one.rows(tables.messages)
    assert question.id == message_id(f"{one.ref.place.path}/1/1/c0/1")


@pytest.mark.parametrize("committed", [True, False])
async def test_4_a_question_whose_commit_was_not_answered_is_asked_once(
    parts: Parts, tenant_id: str, committed: bool
) -> None:
    model = ScriptedModel([send("s2", "hello"), ask("Which colour?"), FINISH])
    one, _ = await pair(parts, tenant_id, model, ScriptedModel([]))
    assert (await one.burst(ledger=Forgetful(parts.ledger, committed))).reason is BurstReason.ASKED
    sent = {row.kind: row.id for row in await one.rows(tables.messages)}
    assert sorted(sent) == ["mail", "question"]
    await answer(one, sent["question"], "blue")
    assert (await one.burst(ledger=Forgetful(parts.ledger, committed))).reason is BurstReason.FINISHED
    assert (await one.count())["message.sent"] == 2
    assert len(model.asked) == 3


@pytest.mark.timeout(600)
async def test_killed_at_every_moment_of_a_question_and_its_answer(parts: Parts, tenant_id: str) -> None:
    """Whenever the asker's worker dies: asked once, sent once, answered once."""

    async def one_life(until: int | None) -> int:
        script = [send("s2", "hello"), ask("Which colour?"), send("s2", "blue it is"), FINISH]
        model, life = ScriptedModel(script), Life(until)
        one, _ = await pair(parts, f"{tenant_id}n{until or 0}", model, ScriptedModel([]))
        mortal = {"ledger": Mortal(parts.ledger, life, "ledger"), "model": Mortal(model, life, "model")}
        for _ in range(3):
            try:
                end = await one.burst(**mortal)
            except Killed:
                mortal = {}
                continue
            if end.reason is not BurstReason.ASKED:
                break
            [question] = await one.rows(tables.messages, kind="question")
            if not await one.rows(tables.messages, kind="answer"):
                await answer(one, question.id, "blue")
        assert end.reason is BurstReason.FINISHED, life.where[-1]
        assert Counter(row.kind for row in await one.rows(tables.messages)) == {"mail": 2, "question": 1, "answer": 1}
        told_of = await one.count()
        kinds = ("message.sent", "message.delivered", "steer.applied", "agent.waiting")
        assert [told_of[kind] for kind in kinds] == [3, 1, 1, 1], life.where[-1]
        assert (await one.row(tables.tasks)).waiting_for is None
        return life.moments

    moments = await one_life(None)
    side_by_side = asyncio.Semaphore(4)

    async def dies(until: int) -> None:
        async with side_by_side:
            await one_life(until)

    async with asyncio.TaskGroup() as group:
        for moment in range(1, moments + 1):
            group.create_task(dies(moment))
