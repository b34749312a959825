"""A command on a terminal of its own, and what would be seen there."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.cells import cell_len

_PIECES = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b[()][A-Z0-9]|(\r)|(\n)|([^\x1b\r\n]+)|\x1b")


class Screen:
    """What a terminal shows of what was written to it: as much of one as progress displays use.

    `wrapped` are lines that were too long for it while the cursor was hidden (a display was being drawn), `lost` counts
    moves of the cursor above the first row: what should have been drawn over has scrolled away and stays.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self.lines: list[str] = [""]
        self.wrapped: list[str] = []
        self.lost = 0
        self.unknown: set[str] = set()
        self.hidden = False
        self._row = self._column = 0

    def write(self, text: str) -> None:
        """More of the output; escape sequences must be whole."""
        for piece in _PIECES.finditer(text):
            numbers, kind, home, down, words = piece.groups()
            if kind:
                self._control(numbers, kind)
            elif home:
                self._column = 0
            elif down:
                self._down()
            elif words:
                self._print(words)

    def _control(self, numbers: str, kind: str) -> None:
        count = int(numbers) if numbers.isdigit() else 1
        match kind:
            case "A":
                top = max(0, len(self.lines) - self.rows)
                self.lost += self._row - count < top
                self._row = max(top, self._row - count)
            case "K":
                self.lines[self._row] = "" if numbers == "2" else self.lines[self._row][: self._column]
            case "h" | "l" if numbers == "?25":
                self.hidden = kind == "l"
            case "m":
                pass
            case _:
                self.unknown.add(numbers + kind)

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self.lines):
            self.lines.append("")

    def _print(self, words: str) -> None:
        line = self.lines[self._row]
        if self.hidden and cell_len(line[: self._column] + words) > self.columns:
            self.wrapped.append(words)
        self.lines[self._row] = line[: self._column].ljust(self._column) + words + line[self._column + len(words) :]
        self._column += len(words)


class Terminal:
    """A command whose controlling terminal is ours: what is typed reaches it as from a keyboard."""

    def __init__(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], *, columns: int = 80, rows: int = 24
    ) -> None:
        self.output = ""
        self.screen = Screen(columns, rows)
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={"TERM": "xterm-256color", "LANG": "C.UTF-8", **env},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(theirs)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end within a character

    def read_until(self, words: str, within_s: float) -> None:
        """Read until something is there."""
        deadline = time.monotonic() + within_s
        while words not in self.output:
            assert time.monotonic() < deadline, f"not within {within_s} s: {words}\n{self.output}"
            assert self._more(0.2), f"it ended before: {words}\n{self.output}"

    def type(self, text: str) -> None:
        """As on a keyboard; ``\\x03`` is Ctrl-C."""
        os.write(self._ours, text.encode())

    def end(self, within_s: float) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + within_s
        try:
            while self._more(0.2):
                assert time.monotonic() < deadline, f"not ended within {within_s} s\n{self.output}"
            code = self.process.wait(10)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            os.close(self._ours)
        self.screen.write(self.output)
        return code

    def _more(self, seconds: float) -> bool:
        """Read what there is; False at the end."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return self.process.poll() is None
        try:
            found = os.read(self._ours, 1 << 16)
        except OSError:  # nobody has it open any more
            return False
        self.output += self._decoder.decode(found)
        return bool(found)


def _own_terminal() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell starts what it puts into the background with SIGINT ignored
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
