"""Balances of a group, and the payments that settle them."""

from collections.abc import Mapping

from splitbill.money import show
from splitbill.shares import split


class LedgerError(Exception):
    """An entry that would make the books wrong."""


class Ledger:
    """What everybody has paid minus what everybody has used, in cents."""

    def __init__(self, people: list[str]) -> None:
        self.balances = dict.fromkeys(people, 0)

    def add(self, payer: str, cents: int, weights: Mapping[str, int]) -> dict[str, int]:
        """Book an expense of `payer` that is shared by `weights`; answers everybody's share."""
        shares = dict(zip(weights, split(cents, list(weights.values())), strict=True))
        self._audit(cents, weights, shares)
        self.balances[payer] += cents
        for person, share in shares.items():
            self.balances[person] -= share
        return shares

    def settle(self) -> list[tuple[str, str, int]]:
        """Payments (from, to, cents) after which nobody owes anything: the largest debt meets the largest claim."""
        open_balances = dict(self.balances)
        payments = []
        while any(open_balances.values()):
            debtor = min(open_balances, key=open_balances.__getitem__)
            creditor = max(open_balances, key=open_balances.__getitem__)
            cents = min(-open_balances[debtor], open_balances[creditor])
            open_balances[debtor] += cents
            open_balances[creditor] -= cents
            payments.append((debtor, creditor, cents))
        return payments

    @staticmethod
    def _audit(cents: int, weights: Mapping[str, int], shares: Mapping[str, int]) -> None:
        """Refuse shares that do not add up, and shares of people who took no part."""
        total = sum(shares.values())
        if total != cents:
            raise LedgerError(f"the shares add up to {show(total)}, the bill is {show(cents)}")
        for person, share in shares.items():
            if share and not weights[person]:
                raise LedgerError(f"{person} took no part but would pay {show(share)}")
