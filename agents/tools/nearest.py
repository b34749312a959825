"""Why a piece of text was not found in a file, and what stands there instead."""

import re

from agents.tools.text import printable

_NUMBERED = re.compile(r"^\s*\d+\t")
_WORD = re.compile(r"\w+")
_SHOWN = 12
_PLACES = 10
_LIKE = 0.3
"""The share of words that two lines must have in common to be called near."""


def explain_no_match(text: str, old: str) -> str:
    """What differs, with the nearest lines of the file."""
    wanted = old.strip("\n").split("\n")
    if all(_NUMBERED.match(line) for line in wanted):
        return "`old` holds the line numbers that read_file shows; they are not part of the file."
    lines = text.split("\n")
    if "\r\n" in text and old in text.replace("\r\n", "\n"):
        return (
            "the file ends its lines with \\r\\n; `old` has \\n. Change it with the shell (sed), or rewrite the file."
        )
    at = _same_but_for_blanks(lines, wanted)
    if at is not None:
        return "`old` occurs there only with other blanks or indentation:\n" + _show(lines, at, len(wanted))
    at = _nearest(lines, wanted)
    if at is None:
        return "`old` does not occur, and nothing in the file is like it."
    return "`old` does not occur; the nearest lines are:\n" + _show(lines, at, len(wanted))


def explain_ambiguous(text: str, old: str) -> str:
    """Where it occurs."""
    starts = [match.start() for match in re.finditer(re.escape(old), text)]
    if len(starts) < 2:
        return "`old` occurs more than once, not only in the part of the file that was looked at."
    places = ", ".join(str(text.count("\n", 0, start) + 1) for start in starts[:_PLACES])
    more = f" and {len(starts) - _PLACES} more" if len(starts) > _PLACES else ""
    return f"`old` occurs {len(starts)} times, at lines {places}{more}."


def _same_but_for_blanks(lines: list[str], wanted: list[str]) -> int | None:
    key = [" ".join(line.split()) for line in wanted]
    have = [" ".join(line.split()) for line in lines]
    return next((i for i in range(len(have) - len(key) + 1) if have[i : i + len(key)] == key), None)


def _nearest(lines: list[str], wanted: list[str]) -> int | None:
    """Where the block of lines would begin, judged by its most telling line. Words are compared, not characters: the
    likeness of characters takes a second for a long file."""
    telling = max(wanted, key=lambda line: len(line.strip()))
    words = set(_WORD.findall(telling))
    scores = [_likeness(words, set(_WORD.findall(line))) for line in lines]
    best = max(scores)
    return max(scores.index(best) - wanted.index(telling), 0) if best >= _LIKE else None


def _likeness(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other) if one and other else 0.0


def _show(lines: list[str], at: int, count: int) -> str:
    last = min(at + min(count, _SHOWN), len(lines))
    return "\n".join(f"{n + 1}\t{printable(lines[n])}" for n in range(at, last))
