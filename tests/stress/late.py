"""What came too late for Temporal: it counts, and we ask its metrics."""

import re
from collections import Counter
from http.client import HTTPConnection

COUNTED = {
    "activity_task_timeout": "activities whose heartbeats or end came too late",
    "start_to_close_timeout": "workflow tasks that took too long",
    "schedule_to_start_timeout": "workflow tasks that their worker did not take in time",
}
_LINE = re.compile(r"^(\w+)\{.*\} ([0-9.e+]+)$", re.MULTILINE)


def late(metrics_port: int) -> dict[str, int]:
    """How often, by what it was; each of these was tried again."""
    connection = HTTPConnection("127.0.0.1", metrics_port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    found: Counter[str] = Counter()
    for name, value in _LINE.findall(text):
        if name in COUNTED:
            found[COUNTED[name]] += round(float(value))
    return dict(found)
