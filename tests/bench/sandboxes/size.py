"""How much work the benchmark does."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Claims, commands, starts, engine calls; sandboxes alive at once of both kinds."""

    claims: int = 100
    execs: int = 300
    starts: int = 40
    burst: int = 200
    engine: int = 20
    alive: int = 300
    containers: int = 100


TINY = Size(claims=3, execs=3, starts=2, burst=4, engine=2, alive=4, containers=2)
