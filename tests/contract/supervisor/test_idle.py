"""The runner's side of sandboxes that nobody uses: processes go, files stay."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agents.contracts.sandbox import ExecRequest, ExecStatus, Owner
from services.sandbox.cgroups import detect
from services.sandbox.execs import Execs
from services.sandbox.home import Home
from services.sandbox.intents import Intents
from services.sandbox.namespace import NamespaceBackend, find_bwrap
from services.sandbox.supervised.launch import in_use
from services.sandbox.template import Template
from services.stack.layout import default_data_dir
from tests.contract.supervisor.box import Tools
from tests.contract.supervisor.test_namespace import Place

OWNER = Owner(agent_id="a", agent_fence=1, sandbox_fence=1)
IDLE_S = 0.3


@pytest.fixture
async def made(tools: Tools) -> AsyncIterator[Place]:
    place = Place(tools)
    yield place
    await place.remove()


async def run(execs: Execs, home: Home, name: str, command: str, wait_s: float = 20) -> ExecStatus:
    request = ExecRequest(exec_id=name, key=name, owner=OWNER, command=command)
    begun = await execs.start(home, request, name)
    await execs.wait(begun, wait_s)
    return begun.status(request, name)


async def test_an_idle_sandbox_gives_its_processes_back_and_keeps_its_files(made: Place) -> None:
    execs, home = Execs(made.backend, Intents(made.data), idle_s=IDLE_S), made.home()
    assert (await run(execs, home, "a", "echo kept > file; echo > /tmp/too")).exit_code == 0
    await execs.tidy()
    assert in_use(home.root), "not at once"
    await asyncio.sleep(IDLE_S)
    await execs.tidy()
    assert not in_use(home.root)
    assert (await run(execs, home, "b", "cat file; ls /tmp/too")).output == "kept\n/tmp/too\n"
    assert (await run(execs, home, "a", "echo kept > file; echo > /tmp/too")).exit_code == 0
    await execs.end(home)


async def test_a_quiet_command_is_not_idle(made: Place) -> None:
    execs, home = Execs(made.backend, Intents(made.data), idle_s=IDLE_S), made.home()
    assert (await run(execs, home, "a", "sleep 1; echo done", wait_s=IDLE_S * 2)).exit_code is None
    await execs.tidy()
    assert (await run(execs, home, "a", "sleep 1; echo done")).output == "done\n"
    await execs.end(home)


async def test_one_that_another_runner_left_idle_ends_too(made: Place) -> None:
    before, home = Execs(made.backend, Intents(made.data), 1), made.home()
    await run(before, home, "a", "true")
    await before.close()
    execs = Execs(made.backend, Intents(made.data), 2, idle_s=IDLE_S)
    await execs.adopt([home])
    await execs.tidy()
    assert in_use(home.root)
    await asyncio.sleep(IDLE_S)
    await execs.tidy()
    assert not in_use(home.root)


async def test_without_the_program_nothing_runs_and_it_is_said(made: Place) -> None:
    template = Template(Path(os.environ.get("LONGHAUL_RUNNER_TEMPLATE_DIR") or default_data_dir() / "template"))
    backend = NamespaceBackend(made.data / "other", template, detect(), find_bwrap(), made.data / "supervisor-none")
    backend.setup()
    found = backend.capabilities()
    assert not found.ready
    assert "make setup" in found.detail
    assert "C compiler" in found.detail
