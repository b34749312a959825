"""What a linter cannot hold: where Temporal may be imported, and no clock or chance in pure code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("agents", "workflows", "services", "gpu")

# Modules passed through Temporal's sandbox escape its own check, so pure code may not even hold these.
BANNED_MODULES = {"random", "secrets", "time", "threading", "subprocess", "socket"}
BANNED_NAMES = {
    "uuid.uuid1",
    "uuid.uuid4",
    "os.environ",
    "os.getenv",
    "os.urandom",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
}


def _sources(package: str) -> Iterator[Path]:
    return (path for path in (ROOT / package).rglob("*.py") if "workspace" not in path.parts)


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def _offences(source: str) -> set[str]:
    tree = ast.parse(source)
    found = {name for name in _imports(tree) if name.split(".")[0] in BANNED_MODULES or name in BANNED_NAMES}
    return found | {name for node in ast.walk(tree) if (name := _dotted(node)) in BANNED_NAMES}


WALL_CLOCK = {
    "services/cli/demo/run.py": "compared with when the server made a task",
    "services/cli/live.py": "ages of what the server has told, never below nothing",
    "services/ids.py": "ids sort by when they were made",
    "services/inference/client.py": "Retry-After may be a date",
    "services/objects/direct.py": "signatures of S3 have a date",
    "services/objects/s3.py": "how old an upload must be that nobody ends",
    "services/relay/mail.py": "when a row was written; how old one must be",
    "services/relay/old_answers.py": "how old a row must be",
    "services/relay/outbox.py": "when a row was written",
    "services/relay/questions.py": "the moment until which a question waits, in its row",
    "services/relay/reservations.py": "how old a row must be",
    "services/relay/sandboxes.py": "how old a sandbox must be",
    "services/relay/snapshots.py": "how old a part must be",
    "services/relay/starts.py": "when a row was written; how old one must be",
    "services/sandbox/capture.py": "compared with the times of files",
    "services/sandbox/execs.py": "when a command was asked for",
    "services/sandbox/making.py": "when a sandbox was made",
    "services/sandbox/quality.py": "the clock inside against the host's",
    "services/sandbox/supervisor/build.py": "compared with the times of files",
    "services/sandbox/templates/setup.py": "when the sandbox was made in which a template is set up",
    "services/stack/probe.py": "signatures of S3 have a date",
    "services/stack/status.py": "the age that a person is shown, never below nothing",
    "services/stack/supervise.py": "since when a process is in its state, for a person",
    "services/store/migrate.py": "when a tenant was made",
    "services/worker/clock.py": "the clock of workers",
}
"""Who may ask what time it is, and for what. How long something takes or may take is `time.monotonic`: a clock that is
set must not end, prolong or repeat anything but what names a moment itself (a deadline, an expiry)."""


def test_only_moments_are_taken_from_the_wall_clock() -> None:
    asked = {
        str(path.relative_to(ROOT))
        for package in ("services", "gpu")
        for path in _sources(package)
        for name in map(_dotted, ast.walk(ast.parse(path.read_text())))
        if name in ("time.time", "time.time_ns", "datetime.now")
    }
    assert asked == set(WALL_CLOCK)


@pytest.mark.parametrize("package", ["agents", "workflows"])
def test_no_clock_no_chance_no_environment(package: str) -> None:
    offences = {
        str(path.relative_to(ROOT)): found for path in _sources(package) if (found := _offences(path.read_text()))
    }
    assert not offences


def test_the_check_sees_what_it_should() -> None:
    source = (
        "import os, time\nfrom uuid import uuid4\nfrom datetime import datetime\nx = datetime.now()\ny = os.environ"
    )
    assert _offences(source) == {"time", "uuid.uuid4", "datetime.now", "os.environ"}


def test_only_workflows_import_temporals_workflow_module() -> None:
    found = {
        str(path.relative_to(ROOT))
        for package in ("agents", "services", "gpu")
        for path in _sources(package)
        if "temporalio.workflow" in set(_imports(ast.parse(path.read_text())))
    }
    assert not found


def test_only_settings_and_commands_read_the_environment() -> None:
    allowed = ("services/cli/", "services/stack/doctor.py")
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in _sources(package)
        if {_dotted(node) for node in ast.walk(ast.parse(path.read_text()))} & {"os.environ", "os.getenv"}
    }
    assert not {path for path in found if not path.startswith(allowed)}


def test_no_module_is_patched_in_tests() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in _sources("tests")
        if any(name.startswith("unittest.mock") or name == "mock" for name in _imports(ast.parse(path.read_text())))
    }
    assert not found


def test_every_package_has_a_short_readme() -> None:
    folders = [path for package in ("agents", "services", "gpu") for path in (ROOT / package).iterdir()]
    rooms = [path for path in folders if (path / "__init__.py").exists()]
    lacking = {
        str(room.relative_to(ROOT))
        for room in [*rooms, *(ROOT / package for package in PACKAGES)]
        if not (room / "README.md").is_file() or len((room / "README.md").read_text().splitlines()) > 60
    }
    assert not lacking
