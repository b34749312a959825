"""Tenants and their API keys. A key's secret is shown once; only its digest is kept."""

import hashlib
import re
import secrets
from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.base import UtcTime, Wire
from agents.contracts.errors import ErrorCode, LonghaulError
from services.ids import new_id
from services.store.tables import api_keys, tenants

DEFAULT_TENANT = "default"
BOOTSTRAP_KEY_ID = "key_bootstrap"
_TENANT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class Scope(StrEnum):
    """What a key may do. `admin` includes the others."""

    READ = "read"
    SUBMIT = "submit"
    APPROVE = "approve"
    ADMIN = "admin"


class Principal(Wire):
    """Who makes a request."""

    tenant_id: str
    key_id: str
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Whether the key allows it."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


class Key(Wire):
    """A key as it is listed: without its secret."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    created_at: UtcTime
    revoked_at: UtcTime | None = None


class NewKey(Wire):
    """A key that was just made. `secret` is not kept anywhere: show it now."""

    key: Key
    secret: str


def digest(secret: str) -> str:
    """What is kept of a secret. A plain hash will do: a secret has 256 random bits, nobody can guess towards it."""
    return hashlib.sha256(secret.encode()).hexdigest()


async def create_tenant(conn: AsyncConnection, *, tenant_id: str, name: str, at: datetime) -> None:
    """Make a tenant; one that exists stays as it is.

    Raises:
        LonghaulError: ``VALIDATION_FAILED`` for an id that could not stand in a subject or an object's key.
    """
    if not _TENANT_ID.fullmatch(tenant_id):
        raise LonghaulError(
            ErrorCode.VALIDATION_FAILED,
            "a tenant's id is 1 to 40 of a-z, 0-9, '_' and '-', and begins with one of a-z, 0-9",
        )
    row = {"tenant_id": tenant_id, "name": name, "created_at": at}
    await conn.execute(insert(tenants).values(row).on_conflict_do_nothing())


async def create_key(
    conn: AsyncConnection, *, tenant_id: str, name: str, scopes: Collection[Scope], at: datetime
) -> NewKey:
    """Make a key with a new secret."""
    secret = "lh_" + secrets.token_urlsafe(32)
    key = Key(id=new_id("key"), name=name, scopes=tuple(sorted(scopes)), created_at=at)
    row = {
        "id": key.id,
        "tenant_id": tenant_id,
        "name": name,
        "key_sha256": digest(secret),
        "scopes": list(key.scopes),
        "created_at": at,
    }
    await conn.execute(insert(api_keys).values(row))
    return NewKey(key=key, secret=secret)


async def resolve(conn: AsyncConnection, secret: str) -> Principal | None:
    """Whose secret this is; None for an unknown or revoked one."""
    query = select(api_keys.c.tenant_id, api_keys.c.id, api_keys.c.scopes).where(
        api_keys.c.key_sha256 == digest(secret), api_keys.c.revoked_at.is_(None)
    )
    row = (await conn.execute(query)).one_or_none()
    return Principal(tenant_id=row.tenant_id, key_id=row.id, scopes=frozenset(row.scopes)) if row else None


async def list_keys(conn: AsyncConnection, *, tenant_id: str) -> list[Key]:
    """The tenant's keys, oldest first, revoked ones too."""
    columns = (api_keys.c.id, api_keys.c.name, api_keys.c.scopes, api_keys.c.created_at, api_keys.c.revoked_at)
    query = select(*columns).where(api_keys.c.tenant_id == tenant_id).order_by(api_keys.c.created_at, api_keys.c.id)
    return [Key.model_validate(dict(row)) for row in (await conn.execute(query)).mappings()]


async def revoke(conn: AsyncConnection, *, tenant_id: str, key_id: str, at: datetime) -> bool:
    """End a key from the next request on; whether the tenant has such a key that was not yet revoked."""
    change = (
        update(api_keys)
        .where(api_keys.c.tenant_id == tenant_id, api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
        .values(revoked_at=at)
    )
    return (await conn.execute(change)).rowcount == 1


async def bootstrap(conn: AsyncConnection, *, key_sha256: str, at: datetime) -> None:
    """Put tenant ``default`` and its first key in place, with every scope. Another digest replaces the key; the same
    one changes nothing, so that a revoked first key stays revoked.

    Raises:
        LonghaulError: ``VALIDATION_FAILED`` where the digest is not 64 hex digits.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", key_sha256):
        raise LonghaulError(ErrorCode.VALIDATION_FAILED, "LONGHAUL_BOOTSTRAP_KEY_SHA256 must be 64 hex digits")
    await create_tenant(conn, tenant_id=DEFAULT_TENANT, name="Default", at=at)
    row = insert(api_keys).values(
        id=BOOTSTRAP_KEY_ID,
        tenant_id=DEFAULT_TENANT,
        name="first key",
        key_sha256=key_sha256,
        scopes=sorted(Scope),
        created_at=at,
    )
    new = row.excluded
    await conn.execute(
        row.on_conflict_do_update(
            index_elements=[api_keys.c.id],
            set_={"key_sha256": new.key_sha256, "scopes": new.scopes, "created_at": new.created_at, "revoked_at": None},
            where=api_keys.c.key_sha256 != new.key_sha256,
        )
    )
