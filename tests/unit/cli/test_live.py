"""Several tasks on one screen: each line says whose it is, and the width of the names is one."""

import io

from rich.console import Console

from services.cli.live import Screen, Watched
from services.cli.styles import plain
from services.cli.tree import Picture


def said(*labels: str) -> list[str]:
    console = Console(file=io.StringIO(), width=40, force_terminal=False)
    pictures = {Watched(f"task_{label}", label): Picture(label=label) for label in labels}
    screen = Screen(console, None, pictures)
    for picture in pictures.values():
        screen.line(plain("[fix] " + "x" * 60), picture)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_lines_of_several_tasks_stand_in_columns_and_are_not_wrapped() -> None:
    assert said("one", "three") == ["one    [fix] " + "x" * 60, "three  [fix] " + "x" * 60]


def test_a_task_alone_has_no_name_before_its_lines() -> None:
    assert said("") == ["[fix] " + "x" * 60]
