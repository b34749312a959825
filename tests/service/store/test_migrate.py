import asyncio
import hashlib
import secrets

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

from agents.contracts.errors import LonghaulError
from services.settings import Settings
from services.store import keys, schema
from services.store.migrate import NewerSchemaError, _config, migrate
from services.store.tables import metadata
from tests.service.rooms import connect, database, fresh_database


async def test_a_fresh_upgrade_is_what_the_tables_say(owner: Settings) -> None:
    def differences(connection: Connection) -> list[object]:
        options = {"compare_type": True, "compare_server_default": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))

    async with fresh_database(owner) as own:
        engine = create_async_engine(own.pg_url)
        async with engine.connect() as conn:
            assert await conn.run_sync(differences) == []
        await engine.dispose()


async def test_every_table_names_its_tenant() -> None:
    assert [table.name for table in metadata.tables.values() if "tenant_id" not in table.columns] == []


async def test_many_may_migrate_at_once_and_again(owner: Settings) -> None:
    own = owner.model_copy(update={"pg_database": f"test_{secrets.token_hex(6)}"})
    try:
        await asyncio.gather(*(migrate(own) for _ in range(4)))
        await migrate(own)
        conn = await connect(own, own.pg_database)
        assert await conn.fetchval("SELECT count(*) FROM alembic_version") == 1
        await conn.close()
    finally:
        conn = await connect(owner, "postgres")
        await conn.execute(f'DROP DATABASE IF EXISTS "{own.pg_database}" WITH (FORCE)')
        await conn.close()


async def test_what_the_first_version_kept_is_carried_forward(owner: Settings) -> None:
    own = owner.model_copy(update={"pg_database": f"test_{secrets.token_hex(6)}"})
    conn = await connect(owner, "postgres")
    await conn.execute(f'CREATE DATABASE "{own.pg_database}" OWNER {own.pg_user}')
    await conn.close()
    engine = create_async_engine(own.pg_url)
    try:
        async with engine.begin() as old:
            await old.run_sync(lambda sync: command.upgrade(_config(sync), "0001"))
            await old.execute(text("INSERT INTO tenants (tenant_id, name, created_at) VALUES ('old', 'old', now())"))
        await migrate(own)
        async with engine.begin() as new:
            assert (await new.execute(text("SELECT version_num FROM alembic_version"))).scalar() == max(schema.known())
            assert (await new.execute(text("SELECT name FROM tenants WHERE tenant_id = 'old'"))).scalar() == "old"
    finally:
        await engine.dispose()
        conn = await connect(owner, "postgres")
        await conn.execute(f'DROP DATABASE "{own.pg_database}" WITH (FORCE)')
        await conn.close()


async def test_a_newer_schema_is_left_as_it_is(owner: Settings) -> None:
    async with fresh_database(owner) as own:
        conn = await connect(own, own.pg_database)
        await conn.execute("UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(NewerSchemaError, match="its schema is 9999"):
            await migrate(own)
        assert await conn.fetchval("SELECT version_num FROM alembic_version") == "9999"
        await conn.close()


async def test_the_first_key_is_put_in_place_and_can_be_replaced(owner: Settings) -> None:
    def with_key(secret: str) -> Settings:
        return own.model_copy(update={"bootstrap_key_sha256": hashlib.sha256(secret.encode()).hexdigest()})

    async with fresh_database(owner) as own, database(own) as db:
        for _ in range(2):
            await migrate(with_key("lh_one"))
        async with db.begin() as conn:
            first = await keys.resolve(conn, "lh_one")
            assert first
            assert (first.tenant_id, first.scopes) == ("default", frozenset(keys.Scope))
        await migrate(with_key("lh_two"))
        async with db.begin() as conn:
            assert await keys.resolve(conn, "lh_one") is None
            assert await keys.resolve(conn, "lh_two") == first
            assert len(await keys.list_keys(conn, tenant_id="default")) == 1


async def test_a_revoked_first_key_stays_revoked(owner: Settings) -> None:
    async with fresh_database(owner) as own, database(own) as db:
        own = own.model_copy(update={"bootstrap_key_sha256": hashlib.sha256(b"lh_one").hexdigest()})
        await migrate(own)
        async with db.begin() as conn:
            await conn.execute(text("UPDATE api_keys SET revoked_at = now()"))
        await migrate(own)
        async with db.begin() as conn:
            assert await keys.resolve(conn, "lh_one") is None


async def test_a_digest_that_is_none_is_refused(owner: Settings) -> None:
    async with fresh_database(owner) as own:
        with pytest.raises(LonghaulError, match="64 hex digits"):
            await migrate(own.model_copy(update={"bootstrap_key_sha256": "lh_plain-secret"}))
