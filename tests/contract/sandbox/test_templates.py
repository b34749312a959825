"""Templates in real sandboxes: what a recipe makes is there, read-only, for those that asked for it, and stays."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox.client import RunnerClient
from services.sandbox.template import MADE, VENV
from services.sandbox.templates import shelf
from services.sandbox.templates.build import build
from services.sandbox.templates.recipe import Recipe, TemplateError, find
from tests.contract.sandbox.runner import CHECKOUT, RunnerProcess, make_box, places, sleeping, until
from tests.support.engine import Engine

TINY = """
name = "tiny"
packages = ["iniconfig"]
setup = [
  "mkdir bin && printf '#!/bin/sh\\\\necho hello $GREETING\\\\n' > bin/hello && chmod 700 bin/hello",
  "id -u > who; mkdir -m 0 shut; python -c 'import socket; socket.create_connection((\\"1.1.1.1\\", 53), 3)' || true",
]
path = ["/opt/longhaul/template/bin"]
env = { GREETING = "there" }
"""
SIX = TINY.replace("hello $GREETING", "anew")

pytestmark = pytest.mark.timeout(200)  # a virtual environment takes its time on a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Templates of these tests: a bare default and one with a package, a program and a variable."""
    made = tmp_path_factory.mktemp("templates")
    for part in (made, *made.parents[:2]):
        part.chmod(0o755)
    (made / "recipes").mkdir()
    (made / "recipes" / "tiny.toml").write_text(TINY)
    build(made, Recipe(name="default"))
    build(made, find(made, "tiny"))
    return made


@pytest.fixture(scope="module", params=places())
def shelved(request: pytest.FixtureRequest, folder: Path, engine: Engine | None) -> Iterator[RunnerProcess]:
    process = RunnerProcess(request.param, folder, engine)
    try:
        yield process.start()
    finally:
        process.remove()


@pytest.fixture
async def client(shelved: RunnerProcess) -> AsyncIterator[RunnerClient]:
    async with shelved.client() as made:
        yield made


async def test_what_the_recipe_says_is_there_and_cannot_be_changed(client: RunnerClient) -> None:
    box = await make_box(client, template="tiny")
    assert (await client.info(box.id)).template == "tiny"
    assert await box.out("hello; echo $GREETING") == "hello there\nthere\n"
    assert (await box.out("python -c 'import iniconfig; print(iniconfig.__file__)'")).startswith(f"{VENV}/lib/")
    assert await box.out(f"cat {MADE}/who; stat -c %a {MADE}/shut {MADE}/bin/hello") == "1000\n755\n755\n"
    for place in (f"{MADE}/x", f"{MADE}/bin/hello", f"{VENV}/x"):
        assert (await box.run(f"echo x > {place}")).exit_code != 0
    assert "python" not in await box.out("ls -A")
    await client.destroy(box.id)


async def test_others_have_nothing_of_it(client: RunnerClient) -> None:
    box = await make_box(client)
    assert (await client.info(box.id)).template == "default"
    gone = await box.run(f"hello || echo no:$GREETING:; ls {MADE}; python -c 'import iniconfig'")
    assert gone.exit_code != 0
    assert "no::" in gone.output
    assert "ModuleNotFoundError" in gone.output
    await client.destroy(box.id)


async def test_one_that_is_not_built_is_refused_with_those_that_are(client: RunnerClient) -> None:
    assert {"default", "tiny"} <= set((await client.capabilities()).templates)
    before = await client.list_sandboxes()
    with pytest.raises(LonghaulError, match=r"default, .*tiny") as caught:
        await make_box(client, template="other")
    assert caught.value.code is ErrorCode.TEMPLATE_NOT_FOUND
    assert await client.list_sandboxes() == before


