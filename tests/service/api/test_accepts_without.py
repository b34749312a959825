"""What may be away while tasks are accepted."""

import asyncio

from tests.service.api.process import ApiProcess, free_port
from tests.service.api.world import Tenant, submit


async def test_without_temporal_and_nats_tasks_are_accepted(own_api: ApiProcess, tenant: Tenant) -> None:
    own_api.settings = own_api.settings.model_copy(update={"nats_url": f"nats://127.0.0.1:{free_port()}"})
    own_api.start()
    mine = Tenant(tenant.id, tenant.key, tenant.reading_key, tenant.powerless_key, own_api.url)
    async with mine.http() as http:
        began = asyncio.get_running_loop().time()
        task_id = await submit(http)
        assert (await http.post(f"/v1/tasks/{task_id}/cancel")).status_code == 202
        assert asyncio.get_running_loop().time() - began < 3
        ready = await http.get("/readyz")
        assert ready.status_code == 503
        servers = ready.json()["servers"]
        assert servers == {"database": "ok", "objects": "ok", "nats": "unavailable", "temporal": "unavailable"}
        assert (await http.get("/healthz")).status_code == 200
