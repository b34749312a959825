"""Runs pip for ``make setup``: quiet where it works, one message where it does not, and never half an installation.

``python -m services.pip WHAT FOLDER ARGUMENTS…`` runs before any package is there, so it takes the standard library
only. While pip works, FOLDER/.installing is there: where it was interrupted, packages may be half written, and the next
``make setup`` makes the environment anew.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MARK = ".installing"
LOG = "pip.log"
INTERRUPTED = 130
_NO_NETWORK = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "NameResolutionError",
    "ProxyError",
    "SSLError",
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "ConnectionResetError",
    "(from versions: none)",  # what is left to say of an index that did not answer
)
_HELP = """\
{what} could not be downloaded: the package index cannot be reached.
  behind a proxy:        export HTTPS_PROXY=http://HOST:PORT
  an index of your own:  export PIP_INDEX_URL=https://HOST/simple
  no network at all:     export PIP_NO_INDEX=1 PIP_FIND_LINKS=/folder/with/wheels
                         (`pip download --require-hashes -r {lock} -d FOLDER`, on a machine with network)
Then run `make setup` again: it goes on where it stopped. What pip said: {log}"""


class PipError(Exception):
    """It did not work; the message says why and what to do."""


def install(python: str, arguments: Sequence[str], *, what: str, folder: Path) -> None:
    """``pip install`` with these arguments; `folder` takes the log and, while it lasts, the mark.

    Raises:
        PipError: with what to do.
    """
    mark, log = folder / MARK, folder / LOG
    command = [
        python,
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar=off",
        *arguments,
    ]
    mark.touch()
    with log.open("wb") as output:
        code = subprocess.run(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, check=False).returncode
    if code == 0:
        mark.unlink()
        return
    said = log.read_text(encoding="utf-8", errors="replace")
    if any(sign in said for sign in _NO_NETWORK):
        mark.unlink()  # everything is downloaded before anything is written
        lock = next((a for a in arguments if a.endswith(".lock")), "requirements.lock")
        raise PipError(_HELP.format(what=what, lock=Path(lock).name, log=log))
    last = "\n".join("    " + line[:300] for line in said.strip().splitlines()[-8:])
    raise PipError(f"{what} could not be installed. What pip said last (all of it: {log}):\n{last}")


def main() -> int:
    """The command; its exit code."""
    what, folder, *arguments = sys.argv[1:]
    try:
        install(sys.executable, arguments, what=what, folder=Path(folder))
    except PipError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. `make setup` goes on from here.", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
