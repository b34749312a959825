"""New ids: a prefix, the time and chance, so that ids made later sort later."""

import secrets
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32


def new_id(prefix: str) -> str:
    """An id such as ``task_01J9ZK3V8Q4T5W6X7Y8Z9A0B1C``: 10 characters of milliseconds, 16 of chance (as a ULID)."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return f"{prefix}_" + "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))
