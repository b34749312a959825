"""How workspace/prices.csv was made: seeded random walks of four funds that do not exist.

``python services/cli/demo/market_analysis/make_prices.py`` writes the file anew, byte for byte the same.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

SEED = 2_000
FIRST, LAST = date(2023, 1, 2), date(2024, 12, 31)
TRADING_DAYS = 252
MARKET_VOLATILITY = 0.11


@dataclass(frozen=True)
class Fund:
    """A fund: yearly drift and own volatility, how far it follows the market, and when it did not trade."""

    symbol: str
    start: float
    drift: float
    volatility: float
    beta: float
    closed: tuple[tuple[date, date], ...] = ()
    jump: float = 0.0
    """The change of its price over all of its first closure, beside the walk."""


FUNDS = (
    Fund("ALDER", 48.2, 0.07, 0.06, 0.6),
    Fund(
        "BIRCH", 112.5, 0.11, 0.10, 1.0, ((date(2023, 5, 1), date(2023, 5, 1)), (date(2024, 8, 15), date(2024, 8, 16)))
    ),
    Fund("CEDAR", 27.4, 0.26, 0.23, 1.5),
    Fund("ROWAN", 76.9, 0.16, 0.15, 1.1, ((date(2023, 10, 9), date(2023, 10, 20)),), -0.19),
)


def weekdays(first: date, last: date) -> Iterator[date]:
    """Every Monday to Friday of a span, both ends included."""
    for offset in range((last - first).days + 1):
        day = first + timedelta(days=offset)
        if day.weekday() < 5:
            yield day


def rows(seed: int = SEED) -> Iterator[tuple[date, str, float]]:
    """Date, symbol, close; no row where a fund did not trade."""
    chance = random.Random(seed)
    prices = {fund.symbol: fund.start for fund in FUNDS}
    for day in weekdays(FIRST, LAST):
        market = chance.gauss(0.0, MARKET_VOLATILITY / math.sqrt(TRADING_DAYS))
        for fund in FUNDS:
            own = chance.gauss(fund.drift / TRADING_DAYS, fund.volatility / math.sqrt(TRADING_DAYS))
            prices[fund.symbol] *= math.exp(own + fund.beta * market + _shock(fund, day))
            if not any(first <= day <= last for first, last in fund.closed):
                yield day, fund.symbol, round(prices[fund.symbol], 2)


def _shock(fund: Fund, day: date) -> float:
    """The jump, on the day a closure begins: it shows in the first price after it."""
    return math.log1p(fund.jump) if fund.closed and day == fund.closed[0][0] else 0.0


def text() -> str:
    """The whole file."""
    return "date,symbol,close\n" + "".join(f"{day},{symbol},{close:.2f}\n" for day, symbol, close in rows())


if __name__ == "__main__":
    (Path(__file__).parent / "workspace" / "prices.csv").write_text(text(), encoding="utf-8")
