"""The streams, made and kept in shape by the relay."""

from nats.errors import Error as NatsError
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, BadRequestError

from agents.contracts.errors import ErrorCode, LonghaulError
from services.mailbox import subjects
from services.mailbox.link import Link

MAX_AGE_S = 7 * 86_400
MAX_BYTES = 256 << 20
DUPLICATE_WINDOW_S = 120


async def ensure_streams(link: Link, *, replicas: int = 1) -> None:
    """Make the stream of events, or bring an older one to this shape. It is a cache that can be lost: the truth is the
    `events` table.

    Raises:
        LonghaulError: ``UNAVAILABLE``.
    """
    config = StreamConfig(
        name=subjects.EVENT_STREAM,
        subjects=[subjects.ALL_EVENTS],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        max_age=MAX_AGE_S,
        max_bytes=MAX_BYTES,
        duplicate_window=DUPLICATE_WINDOW_S,
        num_replicas=replicas,
    )
    streams = link.client.jetstream(timeout=5.0)
    try:
        try:
            await streams.add_stream(config)
        except BadRequestError:  # it exists in another shape
            await streams.update_stream(config)
    except (NatsError, APIError, OSError, TimeoutError) as error:
        raise LonghaulError(
            ErrorCode.UNAVAILABLE, f"the stream of events could not be made: {error!r}", retry_after_s=1
        ) from error
