"""Fixtures on real parts: one stack a test session, a fresh tenant a test, a stack of its own for a test that kills."""

import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from services.settings import Settings
from services.store import keys
from services.store.database import Database
from tests.support.stack import Stack, new_data_dir


class Tenant(NamedTuple):
    """A tenant nobody else uses. `headers` sign its requests."""

    id: str
    api_key: str
    api_url: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The whole stack. Never kill a part of it: take `fault_stack` for that."""
    running = Stack(new_data_dir())
    try:
        yield running.start()
        assert running.end() == 0, running.said()
        running.assert_no_leftovers()
    finally:
        running.remove()


@pytest.fixture
def servers(stack: Stack) -> Settings:
    """Settings for direct access to PostgreSQL, Temporal, NATS (user worker), S3 and the runner."""
    return stack.settings("worker")


@pytest.fixture
async def database(servers: Settings) -> AsyncIterator[Database]:
    """The stack's database."""
    opened = Database(servers.pg_url, pool_size=2)
    yield opened
    await opened.close()


@pytest.fixture
async def tenant(stack: Stack, database: Database) -> Tenant:
    """A new tenant with a key that may do everything."""
    name, now = "t" + secrets.token_hex(6), datetime.now(UTC)
    async with database.begin() as conn:
        await keys.create_tenant(conn, tenant_id=name, name=name, at=now)
        made = await keys.create_key(conn, tenant_id=name, name="test", scopes=set(keys.Scope), at=now)
    return Tenant(name, made.secret, stack.data.run().api_url)


@pytest.fixture
def fault_stack() -> Iterator[Callable[..., Stack]]:
    """Starts stacks for tests that kill: ``fault_stack(env={…})``; ended and checked for leftovers after the test."""
    started: list[Stack] = []

    def start(env: Mapping[str, str] | None = None) -> Stack:
        started.append(Stack(new_data_dir(), env=env))
        return started[-1].start()

    try:
        yield start
        for one in started:
            assert one.end() == 0, one.said()
            one.assert_no_leftovers()
    finally:
        for one in started:
            one.remove()
