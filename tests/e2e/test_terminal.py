"""The command on a real terminal: the live view keeps to it, and Ctrl-C leaves tasks alone and says how to go on."""

import os
import re
import sys

import pytest

from agents.contracts.task import TaskStatus
from services.cli.demo.catalogue import chosen
from services.client import Client
from services.stack.layout import CHECKOUT
from tests.conftest import Tenant
from tests.support.terminal import Screen, Terminal

pytestmark = pytest.mark.timeout(300)


def longhaul(tenant: Tenant, *arguments: str, columns: int = 80, rows: int = 24) -> Terminal:
    env = {name: value for name, value in os.environ.items() if not name.startswith("LONGHAUL_")}
    env |= {"LONGHAUL_URL": tenant.api_url, "LONGHAUL_API_KEY": tenant.api_key}
    argv = [sys.executable, "-m", "services.cli.main", *arguments]
    return Terminal(argv, CHECKOUT, env, columns=columns, rows=rows)


def test_a_screen_shows_what_a_terminal_would() -> None:
    screen = Screen(10, 3)
    screen.write(
        "one\r\ntwo\r\n\x1b[?25lthree\r\x1b[2K\x1b[1A\x1b[2Kagain\r\n\x1b[1m0123456789a\x1b[0m\r\n\x1b[3A\x1b[?25h"
    )
    assert screen.lines == ["one", "again", "0123456789a", ""]
    assert (screen.wrapped, screen.lost, screen.unknown) == (["0123456789a"], 1, set())


def test_three_demos_side_by_side_keep_to_the_terminal(tenant: Tenant) -> None:
    terminal = longhaul(tenant, "demo")
    assert terminal.end(200) == 0, terminal.output
    screen = terminal.screen
    assert (screen.wrapped, screen.lost, screen.unknown, screen.hidden) == ([], 0, set(), False)
    left = "\n".join(screen.lines)
    assert "link ok" not in left, "nothing of the live view is left on the screen"
    assert "Traceback" not in left
    drawn = terminal.output
    for demo in chosen(None):
        assert re.search(rf"{demo.name}\S* +(\S+ )?(running|planning|reviewing)", re.sub(r"\x1b\[[\d;]*m", "", drawn))


@pytest.mark.parametrize("how", ["watch", "submit"])
def test_ctrl_c_leaves_the_task_alone_and_says_how_to_look_again(tenant: Tenant, how: str) -> None:
    (demo,) = chosen("code_repair")
    with Client(tenant.api_url, tenant.api_key) as client:
        if how == "watch":
            terminal = longhaul(tenant, "watch", client.submit(demo.spec(client)).id)
        else:
            words, repo = demo.spec(client).instruction, str(demo.workspace)
            terminal = longhaul(tenant, "submit", words, "--repo", repo, "--tier", "replay", "--watch")
        terminal.read_until("» ", 60)  # a model speaks
        terminal.type("\x03")
        assert terminal.end(20) == 130, terminal.output
        said = terminal.output[terminal.output.index("Interrupted") :]
        task_id = re.search(r"longhaul watch (task_\w+)", said)
        assert task_id, said
        assert f"longhaul cancel {task_id[1]}" in said
        assert "Traceback" not in terminal.output
        assert (terminal.screen.hidden, terminal.screen.lost) == (False, 0)
        assert client.get(task_id[1]).status not in (TaskStatus.CANCELLING, TaskStatus.CANCELLED)
        client.cancel(task_id[1], wait_s=30)
