"""Live pictures on a small terminal: nothing is wider or higher than it, and nothing of them stays."""

import io

import pytest
from rich.console import Console

from services.cli.live import Screen, Watched, _screen
from services.cli.styles import plain
from services.cli.tree import Picture
from tests.support import terminal
from tests.unit.cli.test_tree import HERE, delta, many_steps


def drawn(columns: int, rows: int, tasks: int) -> terminal.Screen:
    """What a terminal shows in the end of several tasks under way, with lines printed meanwhile."""
    console = Console(file=io.StringIO(), width=columns, height=rows, force_terminal=True, legacy_windows=False)
    pictures = {Watched(f"task_{n}", f"label{n}"): Picture(label=f"label{n}") for n in range(tasks)}
    with _screen(console, pictures) as screen:
        for number, picture in enumerate(pictures.values()):
            picture.saw(many_steps(), HERE)
            picture.heard(delta("k", 1, "é日本語 " * 60))
            _tell(screen, picture, number)
    assert isinstance(console.file, io.StringIO)
    seen = terminal.Screen(columns, rows)
    seen.write(console.file.getvalue().replace("\n", "\r\n"))
    return seen


def _tell(screen: Screen, picture: Picture, number: int) -> None:
    for n in range(5):
        screen.line(plain(f"line {number}.{n} " + "and more words " * 9), picture)
        screen.tick()


@pytest.mark.parametrize("tasks", [1, 3, 12])
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (40, 10)])
def test_the_view_keeps_to_the_terminal(columns: int, rows: int, tasks: int) -> None:
    seen = drawn(columns, rows, tasks)
    assert (seen.wrapped, seen.lost, seen.unknown, seen.hidden) == ([], 0, set(), False)
    left = "\n".join(seen.lines)
    assert all(f"line {number}.4" in left for number in range(tasks))
    assert "executor:" not in left
    assert "tokens" not in left
