"""All demos at once, as `longhaul demo` runs them: what the teams did by their events; what they kept, recomputed."""

import csv
import hashlib
import json
import math
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agents.contracts.artifact import BlobRef
from services.cli.connect import local
from services.cli.demo.catalogue import chosen, names
from services.objects.s3 import S3Objects
from services.sandbox.template import Template
from services.settings import Settings
from services.stack.layout import CHECKOUT
from tests.support.command import command
from tests.support.formats import Obj, glb_positions, png_size
from tests.support.stack import Stack

WITHIN_S = 420.0
ARTIFACTS = {
    "code_repair": ["REPAIR.md", "repair.diff"],
    "market_analysis": ["chart.png", "metrics.json", "report.md"],
    "parametric_part": ["flange.glb", "flange.obj", "flange.png", "measurements.json"],
}
FIRST_VERSIONS = {"market_analysis": ("metrics", "6 figures are wrong"), "parametric_part": ("mesh", "3228 without")}
"""The step whose first version has a fault, and what the reviewer's own command says of it."""

pytestmark = pytest.mark.timeout(WITHIN_S + 60)


class Seen(NamedTuple):
    """An event; its data is read by the fields that its type has."""

    seq: int
    at: datetime
    step_id: str | None
    data: Any


@dataclass(frozen=True)
class Played:
    """One run of `longhaul demo --json`, with the artifacts in folders by the demos' names."""

    report: dict[str, Any]
    said: str
    events: dict[str, list[Seen]]
    folder: Path

    def of(self, demo: str, kind: str, step: str) -> list[Seen]:
        return [e for e in self.events[demo] if e.data.type == kind and e.step_id == step]


