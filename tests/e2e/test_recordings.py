"""A task of a real stack becomes a file: without its secrets, the same for today's code, and to be played again."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from agents.contracts.recording import Recording
from agents.contracts.task import TaskSpec, TaskStatus
from services.cli.demo.catalogue import chosen
from services.cli.spec import uploaded
from services.client import Client
from services.prompts import prompts
from services.recording.file import read
from services.stack.layout import CHECKOUT
from tests.support.follow import Followed
from tests.support.stack import Stack
from workflows.replay.against import against

WITHIN_S = 200.0
SECRETS = ["sk-" + "proj-Zz9yX8wV7uT6sR5qP4", "correct-horse-battery", "AKIA" + "Z7Z7Z7Z7Z7Z7Z7Z7", "0badc0de" * 4]
LEAKY_CHECK = f"echo 'Authorization: Bearer {SECRETS[3]}'"
[DEMO] = chosen("code_repair")

pytestmark = pytest.mark.timeout(480)


async def test_a_task_is_recorded_replayed_and_played_again(
    fault_stack: Callable[..., Stack], tmp_path_factory: pytest.TempPathFactory
) -> None:
    library = tmp_path_factory.mktemp("library")
    stack = fault_stack(env={"LONGHAUL_RECORDINGS_DIR": str(library)})
    said = f"{DEMO.instruction}\n\nUse {SECRETS[0]}, postgres://u:{SECRETS[1]}@h/db and {SECRETS[2]}."
    with Client(stack.data.run().api_url, stack.secrets.api_key) as client:
        first = play(client, said, "code_repair")
        file = library / "again.json"
        made = longhaul(stack, "record", first, "--name", "again", "-o", str(file))
        text = file.read_text()
        recording, task = read(file)
        assert not [secret for secret in SECRETS if secret in text]
        assert text.count("[redacted]") >= len(SECRETS)
        assert "Taken out because it looked like a secret" in made
        assert task.status is TaskStatus.COMPLETED
        assert task.notes == ()
        assert Recording.model_validate_json(text) == recording  # as the replay engine reads it
        played = await against(recording, task, prompts())
        assert (played.same, played.calls) == (True, len(recording.entries))
        second = play(client, recording.instruction, "again")
        assert first != second


def play(client: Client, said: str, recording: str) -> str:
    """A task of the replay tier, completed."""
    repo = uploaded(client, DEMO.workspace)
    spec: dict[str, Any] = {
        "instruction": said,
        "tier": "replay",
        "recording": recording,
        "checks": [LEAKY_CHECK, *DEMO.checks],
    }
    task = client.submit(TaskSpec.model_validate(spec | {"repo": repo})).id
    Followed(client, task).to_end(WITHIN_S)
    result = client.result(task)
    assert result.status is TaskStatus.COMPLETED, result
    return task


def longhaul(stack: Stack, *arguments: str) -> str:
    """The command on a stack."""
    argv = [sys.executable, "-m", "services.cli.main", *arguments, "--data-dir", str(stack.data.root)]
    ran = subprocess.run(argv, cwd=CHECKOUT, env=os.environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
