"""Fixtures for tests of single services."""

import pytest
from pydantic import SecretStr

from services.settings import Settings
from services.stack.servers.postgres import ADMIN
from tests.support.stack import Stack


@pytest.fixture
def owner(stack: Stack) -> Settings:
    """Settings of one who may also make databases and buckets: for a test that wants its own."""
    secrets = stack.secrets
    return stack.settings("worker").model_copy(
        update={
            "pg_user": ADMIN,
            "pg_password": SecretStr(secrets.pg_admin_password),
            "s3_access_key": secrets.s3_admin_access_key,
            "s3_secret_key": SecretStr(secrets.s3_admin_secret_key),
        }
    )
