"""The connection to PostgreSQL: one engine a process, and what a lost connection means."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from agents.contracts.errors import ErrorCode, LonghaulError
from services.storage import storage_full
from services.store.spill import json_text

_NO_SPACE = "53100"
_AWAY = {"57P01", "57P02", "57P03", "53300"}
"""What a server answers that is shutting down, has crashed, is starting, or has no connection to spare."""


class Database:
    """Transactions on one PostgreSQL database. Build one per process; `close` it at the end."""

    def __init__(self, url: str, *, pool_size: int = 10, max_overflow: int | None = None) -> None:
        """`url` is ``postgresql+asyncpg://user:password@host:port/name``."""
        self._engine: AsyncEngine = create_async_engine(
            url,
            pool_size=pool_size,
            max_overflow=pool_size if max_overflow is None else max_overflow,
            pool_timeout=10,
            pool_pre_ping=False,
            json_serializer=json_text,
        )
        self._at_once = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[AsyncConnection]:
        """A connection on which every statement is a transaction of its own: one round trip instead of three.

        Raises:
            LonghaulError: as `begin`.
        """
        async with _faults(), self._at_once.connect() as conn:
            yield conn

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """A transaction: committed at the end of the block, rolled back by an exception.

        Raises:
            LonghaulError: ``STORE_UNAVAILABLE`` where the server cannot be reached or the connection broke. Whether a
                commit under way went through is then unknown; a ledger transaction finds out by its own unique key.
        """
        async with _faults(), self._engine.begin() as conn:
            yield conn

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()


@asynccontextmanager
async def _faults() -> AsyncIterator[None]:
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _NO_SPACE:
            raise storage_full("the database has no space left on its disk; free some") from error
        if isinstance(error, InterfaceError | OperationalError):
            raise _unavailable(error) from error
        if error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _AWAY:
            raise _unavailable(error) from error
        raise
    except (OSError, TimeoutError) as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> LonghaulError:
    return LonghaulError(
        ErrorCode.STORE_UNAVAILABLE,
        f"the database cannot be reached ({type(error).__name__}); try again",
        retry_after_s=1,
    )
