import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from services import telemetry
from services.settings import Settings

PASSWORD = 'correct horse "battery" staple'


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator["Lines"]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    telemetry.configure("test", Settings(pg_password=SecretStr(PASSWORD), runner_token=SecretStr("")))
    yield Lines(stream)
    root.handlers[:] = before
    root.setLevel(level)


class Lines:
    def __init__(self, stream: io.StringIO) -> None:
        self.stream = stream

    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def test_a_line_says_when_who_and_what_about(lines: Lines) -> None:
    with telemetry.bind(task_id="task_1"), telemetry.bind(agent_id="agent_1"):
        logging.getLogger("services.x").info("step %d", 3, extra={"n": 7})
    logging.getLogger("services.x").warning("later")
    first, second = lines.all()
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "info",
        "process": "test",
        "logger": "services.x",
        "message": "step 3",
        "task_id": "task_1",
        "agent_id": "agent_1",
        "n": 7,
    }
    assert "task_id" not in second


@pytest.mark.parametrize(
    "text",
    [PASSWORD, "Authorization: Bearer abc.def-123456", "lh_" + "a1-_" * 10, "authorization: Basic dXNlcjpwdw=="],
)
def test_a_secret_is_never_written(lines: Lines, text: str) -> None:
    log = logging.getLogger("services.x")
    log.info("it is %s", text, extra={"where": text, "deep": {"list": [text]}})
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("failed")
    with telemetry.bind(header=text):
        log.info("bound")
    secret = text.split(" ")[-1] if "uthorization" in text else text
    assert secret not in lines.stream.getvalue()
    assert json.dumps(secret)[1:-1] not in lines.stream.getvalue()
    assert len(lines.all()) == 3
    assert "ValueError" in lines.all()[1]["exception"]


def test_an_empty_secret_blots_out_nothing(lines: Lines) -> None:
    logging.getLogger("services.x").info("all of this stays")
    assert lines.all()[0]["message"] == "all of this stays"


def test_what_cannot_be_json_is_written_all_the_same(lines: Lines) -> None:
    logging.getLogger("services.x").info("odd", extra={"it": object(), "text": "é\n\u2028\ud800"})
    assert lines.all()[0]["message"] == "odd"


def test_an_outage_of_a_server_is_one_line(lines: Lines) -> None:
    core = logging.getLogger("temporalio.core")
    for n in range(200):
        core.warning(f"gRPC call poll retried {n} times")
        logging.getLogger("nats.aio.client").error("nats: encountered error")
        logging.getLogger("services.x").warning("ours is never held back")
    found = [line["logger"] for line in lines.all()]
    assert found.count("temporalio.core") == 1
    assert found.count("nats.aio.client") == 1
    assert found.count("services.x") == 200


def test_requests_are_not_logged_one_by_one(lines: Lines) -> None:
    for name in ("uvicorn.access", "httpx", "botocore.endpoint"):
        logging.getLogger(name).info("GET /v1/tasks?key=1")
    assert lines.all() == []
