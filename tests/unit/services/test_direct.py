"""Our own S3 signature is botocore's, byte for byte."""

import hashlib
from datetime import UTC, datetime

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from services.objects.direct import Key, sign

BODY = b"some bytes"
SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.mark.parametrize("token", [None, "a-token"])
def test_the_signature_is_botocores(token: str | None) -> None:
    path = "/bucket/t/ann/blobs/9a/9ad2-_.~x"
    given = {"if-none-match": "*", "x-amz-checksum-sha256": "mtLh0Q=="}
    theirs = AWSRequest(
        "PUT", f"http://localhost:8333{path}", headers=given | {"X-Amz-Content-SHA256": SHA256}, data=BODY
    )
    S3SigV4Auth(Credentials("access", "secret", token), "s3", "eu-west-1").add_auth(theirs)
    at = datetime.strptime(theirs.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    ours = sign(
        Key("access", "secret", token), "eu-west-1", "PUT", path, SHA256, {"host": "localhost:8333"} | given, at
    )
    assert ours["authorization"] == theirs.headers["Authorization"]
    assert ours.get("x-amz-security-token") == theirs.headers.get("X-Amz-Security-Token")
