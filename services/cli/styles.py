"""Lines with a style: the style is only seen on a terminal that has colours."""

from dataclasses import dataclass

from rich.text import Text


@dataclass(frozen=True)
class Line:
    """A line of plain text and how to show it."""

    text: str
    style: str = ""

    def rich(self) -> Text:
        """For a terminal; no markup in the text is read."""
        return Text(self.text, style=self.style)


def plain(text: str) -> Line:
    """As it is."""
    return Line(text)


def dim(text: str) -> Line:
    """Of less weight."""
    return Line(text, "dim")


def good(text: str) -> Line:
    """Good news."""
    return Line(text, "green")


def bad(text: str) -> Line:
    """Bad news."""
    return Line(text, "red")


def warn(text: str) -> Line:
    """Something to know."""
    return Line(text, "yellow")


def command(text: str) -> Line:
    """A command as it was typed."""
    return Line(text, "cyan")
