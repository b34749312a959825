"""Bring the database to the newest schema: ``python -m services.store.migrate``.

Safe to run from several machines at once and again after a kill: one advisory lock, one transaction. Migrations only
expand (add a table, a nullable column, an index); what they replace is dropped a release later, so that old processes
go on working beside new ones. Afterwards the first tenant and its key are put in place where
``LONGHAUL_BOOTSTRAP_KEY_SHA256`` is set. Buckets and streams are made by those who use them (services.objects,
services.mailbox).

``python -m services.store.migrate --draft "what changes"`` writes the next migration from services/store/tables.py.
"""

import argparse
import asyncio
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from services import telemetry
from services.settings import Settings
from services.store import keys, schema

log = logging.getLogger(__name__)

_LOCK = 0x6C6F6E67  # any number that nobody else in this database uses
_PATIENCE_S = 30.0


class NewerSchemaError(Exception):
    """A newer Longhaul has migrated this database; nothing was changed."""


def main() -> int:
    """The command; exit code 0 once the schema is the newest one, 1 where that failed, 3 where it is a newer one."""
    parser = argparse.ArgumentParser(description="Bring the database to the newest schema.")
    parser.add_argument("--draft", metavar="MESSAGE", help="write the next migration instead of applying any")
    draft: str | None = parser.parse_args().draft
    settings = Settings()
    telemetry.configure("migrate", settings)
    try:
        asyncio.run(_draft(settings, draft) if draft else migrate(settings))
    except NewerSchemaError as error:
        log.error("the database was left as it is: %s", error)
        return schema.EXIT_NEWER
    except Exception:
        log.exception("the database was not migrated")
        return 1
    return 0


async def migrate(settings: Settings) -> None:
    """Create the database where it is missing, upgrade it to the newest schema, put the first key in place."""
    await _ensure_database(settings)
    engine = create_async_engine(settings.pg_url, poolclass=NullPool)
    try:
        async with engine.begin() as conn:
            await upgrade(conn)
            if settings.bootstrap_key_sha256:
                await keys.bootstrap(conn, key_sha256=settings.bootstrap_key_sha256, at=datetime.now(UTC))
    finally:
        await engine.dispose()
    log.info("the database has the newest schema")


async def upgrade(conn: AsyncConnection) -> None:
    """Apply every migration that is missing, in the caller's transaction; waits while another process does so.

    Raises:
        NewerSchemaError: it has a schema that this code does not know.
    """
    await conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    current = await conn.run_sync(lambda sync: MigrationContext.configure(sync).get_current_revision())
    if current is not None and current not in schema.known():
        raise NewerSchemaError(f"its schema is {current}, this code ends at {max(schema.known())}; use the newer code")
    await conn.run_sync(lambda sync: command.upgrade(_config(sync), "head"))


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    config.attributes["connection"] = connection
    return config


async def _draft(settings: Settings, message: str) -> None:
    def write(connection: Connection) -> None:
        config = _config(connection)
        newest = ScriptDirectory.from_config(config).get_current_head()
        number = f"{int(newest or 0) + 1:04d}"
        command.revision(config, message=message, autogenerate=True, rev_id=number)

    engine = create_async_engine(settings.pg_url, poolclass=NullPool)
    async with engine.begin() as conn:
        await conn.run_sync(write)
    await engine.dispose()


async def _ensure_database(settings: Settings) -> None:
    """Connect, waiting a while for a server that is starting; create the database where the server lacks it."""
    give_up_at = asyncio.get_running_loop().time() + _PATIENCE_S
    while True:
        try:
            conn = await _connect(settings, settings.pg_database)
            await conn.close()
            return
        except asyncpg.InvalidCatalogNameError:
            await _create_database(settings)
        except (OSError, asyncpg.CannotConnectNowError):
            if asyncio.get_running_loop().time() > give_up_at:
                raise
            await asyncio.sleep(0.3)


async def _create_database(settings: Settings) -> None:
    conn = await _connect(settings, "postgres")
    name = '"' + settings.pg_database.replace('"', '""') + '"'
    try:
        await conn.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
    except (asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):
        log.info("another process created the database")
    finally:
        await conn.close()


async def _connect(settings: Settings, database: str) -> "asyncpg.Connection[asyncpg.Record]":
    return await asyncpg.connect(
        host=settings.pg_host,
        port=settings.pg_port,
        user=settings.pg_user,
        password=settings.pg_password.get_secret_value(),
        database=database,
        timeout=10,
    )


if __name__ == "__main__":
    sys.exit(main())
