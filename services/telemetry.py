"""Logs: one JSON object a line on stderr, with the task it is about, without secrets, and one line an outage.

A main calls `configure` once, before it builds anything. Servers that bring a log configuration of their own (uvicorn)
are started with `log_config=None`, so that their records come here.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from pydantic import SecretStr
from pydantic_settings import BaseSettings

_FIELDS: ContextVar[dict[str, str] | None] = ContextVar("longhaul_log_fields", default=None)

_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}")
_API_KEY = re.compile(r"\blh_[A-Za-z0-9_-]{20,}")
_MIN_SECRET_CHARS = 6
_QUIET_S = 30.0
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "temporal_log", "color_message"}
TEMPORAL_CORE = "temporalio.core"
"""The logger that Temporal's core logs to."""


@contextmanager
def bind(**fields: str) -> Iterator[None]:
    """Add fields (``task_id``, ``agent_id``, ``trace_id``) to every line that is logged inside, also in tasks that are
    started inside."""
    token = _FIELDS.set({**(_FIELDS.get() or {}), **fields})
    try:
        yield
    finally:
        _FIELDS.reset(token)


def configure(process: str, settings: BaseSettings | None = None, *, level: str = "INFO") -> None:
    """Send all logs of this process to stderr as JSON; the secrets of `settings` are blotted out everywhere."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(process, Redactor(secrets_of(settings) if settings else ())))
    handler.addFilter(OncePerOutage())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # these tell of every request, retry and reconnect at INFO
    for name in ("uvicorn.access", "httpx", "httpcore", "botocore", "boto3", "urllib3", "aiohttp.access", "nats"):
        logging.getLogger(name).setLevel(logging.WARNING)


def secrets_of(settings: BaseSettings) -> set[str]:
    """Every secret value that the settings hold."""
    values = (getattr(settings, name) for name in type(settings).model_fields)
    return {value.get_secret_value() for value in values if isinstance(value, SecretStr)}


class Redactor:
    """Blots out known secret values, bearer tokens and API keys."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # longest first, so that a secret that holds another one goes as a whole
        known = sorted((s for s in secrets if len(s) >= _MIN_SECRET_CHARS), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """The text without its secrets."""
        if self._known:
            text = self._known.sub("[redacted]", text)
        return _API_KEY.sub("[redacted]", _BEARER.sub(r"\1 [redacted]", text))


class JsonLines(logging.Formatter):
    """A record as one line of JSON; `extra=` fields and bound ones become members."""

    def __init__(self, process: str, redact: Redactor) -> None:
        super().__init__()
        self._process = process
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
            **(_FIELDS.get() or {}),
            **{name: value for name, value in vars(record).items() if name not in _PLAIN},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(self._clean(line))  # ASCII: a line stays one line, whatever the text and the terminal

    def _clean(self, value: object) -> object:
        """The value without secrets, in what JSON knows."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            return {str(name): self._clean(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._clean(inner) for inner in value]
        return self._redact(str(value))


class OncePerOutage(logging.Filter):
    """Lets a warning of a client library through once in 30 s; the next one says how many were left out.

    A server that is away makes its client say so at every retry. Our own lines are never held back.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        if record.levelno < logging.WARNING or not record.name.startswith(("temporalio", "nats", "asyncio")):
            return True
        # Temporal's core writes counts and times into its text: there, where it comes from is the key
        what = "" if record.name.startswith(TEMPORAL_CORE) else str(record.msg)
        key = (record.name, record.levelno, what)
        now = time.monotonic()
        last, dropped = self._seen.get(key, (-_QUIET_S, 0))
        if now - last < _QUIET_S:
            self._seen[key] = (last, dropped + 1)
            return False
        if len(self._seen) > 1_000:
            self._seen.clear()
        self._seen[key] = (now, 0)
        if dropped:
            record.left_out = dropped
        return True
