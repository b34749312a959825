"""The opaque cursor of a list: a place, not a count, so that new entries never shift a page."""

import base64
import binascii
from datetime import UTC, datetime, timedelta

from agents.contracts.errors import ErrorCode, LonghaulError
from services.store.task_views import Position

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_CHARS = 200


def behind(at: datetime, name: str, order: str) -> str:
    """The cursor of what follows an entry of this time and id in this order."""
    micros = (at - _EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(f"{order} {micros} {name}".encode()).rstrip(b"=").decode()


def read(cursor: str, order: str) -> Position:
    """The place that a cursor tells of.

    Raises:
        LonghaulError: ``INVALID_CURSOR`` for anything that `behind` did not make for this order.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        was, micros, task_id = base64.b64decode(padded, b"-_", validate=True).decode("ascii").split(" ")
        if len(cursor) > _MAX_CHARS or was != order or not micros.isdecimal() or not task_id.isidentifier():
            raise ValueError
        return Position(_EPOCH + timedelta(microseconds=int(micros)), task_id)
    except (ValueError, OverflowError, binascii.Error):
        raise LonghaulError(
            ErrorCode.INVALID_CURSOR, f"this cursor is not one of a list with order={order}; start without a cursor"
        ) from None
