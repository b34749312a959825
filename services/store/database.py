"""The connection to PostgreSQL: one engine a process, and what a lost connection means."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, NamedTuple

from asyncpg import InterfaceError as DriverInterfaceError
from asyncpg import PostgresError
from sqlalchemy import TextClause
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi, PGDialect_asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.util import greenlet_spawn

from agents.contracts.errors import ErrorCode, LonghaulError
from services.storage import storage_full
from services.store.spill import json_text

_NO_SPACE = "53100"
_AWAY = {"57P01", "57P02", "57P03", "53300"}
"""What a server answers that is shutting down, has crashed, is starting, or has no connection to spare."""
_CONNECTION_LOST = "08"


class Database:
    """Transactions on one PostgreSQL database. Build one per process; `close` it at the end."""

    def __init__(
        self, url: str, *, pool_size: int = 10, max_overflow: int | None = None, plan_once: bool = False
    ) -> None:
        """`url` is ``postgresql+asyncpg://user:password@host:port/name``. With `plan_once` the server plans a statement
        once a connection, for any values: for those who only go by keys, whose planning costs more than their work."""
        plans = {"plan_cache_mode": "force_generic_plan"} if plan_once else {}
        self._engine: AsyncEngine = create_async_engine(
            url,
            pool_size=pool_size,
            max_overflow=pool_size if max_overflow is None else max_overflow,
            pool_timeout=10,
            pool_pre_ping=False,
            json_serializer=json_text,
            connect_args={"server_settings": plans},
        )

    async def one(self, statement: TextClause, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run a statement that is a transaction of its own and answers one row: one round trip, and a quarter of the
        CPU of the long way, because it goes to the driver itself.

        Raises:
            LonghaulError: as `begin`.
            PostgresError: the server refused it.
        """
        text, order = _compiled(statement)
        async with _faults(), self._driver() as driver:
            row: Mapping[str, Any] = await driver.fetchrow(text, *(values[name] for name in order))
        return row

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """A transaction: committed at the end of the block, rolled back by an exception.

        Raises:
            LonghaulError: ``STORE_UNAVAILABLE`` where the server cannot be reached or the connection broke. Whether a
                commit under way went through is then unknown; a ledger transaction finds out by its own unique key.
        """
        async with _faults(), self._engine.begin() as conn:
            yield conn

    @asynccontextmanager
    async def _driver(self) -> AsyncIterator[Any]:
        """A connection of the driver's. After anything but an answer of the server it is not used again."""
        held: PoolProxiedConnection = await self._engine.raw_connection()
        try:
            yield held.driver_connection
        except PostgresError:
            raise
        except BaseException:
            await greenlet_spawn(held.invalidate)
            raise
        finally:
            await greenlet_spawn(held.close)

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()


@asynccontextmanager
async def _faults() -> AsyncIterator[None]:
    try:
        yield
    except (DBAPIError, PostgresError, DriverInterfaceError, AsyncAdapt_asyncpg_dbapi.Error) as error:
        state = getattr(getattr(error, "orig", error), "sqlstate", None) or ""
        if state == _NO_SPACE:
            raise storage_full("the database has no space left on its disk; free some") from error
        if state in _AWAY or state.startswith(_CONNECTION_LOST) or _broken(error):
            raise _unavailable(error) from error
        raise
    except (OSError, TimeoutError, PoolTimeout) as error:
        raise _unavailable(error) from error


def _broken(error: Exception) -> bool:
    """Whether a fault is the connection's, not the statement's."""
    kinds = (InterfaceError, OperationalError, DriverInterfaceError, AsyncAdapt_asyncpg_dbapi.InterfaceError)
    return isinstance(error, kinds) or bool(getattr(error, "connection_invalidated", False))


class _Compiled(NamedTuple):
    text: str
    order: tuple[str, ...]


@cache
def _compiled(statement: TextClause) -> _Compiled:
    """A statement as the driver takes it, with the order of its parameters."""
    dialect: Any = PGDialect_asyncpg
    compiled = statement.compile(dialect=dialect())
    return _Compiled(str(compiled), tuple(getattr(compiled, "positiontup", None) or ()))


def _unavailable(error: Exception) -> LonghaulError:
    return LonghaulError(
        ErrorCode.STORE_UNAVAILABLE,
        f"the database cannot be reached ({type(error).__name__}); try again",
        retry_after_s=1,
    )