@pytest.fixture(scope="module")
def played(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("demos")
    ran = command(stack, "demo", "--json", within_s=WITHIN_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    events = {}
    for task in report["tasks"]:
        events[task["name"]] = all_events(stack, task["id"])
        kept = command(stack, "artifacts", task["id"], "--download", str(folder / task["name"]))
        assert kept.returncode == 0, kept.stderr
    return Played(report, ran.stderr, events, folder)


def all_events(stack: Stack, task: str) -> list[Seen]:
    access = local(stack.data)
    found: list[Seen] = []
    after: int | None = 0
    assert access
    with access.client() as client:
        while after is not None:
            page = client.events(task, after)
            found += [Seen(e.seq, e.at, e.step_id, e.data) for e in page.data]
            after = page.next_after
    return found


def test_every_demo_has_a_folder_and_a_recording_of_its_instruction() -> None:
    assert names() == sorted(ARTIFACTS)
    for demo in chosen(None):
        recorded = json.loads((CHECKOUT / "gpu/engine/recordings" / f"{demo.name}.json").read_text(encoding="utf-8"))
        assert (recorded["name"], recorded["instruction"]) == (demo.name, demo.instruction)
        assert demo.checks


def test_an_unknown_name_lists_those_there_are(stack: Stack) -> None:
    ran = command(stack, "demo", "world_peace")
    assert ran.returncode == 2
    assert all(name in ran.stderr for name in ("world_peace", *ARTIFACTS))
    assert "Traceback" not in ran.stderr


def test_all_tasks_complete_and_the_report_says_so(played: Played) -> None:
    assert set(played.report) == {"tasks", "seconds"}
    assert [task["name"] for task in played.report["tasks"]] == list(ARTIFACTS)
    for task in played.report["tasks"]:
        assert set(task) == {"id", "name", "status", "stop_reason", "turns", "artifacts"}
        assert (task["status"], task["stop_reason"]) == ("completed", "completed")
        assert sorted(a["path"] for a in task["artifacts"]) == ARTIFACTS[task["name"]]
        events = played.events[task["name"]]
        assert [e.seq for e in events] == list(range(1, len(events) + 1))
        assert events[-1].data.type == "task.completed"
    assert "replayed" in played.said


def test_the_tasks_ran_beside_each_other(played: Played) -> None:
    began = [events[0].at for events in played.events.values()]
    ended = [events[-1].at for events in played.events.values()]
    assert max(began) < min(ended)


@pytest.mark.parametrize(
    ("demo", "one", "other"),
    [
        ("market_analysis", "metrics", "chart"),
        ("parametric_part", "mesh", "formula"),
        ("parametric_part", "measure", "picture"),
    ],
)
def test_steps_ran_side_by_side(played: Played, demo: str, one: str, other: str) -> None:
    spans = []
    for step in (one, other):
        (first, *_), (last,) = played.of(demo, "step.started", step), played.of(demo, "step.completed", step)
        spans.append((first.at, last.at))
    assert max(span[0] for span in spans) < min(span[1] for span in spans), spans


@pytest.mark.parametrize("demo", FIRST_VERSIONS)
def test_one_review_asked_for_a_revision_for_what_its_own_command_had_shown(played: Played, demo: str) -> None:
    revised, shown = FIRST_VERSIONS[demo]
    verdicts = [(e.step_id, e.data.verdict) for e in played.events[demo] if e.data.type == "review.submitted"]
    assert [v for v in verdicts if v[1] != "approve"] == [(revised, "revise")]
    assert [v for v in verdicts if v[0] == revised] == [(revised, "revise"), (revised, "approve")]
    assert [e.data.round for e in played.of(demo, "step.started", revised)] == [1, 2]
    (review,) = (e for e in played.of(demo, "review.submitted", revised) if e.data.verdict == "revise")
    assert review.data.findings
    runs = [e for e in played.of(demo, "exec.exited", revised) if shown in e.data.output]
    assert [(e.data.exit_code, e.seq < review.seq) for e in runs] == [(1, True)]
    first, again = (
        e.data.command
        for e in played.of(demo, "exec.started", revised)
        if e.data.exec_id in same(played, demo, revised, runs[0])
    )
    assert first == again


def same(played: Played, demo: str, step: str, shown: Seen) -> set[str]:
    """The runs of the command whose end is `shown`."""
    started = {e.data.exec_id: e.data.command for e in played.of(demo, "exec.started", step)}
    return {name for name, text in started.items() if text == started[shown.data.exec_id]}


async def test_artifacts_are_in_s3_by_their_digests(played: Played, servers: Settings) -> None:
    objects = S3Objects(servers)
    try:
        for task in played.report["tasks"]:
            for kept in task["artifacts"]:
                data = await objects.get("default", BlobRef(sha256=kept["sha256"], bytes=kept["bytes"]))
                assert hashlib.sha256(data).hexdigest() == kept["sha256"]
                assert data == (played.folder / task["name"] / kept["path"]).read_bytes()
    finally:
        await objects.close()


def figures(series: list[tuple[str, float]]) -> dict[str, Any]:
    """A fund's figures by their definitions."""
    closes = [close for _, close in series]
    returns = [closes[n] / closes[n - 1] - 1 for n in range(1, len(closes))]
    pairs = ((closes[j] / closes[i] - 1, i, j) for j in range(len(closes)) for i in range(j + 1))
    fall, high, low = min(pairs)
    return {
        "days": len(closes),
        "total_return": closes[-1] / closes[0] - 1,
        "annual_volatility": math.sqrt(252 * statistics.variance(returns)),
        "max_drawdown": fall,
        "peak": series[high][0],
        "trough": series[low][0],
    }


def test_every_figure_of_the_analysis_is_right(played: Played) -> None:
    folder = played.folder / "market_analysis"
    funds: dict[str, list[tuple[str, float]]] = {}
    with (chosen("market_analysis")[0].workspace / "prices.csv").open() as source:
        for row in csv.DictReader(source):
            funds.setdefault(row["symbol"], []).append((row["date"], float(row["close"])))
    claimed = json.loads((folder / "metrics.json").read_text())
    lines = (folder / "report.md").read_text().splitlines()
    table = {
        cells[1].strip(): [c.strip() for c in cells[2:5]] for cells in (x.split("|") for x in lines if x[:2] == "| ")
    }
    right = {symbol: figures(series) for symbol, series in funds.items()}
    assert set(claimed) == set(right) == set(table) - {"fund"}
    for symbol, mine in right.items():
        assert {k: pytest.approx(v, rel=1e-9) if isinstance(v, float) else v for k, v in mine.items()} == claimed[
            symbol
        ]
        total, volatility, fall = (100 * mine[k] for k in ("total_return", "annual_volatility", "max_drawdown"))
        assert table[symbol] == [f"{total:+.1f}%", f"{volatility:.1f}%", f"{fall:.1f}%"]
    words = " ".join(lines)
    assert f"**{max(right, key=lambda s: right[s]['total_return'])} earned most**" in words
    assert f"**{min(right, key=lambda s: right[s]['max_drawdown'])} fell deepest**" in words
    assert f"**{min(right, key=lambda s: right[s]['annual_volatility'])} moved least**" in words


def test_the_pictures_are_whole_pngs(played: Played) -> None:
    assert png_size(played.folder / "market_analysis" / "chart.png") >= (1200, 800)
    assert png_size(played.folder / "parametric_part" / "flange.png") >= (1200, 800)


def test_the_part_is_the_solid_of_the_drawing(played: Played) -> None:
    folder = played.folder / "parametric_part"
    part = json.loads((chosen("parametric_part")[0].workspace / "part.json").read_text())
    high, rim = part["flange_thickness"] + part["hub_height"], part["flange_diameter"] / 2
    mesh, volume = Obj(folder / "flange.obj"), volume_of(part)
    assert mesh.open_sides() == 0
    assert mesh.holes() == part["bolt_count"] + 1
    assert mesh.volume() == pytest.approx(volume, rel=1e-3)
    assert mesh.bounds() == [pytest.approx([-rim, -rim, 0], abs=0.01), pytest.approx([rim, rim, high], abs=0.01)]
    metres = glb_positions(folder / "flange.glb")
    assert metres["count"] == len(mesh.points)
    assert [metres["min"], metres["max"]] == [pytest.approx([x / 1000 for x in corner]) for corner in mesh.bounds()]
    measured = json.loads((folder / "measurements.json").read_text())
    assert measured["expected"]["volume_mm3"] == pytest.approx(volume, rel=1e-9)
    assert [m["volume_mm3"] for m in measured["meshes"]] == [pytest.approx(mesh.volume(), rel=1e-6)] * 2
    assert all(m["passed"] and m["watertight"] for m in measured["meshes"])


def volume_of(part: dict[str, Any]) -> float:
    """By Simpson's rule, which is exact for a cone."""

    def area(*diameters: float) -> float:
        return sum(math.copysign(math.pi * d * d / 4, d) for d in diameters)

    bore, base, tip = part["bore_diameter"], part["hub_base_diameter"], part["hub_top_diameter"]
    disc = area(part["flange_diameter"], -bore) - part["bolt_count"] * area(part["bolt_hole_diameter"])
    hub = (area(base, -bore) + 4 * area((base + tip) / 2, -bore) + area(tip, -bore)) / 6
    return float(disc * part["flange_thickness"] + hub * part["hub_height"])


@pytest.mark.parametrize("demo", FIRST_VERSIONS)
def test_the_tasks_check_passes_the_result_and_refuses_the_first_version(
    played: Played, stack: Stack, demo: str, tmp_path: Path
) -> None:
    venv = Template(stack.template).venv()
    assert venv
    (task,) = chosen(demo)
    work = tmp_path / "work"
    shutil.copytree(task.workspace, work)
    shutil.copytree(played.folder / demo, work, dirs_exist_ok=True)

    def run(text: str) -> "subprocess.CompletedProcess[str]":
        env = {"PATH": f"{venv / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
        return subprocess.run(["sh", "-c", text], cwd=work, env=env, capture_output=True, text=True, check=False)

    (check,) = task.checks
    passed = run(check)
    assert passed.returncode == 0, passed.stderr
    script = first_script(demo, FIRST_VERSIONS[demo][0])
    (work / script["path"]).write_text(script["content"])
    assert run(f"python {script['path']}").returncode == 0
    refused = run(check)
    assert refused.returncode == 1
    assert {"market_analysis": "total_return is", "parametric_part": "is not watertight"}[demo] in refused.stderr


def first_script(demo: str, step: str) -> dict[str, Any]:
    """The first file that the step's executor wrote, as it is recorded."""
    recorded = json.loads((CHECKOUT / "gpu/engine/recordings" / f"{demo}.json").read_text(encoding="utf-8"))
    turns = [e["reply"]["tool_calls"] for e in recorded["entries"] if e["call"].startswith(f"executor/1.{step}/1/")]
    written = [call["arguments"] for calls in turns for call in calls if call["name"] == "write_file"]
    first: dict[str, Any] = written[0]
    return first
