"""A boto3 client with every setting that matters said out loud, and the calls we make with it (all blocking)."""

import base64
from collections.abc import Callable
from typing import IO, Any, TypeVar

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from agents.contracts.errors import ErrorCode, LonghaulError
from services.settings import Settings

T = TypeVar("T")

_MULTIPART = TransferConfig(multipart_threshold=64 << 20, multipart_chunksize=16 << 20, use_threads=False)
_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}
_TAKEN = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}


class Bucket:
    """One bucket. Safe to use from many threads; `connections` is how many requests it can have under way."""

    def __init__(self, settings: Settings, *, connections: int) -> None:
        self._name = settings.s3_bucket
        self._s3: Any = boto3.client(
            "s3",
            endpoint_url=settings.s3_endpoint or None,
            region_name=settings.s3_region,
            aws_access_key_id=settings.s3_access_key or None,
            aws_secret_access_key=settings.s3_secret_key.get_secret_value() or None,
            config=Config(
                signature_version="s3v4",
                s3={"addressing_style": "path"},
                connect_timeout=2,
                read_timeout=15,
                retries={"mode": "standard", "total_max_attempts": 3},
                max_pool_connections=connections,
                tcp_keepalive=True,
                request_checksum_calculation=settings.s3_checksum_mode,
                response_checksum_validation="when_required",  # the digest is checked here anyway
            ),
        )

    def put(self, key: str, data: bytes, digest: bytes) -> None:
        """Keep bytes under a key, unless it is taken: then it holds the same bytes."""

        def send() -> None:
            try:
                self._s3.put_object(
                    Bucket=self._name,
                    Key=key,
                    Body=data,
                    IfNoneMatch="*",
                    ChecksumSHA256=base64.b64encode(digest).decode(),
                )
            except ClientError as error:
                if _status(error) != 412:
                    raise

        self._run(self._in_bucket(send))

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

    def ping(self) -> None:
        """Ask whether the service answers and takes our key; makes the bucket where it is missing."""
        self._run(self._in_bucket(lambda: self._s3.head_bucket(Bucket=self._name)))

    def _exists(self, key: str) -> bool:
        try:
            self._s3.head_object(Bucket=self._name, Key=key)
        except ClientError as error:
            # a HEAD has no body to name the code: a missing bucket shows at the upload that follows
            if _status(error) == 404:
                return False
            raise
        return True

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


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _unavailable(why: str) -> LonghaulError:
    return LonghaulError(
        ErrorCode.OBJECTS_UNAVAILABLE, f"the object store cannot be used ({why}); try again", retry_after_s=1
    )
