"""Adapters to the session's stack; a new tenant name per test."""

import secrets
from collections.abc import AsyncIterator

import pytest

from services.settings import Settings
from tests.support.turns import Parts


@pytest.fixture
async def parts(servers: Settings) -> AsyncIterator[Parts]:
    """PostgreSQL, S3, NATS and the runner."""
    async with Parts(servers) as opened:
        yield opened


@pytest.fixture
def tenant_id() -> str:
    """A tenant nobody else uses."""
    return "t" + secrets.token_hex(6)
