"""Who makes a request: a bearer key, looked up by its digest, and what the key may do."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from agents.contracts.errors import ErrorCode, LonghaulError
from services.store import keys
from services.store.database import Database
from services.store.keys import Principal, Scope

CACHE_S = 2.0
"""For how long a revoked key may still work."""
_MAX_CACHED = 10_000
_MAX_SECRET = 200


class Keyring:
    """Resolves keys, and remembers the good ones for `CACHE_S`."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: OrderedDict[str, tuple[Principal, float]] = OrderedDict()

    async def resolve(self, secret: str) -> Principal | None:
        """Whose key this is; None for an unknown or revoked one.

        Raises:
            LonghaulError: ``STORE_UNAVAILABLE``.
        """
        name = keys.digest(secret)
        principal, until = self._known.get(name, (None, 0.0))
        if principal is not None and time.monotonic() < until:
            return principal
        self._known.pop(name, None)
        asked_at = time.monotonic()
        async with self._db.begin() as conn:
            principal = await keys.resolve(conn, secret)
        if principal is not None:
            self._known[name] = (principal, asked_at + CACHE_S)
            while len(self._known) > _MAX_CACHED:
                self._known.popitem(last=False)
        return principal


def secret_of(request: Request) -> str:
    """The key that a request carries.

    Raises:
        LonghaulError: ``UNAUTHENTICATED``.
    """
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise LonghaulError(ErrorCode.UNAUTHENTICATED, "send your API key as: Authorization: Bearer <key>")
    if len(secret) > _MAX_SECRET:
        raise _unknown()
    return secret


def _unknown() -> LonghaulError:
    return LonghaulError(ErrorCode.UNAUTHENTICATED, "this API key is not known or was revoked")


_scheme = HTTPBearer(scheme_name="key", description="An API key of your tenant.", auto_error=False)


def _caller(scope: Scope) -> Callable[..., Awaitable[Principal]]:
    async def caller(request: Request, _: Annotated[object, Depends(_scheme)]) -> Principal:
        keyring: Keyring = request.app.state.parts.keyring
        principal = await keyring.resolve(secret_of(request))
        if principal is None:
            raise _unknown()
        if not principal.may(scope):
            raise LonghaulError(ErrorCode.FORBIDDEN, f"this key lacks the scope '{scope.value}'")
        return principal

    return caller


Reader = Annotated[Principal, Depends(_caller(Scope.READ))]
"""The caller of a route that reads."""
Submitter = Annotated[Principal, Depends(_caller(Scope.SUBMIT))]
"""The caller of a route that starts, stops or uploads."""
Approver = Annotated[Principal, Depends(_caller(Scope.APPROVE))]
"""The caller of a route that decides for a person."""
