"""stub"""

from services.stack.layout import DataDir
from pathlib import Path
from typing import NamedTuple


class Finding(NamedTuple):
    ok: bool
    name: str
    detail: str
    remedy: str = ""


def examine(data: DataDir, port: int, template: Path) -> list[Finding]:
    return []
