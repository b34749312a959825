"""How the `longhaul` command can be called from the shell of whoever reads a text."""

import re
import shlex
import shutil
import sys
from pathlib import Path

_COMMAND = re.compile(r"(?<![\w/.-])longhaul(?= [a-z])")


def program() -> str:
    """Its name where that is found on the PATH, else where it lies: `make` runs it from an environment that the shell
    does not know."""
    return "longhaul" if shutil.which("longhaul") else shlex.quote(str(Path(sys.executable).with_name("longhaul")))


def runnable(text: str) -> str:
    """A text of ours whose ``longhaul VERB`` can be copied into that shell."""
    return _COMMAND.sub(lambda _: program(), text)
