"""The streams, made and kept in shape by the relay."""

from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, BadRequestError

from agents.contracts.errors import ErrorCode, LonghaulError
from services.mailbox import subjects
from services.mailbox.link import Link

MAX_AGE_S = 7 * 86_400
MAX_BYTES = 256 << 20
DUPLICATE_WINDOW_S = 120
ACK_WAIT_S = 5.0
"""A message that was taken and not acknowledged within this is given out again."""


async def ensure_streams(link: Link, *, replicas: int = 1) -> None:
    """Make the streams of events and of messages and the mailroom's consumer, or bring older ones to this shape. They
    are caches that can be lost: the truth are the tables `events` and `messages`.

    Raises:
        LonghaulError: ``UNAVAILABLE``.
    """
    streams = link.client.jetstream(timeout=5.0)
    try:
        await _ensure(streams, _config(subjects.EVENT_STREAM, subjects.ALL_EVENTS, replicas))
        await _ensure(streams, _config(subjects.MESSAGE_STREAM, subjects.ALL_MESSAGES, replicas))
        mailroom = ConsumerConfig(
            durable_name=subjects.MAILROOM, ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT_S, max_deliver=-1
        )
        await streams.add_consumer(subjects.MESSAGE_STREAM, mailroom)
    except (NatsError, APIError, OSError, TimeoutError) as error:
        raise LonghaulError(
            ErrorCode.UNAVAILABLE, f"the streams could not be made: {error!r}", retry_after_s=1
        ) from error


def _config(name: str, subject: str, replicas: int) -> StreamConfig:
    return StreamConfig(
        name=name,
        subjects=[subject],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        max_age=MAX_AGE_S,
        max_bytes=MAX_BYTES,
        duplicate_window=DUPLICATE_WINDOW_S,
        num_replicas=replicas,
    )


async def _ensure(streams: JetStreamContext, config: StreamConfig) -> None:
    try:
        await streams.add_stream(config)
    except BadRequestError:  # it exists in another shape
        await streams.update_stream(config)
