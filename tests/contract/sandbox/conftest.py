"""Runners for the conformance suite: each test runs on every identity that can be had here."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.sandbox.client import RunnerClient
from services.sandbox.supervisor import build as supervisor
from services.sandbox.template import Template
from services.sandbox.templates.build import build
from services.sandbox.templates.recipe import Recipe, check
from services.stack.layout import default_data_dir
from tests.contract.sandbox.runner import Box, RunnerProcess, make_box, places
from tests.support.engine import Engine


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed template, or a bare one (an interpreter, no packages) where it was not built."""
    installed = Path(os.environ.get("LONGHAUL_RUNNER_TEMPLATE_DIR") or default_data_dir() / "template")
    if check(installed) is None:
        supervisor.build(installed)
        return installed
    folder = tmp_path_factory.mktemp("template")
    for part in (folder, *folder.parents[:2]):
        part.chmod(0o755)
    build(folder, Recipe(name="default"))
    supervisor.build(folder)
    return folder


@pytest.fixture(scope="session")
def full_template(template: Path) -> Path:
    """The installed template with its packages."""
    venv = Template(template).venv()
    if venv is None or not list(venv.glob("lib/python*/site-packages/numpy")):
        pytest.fail("the template's packages are not installed: make setup")
    return template


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine | None]:
    """The engine of all runners, where one is asked for."""
    if all(place.startswith("namespace/") for place in places()):
        yield None
        return
    with Engine() as made:
        yield made


@pytest.fixture(scope="session", params=places())
def runner(request: pytest.FixtureRequest, template: Path, engine: Engine | None) -> Iterator[RunnerProcess]:
    """A runner that tests share; do not kill it."""
    process = RunnerProcess(request.param, template, engine)
    try:
        yield process.start()
        assert process.stop() == 0, process.said()
        assert '"level": "error"' not in process.said(), process.said()
    finally:
        process.remove()


@pytest.fixture(scope="module", params=places())
def killable(request: pytest.FixtureRequest, template: Path, engine: Engine | None) -> Iterator[RunnerProcess]:
    """What `own_runner` starts again after each test that killed it: starting costs more than the tests do."""
    process = RunnerProcess(request.param, template, engine)
    try:
        yield process
    finally:
        process.remove()


@pytest.fixture
def own_runner(killable: RunnerProcess) -> RunnerProcess:
    """A runner to be killed."""
    return killable if killable.lives() else killable.start()


@pytest.fixture
async def client(runner: RunnerProcess) -> AsyncIterator[RunnerClient]:
    async with runner.client() as made:
        yield made


@pytest.fixture
async def box(client: RunnerClient) -> AsyncIterator[Box]:
    """A fresh sandbox."""
    made = await make_box(client)
    yield made
    await client.destroy(made.id)