async def test_a_copy_and_a_sandbox_from_before_keep_their_build(client: RunnerClient, folder: Path) -> None:
    box = await make_box(client, template="tiny")
    recipe = folder / "recipes" / "tiny.toml"
    recipe.write_text(SIX)
    try:
        await asyncio.to_thread(build, folder, find(folder, "tiny"))
        copy, fresh = await make_box(client, copy_of=box.id), await make_box(client, template="tiny")
        assert await box.out("hello") == await copy.out("hello") == "hello there\n"
        assert (await client.info(copy.id)).template == "tiny"
        assert await fresh.out("hello") == "anew\n"
        (folder / "recipes" / "late.toml").write_text('name = "late"')
        await asyncio.to_thread(build, folder, find(folder, "late"))
        assert "late" in (await client.capabilities()).templates, "what was built just now is known at once"
    finally:
        recipe.write_text(TINY)
        await asyncio.to_thread(build, folder, find(folder, "tiny"))
    for one in (box, copy, fresh):
        await client.destroy(one.id)


async def test_a_build_is_pruned_when_its_sandbox_is_gone_and_not_before(folder: Path, engine: Engine | None) -> None:
    runner = RunnerProcess(places()[0], folder, engine)
    old = Recipe(name="old", setup=("echo old > word",))
    (folder / "recipes" / "old.toml").write_text('name = "old"')
    try:
        made = await asyncio.to_thread(build, folder, old)
        async with runner.start().client() as client:
            box = await make_box(client, template="old")
            await asyncio.to_thread(build, folder, find(folder, "old"))
            assert shelf.used(runner.data)[made.name] == 1
            assert made.name in shelf.prune(folder, Path("/nowhere")).in_use, "its runner holds it"
            runner.kill()
            assert made.name in shelf.prune(folder, runner.data).in_use, "its sandbox is there still"
            runner.start()
            assert await box.out(f"cat {MADE}/word") == "old\n"
            await client.destroy(box.id)
        runner.stop()
        assert made.name in shelf.prune(folder, runner.data).removed
        assert not made.exists()
    finally:
        runner.remove()
        (folder / "recipes" / "old.toml").unlink()


def test_a_command_that_fails_says_what_it_said(folder: Path) -> None:
    wrong = Recipe(name="wrong", setup=("true", "echo out of flour; exit 3"))
    with pytest.raises(TemplateError, match=r"(?s)Command 2 .* ended with 3 .*out of flour"):
        build(folder, wrong)
    assert not (folder / wrong.digest).exists()
    assert not (folder / "named" / "wrong").is_symlink()
    mended = Recipe(name="wrong", setup=("true",))
    assert build(folder, mended).is_dir()
    assert not list(folder.glob("building-*"))
    (folder / "named" / "wrong").unlink()


async def test_a_builder_that_is_killed_leaves_nothing_in_use_and_nothing_running(folder: Path) -> None:
    mark = f"86{os.getpid()}"
    (folder / "recipes" / "slow.toml").write_text(f'name = "slow"\nsetup = ["sleep {mark}"]')
    argv = [sys.executable, "-m", "services.cli.main", "template", "build", "slow"]
    env = os.environ | {"LONGHAUL_RUNNER_TEMPLATE_DIR": str(folder)}
    process = await asyncio.create_subprocess_exec(*argv, cwd=CHECKOUT, env=env, stdout=asyncio.subprocess.DEVNULL)
    try:
        await until(lambda: sleeping(mark), 100)
        process.kill()
        await process.wait()
        await until(lambda: not sleeping(mark), 20)
        assert not (folder / "named" / "slow").is_symlink()
        assert not (folder / find(folder, "slow").digest).exists()
        (folder / "recipes" / "slow.toml").write_text('name = "slow"')
        assert (await asyncio.to_thread(build, folder, find(folder, "slow"))).is_dir()
        assert not list(folder.glob("building-*"))
    finally:
        (folder / "recipes" / "slow.toml").unlink()
        (folder / "named" / "slow").unlink(missing_ok=True)
