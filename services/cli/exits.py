"""How a command ends: one exit code a kind of end, one message a fault, never a traceback.

0    completed, or done
1    the task ended without its goal; a replay differs from its recording
2    the command was used wrongly (also: the API refused what was asked)
3    the stack could not be started
4    the API cannot be reached
130  interrupted; what was started goes on unless the message says otherwise
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from agents.contracts.errors import ErrorCode
from services.client import ClientError, LonghaulApiError, Unreachable
from services.stack.errors import StackError
from services.stack.program import runnable

DONE = 0
TASK_FAILED = 1
USAGE = 2
STACK = 3
UNREACHABLE = 4
INTERRUPTED = 130


class StackStopped(Exception):
    """The stack on which a task is followed does not run any more."""


class CliError(Exception):
    """A message for the user, and the exit code."""

    def __init__(self, message: str, exit_code: int = USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def fail(message: str, exit_code: int) -> NoReturn:
    """End with a message on stderr."""
    typer.echo(f"Error: {runnable(message)}", err=True)
    raise typer.Exit(exit_code)


@contextmanager
def guarded() -> Iterator[None]:
    """Turn what can go wrong inside into a message and an exit code."""
    try:
        yield
    except CliError as fault:
        fail(str(fault), fault.exit_code)
    except StackStopped as fault:
        fail(f"The stack was stopped: `longhaul up`, then `longhaul watch {fault}`", UNREACHABLE)
    except Unreachable as fault:
        fail(f"{fault}\n{_where_to_look()}", UNREACHABLE)
    except LonghaulApiError as fault:
        fail(f"{fault}{_advice(fault.code)}", USAGE if fault.problem.status < 500 else UNREACHABLE)
    except ClientError as fault:
        fail(str(fault), TASK_FAILED)
    except StackError as fault:
        fail(str(fault), STACK)
    except OSError as fault:  # a file that cannot be read, a folder that cannot be written
        if fault.errno == errno.EPIPE:  # whoever read our output has read enough
            raise
        fail(str(fault), USAGE)
    except KeyboardInterrupt:
        typer.echo("Interrupted.", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _where_to_look() -> str:
    if url := os.environ.get("LONGHAUL_URL"):
        return f"LONGHAUL_URL is set to {url}: is that right? Without it the stack of this machine is used."
    return "Is the stack up? `longhaul status` shows it, `longhaul up` starts it."


def _advice(code: ErrorCode) -> str:
    if code is ErrorCode.UNAUTHENTICATED:
        return "\nLONGHAUL_API_KEY must hold a key of this stack; unset it to use the one in the data directory."
    if code is ErrorCode.MODEL_NOT_CONFIGURED:
        return "\ndocs/how-to/own-model.md tells more; `longhaul demo` needs no model."
    if code is ErrorCode.NOT_FOUND:
        return "\n`longhaul list` shows the tasks of this stack."
    if code is ErrorCode.NOT_FINISHED:
        return "\n`longhaul watch TASK` shows the work until then."
    return ""
