"""Pages: stable while tasks are added, complete, and bounded."""

import httpx

from tests.service.api.world import Writer, submit


async def walk(http: httpx.AsyncClient, **params: str | list[str]) -> list[str]:
    """Every id, page by page."""
    ids: list[str] = []
    query: dict[str, str | list[str]] = {"limit": "4", **params}
    while True:
        page = (await http.get("/v1/tasks", params=query)).raise_for_status().json()
        assert len(page["data"]) <= 4
        ids += [task["id"] for task in page["data"]]
        if page["next_cursor"] is None:
            return ids
        query["cursor"] = page["next_cursor"]


async def test_pages_do_not_shift_while_tasks_are_added(http: httpx.AsyncClient) -> None:
    first = [await submit(http) for _ in range(10)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": "3"} if cursor is None else {"limit": "3", "cursor": cursor}
        page = (await http.get("/v1/tasks", params=query)).json()
        seen += [task["id"] for task in page["data"]]
        cursor = page["next_cursor"]
        await submit(http)
        if cursor is None:
            break
    assert seen == first[::-1]
    assert (await walk(http, order="asc"))[:10] == first
    everything = await walk(http)
    assert len(everything) == len(set(everything)) == 14


async def test_filter_by_status(http: httpx.AsyncClient, writer: Writer) -> None:
    tasks = [await submit(http) for _ in range(6)]
    for task_id in tasks[:2]:
        await writer.end(task_id)
    assert await walk(http, status="completed") == tasks[1::-1]
    assert len(await walk(http, status=["completed", "queued"])) == 6
    assert await walk(http, status="failed") == []


async def test_a_cursor_is_for_its_order(http: httpx.AsyncClient) -> None:
    for _ in range(3):
        await submit(http)
    cursor = (await http.get("/v1/tasks?limit=1")).json()["next_cursor"]
    answer = await http.get("/v1/tasks", params={"cursor": cursor, "order": "asc"})
    assert answer.json()["code"] == "INVALID_CURSOR"


async def test_pages_of_events(http: httpx.AsyncClient, writer: Writer) -> None:
    task_id = await submit(http)
    await writer.steps(task_id, 24)

    async def page(**params: object) -> dict[str, object]:
        answer = await http.get(f"/v1/tasks/{task_id}/events", params=params)  # type: ignore[arg-type]
        return answer.raise_for_status().json()  # type: ignore[no-any-return]

    def seqs(found: dict[str, object]) -> list[int]:
        return [e["seq"] for e in found["data"]]  # type: ignore[attr-defined]

    forward = await page(limit=10)
    assert (seqs(forward), forward["next_after"], forward["last_seq"]) == (list(range(1, 11)), 10, 25)
    last = await page(after=20, limit=10)
    assert (seqs(last), last["next_after"]) == (list(range(21, 26)), None)
    newest = await page(order="desc", limit=10)
    assert (seqs(newest), newest["next_before"]) == (list(range(25, 15, -1)), 16)
    older = await page(order="desc", limit=20, before=16)
    assert (seqs(older), older["next_before"]) == (list(range(15, 0, -1)), None)
    assert seqs(await page(kind="task")) == [1]
    assert seqs(await page(kind=["task.created", "step"], after=22)) == [23, 24, 25]
    assert seqs(await page(after=10, before=13)) == [11, 12]
    assert seqs(await page(agent="agent_12345678")) == []
    assert seqs(await page(after=2**62)) == []
