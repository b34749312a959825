"""How much is asked of the stack."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """`tasks` of `tenants`, at most `running` at once; each runs `turns` commands in each of `parallel` steps.

    The first tenant floods: three quarters of the tasks are its own, and they are all submitted before the others
    submit theirs. The whole run may take `minutes`. `seed` decides who is read when.
    """

    tasks: int = 200
    tenants: int = 3
    running: int = 20
    turns: int = 2
    parallel: int = 1
    minutes: float = 15.0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.tenants < 2 or self.tasks < 4 * self.tenants:
            raise ValueError("at least two tenants, and four tasks for each")

    @property
    def shares(self) -> list[int]:
        """Tasks of each tenant, the flood first."""
        others = self.tasks // 4 // (self.tenants - 1)
        return [self.tasks - others * (self.tenants - 1), *[others] * (self.tenants - 1)]

    @property
    def recording(self) -> str:
        """What the replay engine plays."""
        return f"generate:{self.turns}" + (f"x{self.parallel}" if self.parallel > 1 else "")
