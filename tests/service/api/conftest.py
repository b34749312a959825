"""The API on the real stack: one process for all tests here, a fresh tenant for each."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from services.mailbox import link as nats
from services.mailbox.link import Link
from services.objects.s3 import S3Objects
from services.settings import Settings
from services.stack.servers import postgres
from services.store.database import Database
from tests.service.api.process import ApiProcess
from tests.service.api.world import Tenant, Writer, make_tenant
from tests.service.rooms import fresh_database
from tests.support.stack import Stack


@pytest.fixture(scope="session")
def stack_settings(stack: Stack) -> Iterator[Settings]:
    """The stack's servers with a database of our own: here the tests play the workers, and the
    stack's own must not touch these tasks."""
    admin = {"pg_user": postgres.ADMIN, "pg_password": SecretStr(stack.secrets.pg_admin_password)}
    settings = stack.settings("api").model_copy(update=admin)
    room = fresh_database(settings)
    with asyncio.Runner() as runner:
        yield runner.run(room.__aenter__())
        runner.run(room.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def relay_settings(stack: Stack) -> Settings:
    """NATS with the rights of those who tell of events and of deltas: no single role of the stack has both."""
    admin = {"nats_user": "admin", "nats_password": SecretStr(stack.secrets.nats_admin_password)}
    return stack.settings("relay").model_copy(update=admin)


@pytest.fixture(scope="session")
def api(stack_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """The API, shared: do not stop it."""
    process = ApiProcess(stack_settings, tmp_path_factory.mktemp("api") / "api.log").start()
    yield process
    process.stop()


@pytest.fixture
def own_api(stack_settings: Settings, tmp_path: Path) -> Iterator[ApiProcess]:
    """An API of the test's own, not started, to be stopped at will."""
    process = ApiProcess(stack_settings, tmp_path / "api.log")
    yield process
    process.stop()


@pytest.fixture
async def db(stack_settings: Settings) -> AsyncIterator[Database]:
    """The database behind the API."""
    database = Database(stack_settings.pg_url)
    yield database
    await database.close()


@pytest.fixture
async def objects(stack_settings: Settings) -> AsyncIterator[S3Objects]:
    """The store behind the API."""
    store = S3Objects(stack_settings)
    yield store
    await store.close()


@pytest.fixture
async def link(relay_settings: Settings) -> AsyncIterator[Link]:
    """NATS with the rights of those who tell of events."""
    found = await nats.connect(relay_settings, "test")
    yield found
    await found.close()


@pytest.fixture
async def tenant(db: Database, api: ApiProcess) -> Tenant:
    """A fresh tenant at the shared API."""
    return await make_tenant(db, api.url)


@pytest.fixture(scope="session")
def someone(stack_settings: Settings, api: ApiProcess) -> Tenant:
    """A tenant for tests that change nothing."""

    async def make() -> Tenant:
        database = Database(stack_settings.pg_url)
        try:
            return await make_tenant(database, api.url)
        finally:
            await database.close()

    return asyncio.run(make())


@pytest.fixture
async def http(tenant: Tenant) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the tenant's key."""
    async with tenant.http() as client:
        yield client


@pytest.fixture
def writer(db: Database, tenant: Tenant, link: Link) -> Writer:
    """Writes and tells of events of the tenant's tasks."""
    return Writer(db, tenant, link)
