"""Supervisors to test."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervisor.build import build
from services.stack.layout import default_data_dir
from tests.contract.supervisor.box import Listening, Sandbox, Tools


@pytest.fixture(scope="session")
def tools() -> Iterator[Tools]:
    made = Tools(build(Path(os.environ.get("LONGHAUL_RUNNER_TEMPLATE_DIR") or default_data_dir() / "template")))
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
