"""Supervisors to test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervisor.build import build
from tests.contract.supervisor.box import Listening, Sandbox, Tools


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    made = Tools(build(Path(tmp_path_factory.getbasetemp()).parent / "supervisor-built"))
    yield made
    made.remove()


@pytest.fixture
async def sandbox(tools: Tools) -> AsyncIterator[Sandbox]:
    made = Sandbox(tools)
    yield made
    await made.remove()


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Supervisor]:
    """The controller of a fresh sandbox."""
    made = await sandbox.start()
    yield made
    await made.close()


@pytest.fixture
async def listening(tools: Tools) -> AsyncIterator[Listening]:
    made = Listening(tools)
    await made.open()
    yield made
    await made.remove()
