"""What can keep the stack from running, each with the exit code of ``longhaul up``.

StackError                  exit 1: something failed; the message says what and where to look
  +-- StackRefused          exit 3: the stack was not started, on purpose; the message says what to do
"""


class StackError(Exception):
    """A failure a user should read as one message, never as a traceback."""

    exit_code = 1


class StackRefused(StackError):
    """Nothing was started: a port or the data directory is taken, or the data is of another version."""

    exit_code = 3
