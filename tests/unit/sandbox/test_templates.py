"""Recipes and builds of templates, as far as no sandbox is needed."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox.template import Template, Templates, link_of
from services.sandbox.templates import shelf
from services.sandbox.templates.build import build
from services.sandbox.templates.recipe import SHIPPED, Recipe, TemplateError, check, find, read
from services.stack.layout import CHECKOUT

IMAGE = Recipe(name="house", image="house:1")


def command(*arguments: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "services.cli.main", "template", *arguments]
    return subprocess.run(argv, cwd=CHECKOUT, env=os.environ | env, capture_output=True, text=True, check=False)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / "recipes" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_recipe_can_be_read(path: Path) -> None:
    recipe = read(path)
    assert recipe.shipped
    assert recipe.description
    assert "--hash=sha256:" in recipe.requirements, "what is shipped is pinned"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('name = "x"\npackage = ["a"]', "package"),
        ('name = "other"', "file and name"),
        ('name = "X"', "name"),
        ('name = "x"\npackages = ["-r /etc/passwd"]', "no requirement"),
        ('name = "x"\nlock = "none.lock"', "cannot be read"),
        ('name = "x"\npath = ["relative"]', "path"),
        ('name = "x"\npath = ["/a:/b"]', "path"),
        ('name = "x"\nenv = {"1" = "a"}', "env"),
        ("name = ", "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said(tmp_path: Path, text: str, why: str) -> None:
    path = write(tmp_path, "x", text)
    with pytest.raises(TemplateError, match=why) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_an_operators_recipe_goes_before_a_shipped_one_and_an_unknown_name_lists_all(tmp_path: Path) -> None:
    assert find(tmp_path, "default").shipped
    write(tmp_path, "default", 'name = "default"\npackages = ["six"]')
    assert find(tmp_path, "default").packages == ("six",)
    write(tmp_path, "own", 'name = "own"')
    with pytest.raises(TemplateError, match="default, own, standard_dev"):
        find(tmp_path, "none")


@pytest.mark.parametrize(
    "change",
    [
        {"packages": ("six",)},
        {"setup": ("true",)},
        {"env": {"A": "b"}},
        {"path": ("/a",)},
        {"image": "other"},
        {"requirements": "six==1"},
    ],
)
def test_a_build_is_named_by_all_that_goes_into_it(change: dict[str, Any]) -> None:
    assert Recipe(name="x", **change).digest != Recipe(name="x").digest
    assert Recipe(name="x", **change).digest == Recipe(name="y", description="the same", **change).digest


def test_two_that_build_at_once_build_once(tmp_path: Path) -> None:
    recipe = Recipe(name="bare")
    built: list[Path] = []
    both = [threading.Thread(target=lambda: built.append(build(tmp_path, recipe))) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert built == [tmp_path / recipe.digest] * 2, "the second would have failed to put its own in place"
    assert Template(tmp_path, link_of("bare")).at == built[0].resolve()
    assert not list(tmp_path.glob("building-*"))


def test_a_build_that_fails_leaves_what_was_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build(tmp_path, IMAGE)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    wanted = Recipe(name="house", packages=("a-package-that-is-not-there",))
    with pytest.raises(TemplateError, match="could not be"):
        build(tmp_path, wanted)
    assert Template(tmp_path, link_of("house")).at == before.resolve()
    assert not (tmp_path / wanted.digest).exists()


def test_an_image_is_a_template_only_where_there_is_an_engine(tmp_path: Path) -> None:
    made = build(tmp_path, IMAGE)
    assert Templates(tmp_path, images=True).pick("house") == made.name
    assert Templates(tmp_path, images=True).names() == ("house",)
    with pytest.raises(LonghaulError, match="there is no template house") as caught:
        Templates(tmp_path).pick("house")
    assert caught.value.code is ErrorCode.TEMPLATE_NOT_FOUND


def test_what_a_template_adds_to_the_environment(tmp_path: Path) -> None:
    build(tmp_path, Recipe(name="house", image="house:1", env={"A": "1"}, path=("/x/bin", "/y/bin")))
    assert Template(tmp_path, link_of("house")).facts().environment({"PATH": "/usr/bin", "B": "2"}) == {
        "A": "1",
        "B": "2",
        "PATH": "/x/bin:/y/bin:/usr/bin",
    }


def test_prune_takes_what_nobody_uses_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, "house", 'name = "house"\nimage = "house:2"')
    held, old = build(tmp_path, IMAGE), build(tmp_path, Recipe(name="house", image="house:3"))
    in_use = build(tmp_path, find(tmp_path, "house"))
    gone = build(tmp_path, Recipe(name="gone", image="gone"))
    write(tmp_path, "default", 'name = "default"\nimage = "x"')
    build(tmp_path, find(tmp_path, "default"))
    (tmp_path / "building-left").mkdir()
    runner = Templates(tmp_path, images=True)
    runner.of(held.name)
    done = shelf.prune(tmp_path, tmp_path / "runner")
    assert set(done.removed) == {old.name, gone.name}
    assert done.in_use == (held.name,)
    assert in_use.is_dir()
    assert check(tmp_path) is None
    assert not list(tmp_path.glob("building-*"))
    assert not (tmp_path / link_of("gone")).is_symlink()
    with pytest.raises(LonghaulError, match="not there any more"):
        runner.of(old.name)


def test_the_command(tmp_path: Path) -> None:
    write(tmp_path, "house", 'name = "house"\ndescription = "an image"\nimage = "house:1"')
    write(tmp_path, "broken", "name = 5")
    env = {"LONGHAUL_RUNNER_TEMPLATE_DIR": str(tmp_path), "LONGHAUL_DATA_DIR": str(tmp_path / "data")}
    made = command("build", "house", "--json", env=env)
    assert json.loads(made.stdout) == [{"name": "house", "digest": IMAGE.digest, "made": True}]
    assert json.loads(command("build", "house", "--json", env=env).stdout)[0]["made"] is False
    rows = {row["name"]: row for row in json.loads(command("list", "--json", env=env).stdout)}
    assert rows["house"]["state"] == "built"
    assert rows["house"]["backends"] == "docker, gvisor"
    assert rows["default"]["state"] == "not built"
    assert rows["broken"]["state"] == "broken"
    assert "an image" in command("list", env=env).stdout
    assert json.loads(command("prune", "--json", env=env).stdout) == {"removed": {}, "in_use": []}
    unknown = command("build", "none", env=env)
    assert unknown.returncode == 3
    assert "There are: default" in unknown.stderr
