"""An operator's credentials: headers that requests to a host get outside the sandboxes. A file, so that they are in no
environment; its values are shown nowhere."""

import re
import stat
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, RootModel, SecretStr, ValidationError

from agents.contracts.base import Edge
from agents.contracts.network import exact_host
from services.sandbox.egress.request import Headers

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[!-~]+([ \t]+[!-~]+)*")


def _headers(given: dict[str, SecretStr]) -> dict[str, SecretStr]:
    if not all(map(_NAME.fullmatch, given)):
        raise ValueError("this is not a header's name")
    if not all(_VALUE.fullmatch(value.get_secret_value()) for value in given.values()):
        raise ValueError("a header's value is one line of plain text")
    return given


class Credential(Edge):
    """What a host's requests get; where `tenants` are named, only those of their sandboxes."""

    headers: Annotated[dict[str, SecretStr], Field(min_length=1), AfterValidator(_headers)]
    tenants: tuple[str, ...] | None = None


class Credentials(RootModel[dict[Annotated[str, AfterValidator(exact_host)], Credential]]):
    """By host."""

    root: dict[Annotated[str, AfterValidator(exact_host)], Credential] = {}

    def of(self, tenant_id: str) -> dict[str, Headers]:
        """Those of one tenant's sandboxes, as the proxy takes them."""
        return {
            host: tuple((name.encode(), value.get_secret_value().encode()) for name, value in one.headers.items())
            for host, one in self.root.items()
            if one.tenants is None or tenant_id in one.tenants
        }


def read_credentials(path: Path | None) -> Credentials:
    """What the file holds; nothing where there is none.

    Raises:
        ValueError: it cannot be used; the text says why, and shows no value.
    """
    if path is None:
        return Credentials()
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ValueError(f"{path} may be read by others: chmod 600 {path}")
        return Credentials.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)
        where = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'the file'}: {e['msg']}" for e in wrong)
        raise ValueError(f"{path} is not valid: {where}") from None
