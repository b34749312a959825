"""What may be away while tasks are accepted."""

import asyncio
import subprocess
import sys

from tests.service.api.process import ApiProcess, free_port
from tests.service.api.world import Tenant, submit


async def test_without_nats_tasks_are_accepted(own_api: ApiProcess, tenant: Tenant) -> None:
    own_api.settings = own_api.settings.model_copy(update={"nats_url": f"nats://127.0.0.1:{free_port()}"})
    own_api.start()
    mine = Tenant(tenant.id, tenant.key, tenant.reading_key, tenant.powerless_key, own_api.url)
    async with mine.http() as http:
        began = asyncio.get_running_loop().time()
        task_id = await submit(http)
        assert (await http.get(f"/v1/tasks/{task_id}")).json()["queue_position"] == 1
        assert (await http.post(f"/v1/tasks/{task_id}/cancel")).status_code == 200
        assert asyncio.get_running_loop().time() - began < 3
        ready = await http.get("/readyz")
        assert ready.status_code == 503
        servers = ready.json()["servers"]
        assert servers == {"database": "ok", "objects": "ok", "nats": "unavailable"}
        assert (await http.get("/healthz")).status_code == 200


def test_the_api_is_without_temporal() -> None:
    """It starts no workflow, so it does not spend memory and start time on the client."""
    code = "import sys, services.api.main; sys.exit(any(name.startswith('temporalio') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
