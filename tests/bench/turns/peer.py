"""LangGraph doing the same turns, in a Python of its own: `langgraph.py` starts it and never imports it.

Two nodes a turn, an engine and a tool that do nothing, a checkpoint after each (durability="sync"). The state is the
least that such a loop can have, and has no history in it. For each line on its input it prints ms a turn.
"""

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from typing import Any, TypedDict

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool


class State(TypedDict):
    """Where the loop is, the last reply and its result."""

    turn: int
    turns: int
    reply: str
    result: str


async def engine(state: State) -> dict[str, Any]:
    """A model that answers at once."""
    return {"turn": state["turn"] + 1, "reply": json.dumps({"name": "shell", "command": f"true {state['turn']}"})}


async def tool(state: State) -> dict[str, Any]:
    """A tool that does nothing."""
    return {"result": json.dumps({"exit_code": 0, "output": ""})}


def graph(saver: Any) -> Any:
    """The loop."""
    built = StateGraph(State)
    built.add_node("engine", engine)
    built.add_node("tool", tool)
    built.add_edge(START, "engine")
    built.add_edge("engine", "tool")
    built.add_conditional_edges("tool", lambda state: END if state["turn"] >= state["turns"] else "engine")
    return built.compile(checkpointer=saver)


async def saver_for(kind: str, where: str, tasks: int, ends: AsyncExitStack) -> Any:
    """A checkpointer on a file or on a database."""
    if kind == "sqlite":
        return await ends.enter_async_context(AsyncSqliteSaver.from_conn_string(where))
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool: Any = AsyncConnectionPool(where, min_size=tasks, max_size=tasks, kwargs=options, open=False)
    return AsyncPostgresSaver(await ends.enter_async_context(pool))


async def main(kind: str, where: str, tasks: int, turns: int) -> None:
    """Runs as often as it is asked to."""
    async with AsyncExitStack() as ends:
        saver = await saver_for(kind, where, tasks, ends)
        await saver.setup()
        loop = graph(saver)
        begin: State = {"turn": 0, "turns": turns, "reply": "", "result": ""}
        print("ready", flush=True)
        number = 0
        while await asyncio.to_thread(sys.stdin.readline):
            number += 1
            wall, cpu = time.perf_counter(), time.process_time()
            configs = [
                {"configurable": {"thread_id": f"{number}/{n}"}, "recursion_limit": 4 * turns} for n in range(tasks)
            ]
            await asyncio.gather(*(loop.ainvoke(begin, config, durability="sync") for config in configs))
            count = tasks * turns / 1000
            print((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
