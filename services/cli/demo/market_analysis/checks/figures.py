"""Recompute every figure from prices.csv with plain Python; metrics.json and report.md must agree; chart.png is a PNG."""

import csv
import json
import math
import statistics
import struct

NAMES = ("days", "total_return", "annual_volatility", "max_drawdown", "peak", "trough")


def figures(days, closes):
    returns = [b / a - 1 for a, b in zip(closes, closes[1:], strict=False)]
    falls = []
    for at, close in enumerate(closes):
        high = max(range(at + 1), key=closes.__getitem__)
        falls.append((close / closes[high] - 1, days[high], days[at]))
    volatility = statistics.stdev(returns) * math.sqrt(252)
    return (len(closes), closes[-1] / closes[0] - 1, volatility, *min(falls))


funds = {}
with open("prices.csv") as source:
    for row in csv.DictReader(source):
        days, closes = funds.setdefault(row["symbol"], ([], []))
        days.append(row["date"])
        closes.append(float(row["close"]))
with open("metrics.json") as source:
    claimed = json.load(source)
with open("report.md") as source:
    report = source.read()
assert set(claimed) == set(funds), f"metrics.json is of {sorted(claimed)}"

for symbol, (days, closes) in funds.items():
    right = dict(zip(NAMES, figures(days, closes), strict=True))
    for name, value in right.items():
        given = claimed[symbol][name]
        same = math.isclose(given, value, rel_tol=1e-9) if isinstance(value, float) else given == value
        assert same, f"{symbol} {name} is {value}, not {given}"
    (line,) = (line for line in report.splitlines() if line.startswith("|") and symbol in line)
    for name in ("total_return", "annual_volatility", "max_drawdown"):
        assert f"{100 * right[name]:.1f}" in line, f"report.md: {symbol} {name} is not in {line!r}"

with open("chart.png", "rb") as source:
    head = source.read(24)
assert head[:8] == b"\x89PNG\r\n\x1a\n", "chart.png is not a PNG"
width, height = struct.unpack(">II", head[16:])
assert width >= 1200 and height >= 800, f"chart.png has {width} by {height} pixels"
print(f"{len(funds)} funds, {len(NAMES) * len(funds)} figures right; chart of {width} by {height} pixels")
