"""Files that users uploaded as inputs. The bytes lie in S3 by digest; a row gives them a name and an owner."""

from collections.abc import Iterable

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.artifact import BlobRef, UploadedFile
from agents.contracts.errors import ErrorCode, LonghaulError
from services.store.tables import files


async def add(conn: AsyncConnection, tenant_id: str, *, file_id: str, name: str, blob: BlobRef) -> UploadedFile:
    """Name an uploaded blob."""
    row = (
        insert(files)
        .values(id=file_id, tenant_id=tenant_id, name=name, sha256=blob.sha256, bytes=blob.bytes, created_at=func.now())
        .returning(files)
    )
    return UploadedFile.model_validate(dict((await conn.execute(row)).mappings().one()))


async def get(conn: AsyncConnection, tenant_id: str, file_id: str) -> UploadedFile:
    """One file.

    Raises:
        LonghaulError: ``NOT_FOUND``.
    """
    query = select(files).where(files.c.tenant_id == tenant_id, files.c.id == file_id)
    row = (await conn.execute(query)).mappings().first()
    if row is None:
        raise LonghaulError(ErrorCode.NOT_FOUND, f"there is no file {file_id}")
    return UploadedFile.model_validate(dict(row))


async def missing(conn: AsyncConnection, tenant_id: str, file_ids: Iterable[str]) -> set[str]:
    """Which of these ids the tenant has no file for."""
    wanted = set(file_ids)
    if not wanted:
        return set()
    query = select(files.c.id).where(files.c.tenant_id == tenant_id, files.c.id.in_(wanted))
    return wanted - set((await conn.execute(query)).scalars())
