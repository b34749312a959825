"""A task that may reach a host: its team is told, and what was refused is in its events."""

import secrets

import pytest
from temporalio.client import Client

from agents.contracts.event import SandboxDenied
from agents.contracts.network import NetworkPolicy
from agents.contracts.task import Limits, StopReason
from services.settings import Settings
from tests.support.scripts import ScriptedModel, says
from tests.support.team import connect, finish, plan, review, working
from tests.support.turns import Parts, new_task

NAMESPACE = "test-" + secrets.token_hex(4)
REACH = (
    "python3 -c 'import sys, urllib.error, urllib.request as u\n"
    "try: u.urlopen(sys.argv[1])\nexcept urllib.error.HTTPError as e: print(e.read().decode())' "
)


@pytest.fixture
async def client(servers: Settings) -> Client:
    """A namespace of this module's own."""
    return await connect(servers, NAMESPACE)


async def test_what_was_refused_to_an_agent_and_to_a_check_is_told(
    parts: Parts, client: Client, tenant_id: str
) -> None:
    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("only"),
            "executor/1.only/1/1/m1": says(("shell", {"command": f"{REACH} http://evil.test.org/"})),
            "executor/1.only/1/2/m1": finish("tried"),
            "reviewer/1.only/1/1/m1": review("approve"),
            "reviewer/1.final/1/1/m1": review("approve"),
        }
    )
    assert (await parts.runner.capabilities()).network
    async with working(parts, client, model) as team:
        network = NetworkPolicy(allow=("mirror.test.org:8443",))
        checks = [f"{REACH} http://mirror.test.org:9443/"]
        task = await new_task(parts, tenant_id, Limits(), checks=checks, network=network)
        end = await (await team.start(task)).result()
        assert end.stop_reason is StopReason.COMPLETED, end
        events = await team.events(task)
        denied = [(event, event.data) for event in events if isinstance(event.data, SandboxDenied)]
        assert [(data.host, data.port, data.reason) for _, data in denied] == [
            ("evil.test.org", 80, "host_not_allowed"),
            ("mirror.test.org", 9443, "port_not_allowed"),
        ]
        checked = {d.exec_id for e in events if (d := e.data).type == "exec.started" and d.purpose == "check"}
        assert [data.exec_id in checked for _, data in denied] == [False, True]
        ends = {event.data.exec_id: event.seq for event in events if event.data.type == "exec.exited"}
        assert all(event.seq < ends[data.exec_id] for event, data in denied)
        first = next(r for r in model.asked if r.coordinate == "executor/1.only/1/1/m1")
        assert "mirror.test.org:8443" in "\n".join(message.content for message in first.messages)
        then = next(r for r in model.asked if r.coordinate == "executor/1.only/1/2/m1")
        answer = then.messages[-2].content
        assert "It may reach mirror.test.org:8443." in answer
        assert "The sandbox's network refused evil.test.org:80 (host_not_allowed)." in answer
