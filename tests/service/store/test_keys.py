from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from agents.contracts.errors import ErrorCode, LonghaulError
from services.settings import Settings
from services.store import keys
from services.store.keys import Scope
from tests.service.rooms import database, fresh_database

AT = datetime(2026, 1, 2, tzinfo=UTC)


async def test_a_key_opens_its_own_tenant_until_it_is_revoked(owner: Settings) -> None:
    async with fresh_database(owner) as own, database(own) as db, db.begin() as conn:
        for tenant in ("ann", "bob"):
            await keys.create_tenant(conn, tenant_id=tenant, name=tenant, at=AT)
        new = await keys.create_key(conn, tenant_id="ann", name="laptop", scopes=[Scope.SUBMIT, Scope.READ], at=AT)
        await keys.create_key(conn, tenant_id="bob", name="ci", scopes=[Scope.ADMIN], at=AT)

        who = await keys.resolve(conn, new.secret)
        assert who
        assert (who.tenant_id, who.key_id, who.scopes) == ("ann", new.key.id, frozenset({Scope.READ, Scope.SUBMIT}))
        assert who.may(Scope.READ)
        assert not who.may(Scope.APPROVE)
        assert [key.name for key in await keys.list_keys(conn, tenant_id="ann")] == ["laptop"]

        assert not await keys.revoke(conn, tenant_id="bob", key_id=new.key.id, at=AT), "another tenant's key"
        assert await keys.resolve(conn, new.secret)
        assert await keys.revoke(conn, tenant_id="ann", key_id=new.key.id, at=AT)
        assert not await keys.revoke(conn, tenant_id="ann", key_id=new.key.id, at=AT)
        assert await keys.resolve(conn, new.secret) is None


async def test_a_secret_is_long_new_and_kept_nowhere(owner: Settings) -> None:
    async with fresh_database(owner) as own, database(own) as db, db.begin() as conn:
        await keys.create_tenant(conn, tenant_id="ann", name="Ann", at=AT)
        made = [await keys.create_key(conn, tenant_id="ann", name="k", scopes=[], at=AT) for _ in range(2)]
        assert made[0].secret != made[1].secret
        assert made[0].secret.startswith("lh_")
        assert len(made[0].secret) >= 46
        rows = (await conn.execute(text("SELECT row_to_json(k)::text FROM api_keys k"))).scalars().all()
        assert not [row for row in rows for key in made if key.secret in row]


@pytest.mark.parametrize("secret", ["", "lh_", "lh_nobody", "x' OR 1=1 --", "\x00"])
async def test_what_is_no_key_opens_nothing(owner: Settings, secret: str) -> None:
    async with database(owner) as db, db.begin() as conn:
        assert await keys.resolve(conn, secret) is None


@pytest.mark.parametrize("tenant", ["a.b", "a b", "*", ">", "", "A", "é", "x" * 41, "../x", "-a"])
async def test_a_tenant_id_is_safe_in_subjects_and_keys(owner: Settings, tenant: str) -> None:
    async with database(owner) as db, db.begin() as conn:
        with pytest.raises(LonghaulError) as refused:
            await keys.create_tenant(conn, tenant_id=tenant, name="n", at=AT)
        assert refused.value.code is ErrorCode.VALIDATION_FAILED
