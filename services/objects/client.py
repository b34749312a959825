"""A boto3 client with every setting that matters said out loud, and the calls we make with it (all blocking)."""

import base64
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import IO, Any, TypeVar

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError

from agents.contracts.errors import ErrorCode, LonghaulError
from services.objects.direct import Direct, Key
from services.settings import Settings

T = TypeVar("T")

_MULTIPART = TransferConfig(multipart_threshold=64 << 20, multipart_chunksize=16 << 20, use_threads=False)
_CONNECT_S, _READ_S = 2, 15
_TRIES = 3
_PAUSE_S = 0.1
_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}
_TAKEN = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}


class Bucket:
    """One bucket. Safe to use from many threads; `connections` is how many requests it can have under way."""

    def __init__(self, settings: Settings, *, connections: int) -> None:
        self._name = settings.s3_bucket
        session = boto3.Session(
            aws_access_key_id=settings.s3_access_key or None,
            aws_secret_access_key=settings.s3_secret_key.get_secret_value() or None,
            region_name=settings.s3_region,
        )
        self._s3: Any = session.client(
            "s3",
            endpoint_url=settings.s3_endpoint or None,
            config=Config(
                signature_version="s3v4",
                s3={"addressing_style": "path"},
                connect_timeout=_CONNECT_S,
                read_timeout=_READ_S,
                retries={"mode": "standard", "total_max_attempts": _TRIES},
                max_pool_connections=connections,
                tcp_keepalive=True,
                request_checksum_calculation=settings.s3_checksum_mode,
                response_checksum_validation="when_required",  # the digest is checked here anyway
            ),
        )
        self._credentials: Any = session.get_credentials()
        self._direct = Direct(
            self._s3.meta.endpoint_url,
            settings.s3_region,
            connections=connections,
            timeout_s=(_CONNECT_S, _READ_S),
        )

    def put(self, key: str, data: bytes, digest: bytes) -> bool:
        """Keep bytes under a key, unless it is taken: then it holds the same bytes. Whether it was free."""
        headers = {"if-none-match": "*", "x-amz-checksum-sha256": base64.b64encode(digest).decode()}

        def send() -> bool:
            status, body = self._send("PUT", key, headers, data, digest)
            if status not in (200, 412):
                raise ClientError(_answer(status, body), "PutObject")
            return status == 200

        return self._run(self._in_bucket(send))

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes under a key, or `length` of them from `start` on."""
        last = "" if length is None else start + length - 1
        headers = {"range": f"bytes={start}-{last}"} if start or length is not None else {}

        def send() -> bytes:
            status, body = self._send("GET", key, headers)
            if status not in (200, 206):
                raise ClientError(_answer(status, body), "GetObject")
            return body

        return self._run(send)

    def has(self, key: str) -> bool:
        """Whether the key is taken."""
        return self._run(lambda: self._exists(key))

    def keys(self, prefix: str) -> Iterator[tuple[str, int, datetime]]:
        """Keys that begin so, in order, each with its size and the time it was written."""
        pages = iter(self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._name, Prefix=prefix))
        while (page := self._run(lambda: next(pages, None))) is not None:
            for found in page.get("Contents", ()):
                yield found["Key"], int(found["Size"]), found["LastModified"]

    def delete(self, key: str) -> None:
        """Take it away; what is not there is no fault."""
        self._run(lambda: self._s3.delete_object(Bucket=self._name, Key=key))

    def _send(
        self, method: str, key: str, headers: dict[str, str], data: bytes = b"", digest: bytes | None = None
    ) -> tuple[int, bytes]:
        """Send until an answer comes that another try would not change, at most `_TRIES` times."""
        path = f"/{self._name}/{key}"
        for left in range(_TRIES - 1, -1, -1):
            try:
                status, body = self._direct.send(method, self._key(), path, headers, data, digest)
                if status < 500 or left == 0:
                    break
            except HTTPClientError:
                if left == 0:
                    raise
            time.sleep(_PAUSE_S)
        return status, body

    def _key(self) -> Key:
        if self._credentials is None:
            raise NoCredentialsError
        now = self._credentials.get_frozen_credentials()
        return Key(now.access_key, now.secret_key, now.token)

    def put_file(self, key: str, file: IO[bytes]) -> None:
        """Keep a file of any size under a key, unless it is taken."""

        def send() -> None:
            if self._exists(key):
                return
            file.seek(0)
            self._s3.upload_fileobj(file, self._name, key, Config=_MULTIPART)

        self._run(self._in_bucket(send))

    def open(self, key: str, byte_range: str | None = None) -> Any:
        """The body of an object as a stream to read from and close; `byte_range` is a Range header's value."""
        more = {"Range": byte_range} if byte_range else {}
        return self._run(lambda: self._s3.get_object(Bucket=self._name, Key=key, **more))["Body"]

    def read(self, body: Any, size: int | None = None) -> bytes:
        """Read from what `open` gave: all of it, or at most `size` bytes."""
        return self._run(lambda: bytes(body.read(size)))

    def abort_uploads(self, before: datetime) -> int:
        """Give up what was begun in parts before a moment and has no end; how many there were."""

        def abort() -> int:
            pages = self._s3.get_paginator("list_multipart_uploads").paginate(Bucket=self._name)
            old = [one for page in pages for one in page.get("Uploads", ()) if one["Initiated"] < before]
            for one in old:
                self._s3.abort_multipart_upload(Bucket=self._name, Key=one["Key"], UploadId=one["UploadId"])
            return len(old)

        return self._run(self._in_bucket(abort))

    def ping(self) -> None:
        """Ask whether the service answers and takes our key; makes the bucket where it is missing."""
        self._run(self._in_bucket(lambda: self._s3.head_bucket(Bucket=self._name)))

    def _exists(self, key: str) -> bool:
        # a HEAD has no body to name the code: a missing bucket shows at the upload that follows
        status, body = self._send("HEAD", key, {})
        if status not in (200, 404):
            raise ClientError(_answer(status, body), "HeadObject")
        return status == 200

    def _in_bucket(self, call: Callable[[], T]) -> Callable[[], T]:
        def again() -> T:
            try:
                return call()
            except ClientError as error:
                if _code(error) not in ("NoSuchBucket", "404"):
                    raise
                self._create_bucket()
                return call()

        return again

    def _create_bucket(self) -> None:
        try:
            self._s3.create_bucket(Bucket=self._name)
        except ClientError as error:
            if _code(error) not in _TAKEN:
                raise

    def _run(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except ClientError as error:
            if _code(error) in _MISSING:
                raise LonghaulError(ErrorCode.NOT_FOUND, "there is no such object") from error
            if _status(error) == 416:
                raise LonghaulError(ErrorCode.RANGE_NOT_SATISFIABLE, "the object is shorter than that") from error
            raise _unavailable(f"it answered {_status(error)} {_code(error)}") from error
        except (BotoCoreError, OSError) as error:
            raise _unavailable(type(error).__name__) from error


def _answer(status: int, body: bytes) -> Any:
    """An error answer as boto3 tells of it."""
    code = re.search(rb"<Code>([^<]{1,100})</Code>", body)
    return {"Error": {"Code": code[1].decode() if code else ""}, "ResponseMetadata": {"HTTPStatusCode": status}}


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _unavailable(why: str) -> LonghaulError:
    return LonghaulError(
        ErrorCode.OBJECTS_UNAVAILABLE, f"the object store cannot be used ({why}); try again", retry_after_s=1
    )
