"""Supervisors to test."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervisor.build import build, program
from services.stack.layout import default_data_dir
from tests.contract.supervisor.box import Listening, Sandbox, Tools

PLACE = Path(os.environ.get("LONGHAUL_RUNNER_TEMPLATE_DIR") or default_data_dir() / "template")
BUILD_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test builds the program where it is not there: minutes, where a compiler has to be fetched."""
    ours = (item for item in items if Path(__file__).parent in item.path.parents)
    if not program(PLACE).exists() and (first := next(ours, None)) is not None:
        first.add_marker(pytest.mark.timeout(BUILD_S))


@pytest.fixture(scope="session")
def tools() -> Iterator[Tools]:
    made = Tools(build(PLACE))
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
