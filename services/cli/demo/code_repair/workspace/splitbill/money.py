"""Amounts of money as whole cents."""

import re

_AMOUNT = re.compile(r"(-?)(\d+)(?:\.(\d{1,2}))?")


def parse(text: str) -> int:
    """Cents of an amount such as "12", "12.5" or "-12.50"."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not an amount: {text!r}")
    sign, units, cents = match.groups()
    total = int(units) * 100 + int((cents or "0").ljust(2, "0"))
    return -total if sign else total


def show(cents: int) -> str:
    """An amount as people write it: "12.50"."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"
