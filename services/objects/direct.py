"""Requests without boto3's machinery, which costs more CPU than the rest of a turn: signed here, sent by botocore's own
HTTP session (its connections, certificates and proxies)."""

import hashlib
import hmac
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSPreparedRequest
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies

_SOCKET_OPTIONS = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]


@dataclass(frozen=True)
class Key:
    """What a request is signed with; `token` comes with keys that expire."""

    access: str
    secret: str
    token: str | None = None


class Direct:
    """Requests to one endpoint, from any thread."""

    def __init__(self, endpoint: str, region: str, *, connections: int, timeout_s: tuple[float, float]) -> None:
        """`timeout_s` is for connecting and for each read."""
        self._endpoint = endpoint.rstrip("/")
        self._host = urlsplit(self._endpoint).netloc
        self._region = region
        self._http: Any = URLLib3Session(
            proxies=get_environ_proxies(self._endpoint),
            timeout=timeout_s,
            max_pool_connections=connections,
            socket_options=_SOCKET_OPTIONS,
        )

    def send(
        self,
        method: str,
        key: Key,
        path: str,
        headers: Mapping[str, str],
        data: bytes = b"",
        sha256: bytes | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of the answer. `path` needs no escaping; names of `headers` are lower case; `sha256` is the
        digest of `data` where it is known.

        Raises:
            BotoCoreError: no answer came.
        """
        digest = sha256.hex() if sha256 else hashlib.sha256(data).hexdigest()
        more = {"host": self._host} | dict(headers)
        signed = sign(key, self._region, method, path, digest, more, datetime.now(UTC))
        answer = self._http.send(AWSPreparedRequest(method, self._endpoint + path, signed, data, False))
        return int(answer.status_code), bytes(answer.content)


def sign(
    key: Key, region: str, method: str, path: str, body_sha256: str, headers: Mapping[str, str], at: datetime
) -> dict[str, str]:
    """The headers with those of AWS Signature Version 4 for S3. There is no query; header names are lower case."""
    time = f"{at:%Y%m%dT%H%M%SZ}"
    scope = f"{time[:8]}/{region}/s3/aws4_request"
    signed = dict(headers) | {"x-amz-content-sha256": body_sha256, "x-amz-date": time}
    if key.token:
        signed["x-amz-security-token"] = key.token
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    request = f"{method}\n{path}\n\n{lines}\n{names}\n{body_sha256}"
    to_sign = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    secret = ("AWS4" + key.secret).encode()
    for part in scope.split("/"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    signature = hmac.digest(secret, to_sign.encode(), "sha256").hex()
    signed["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key.access}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return signed
