from splitbill.ledger import Ledger
from splitbill.money import parse


def test_dinner_for_three():
    ledger = Ledger(["ana", "ben", "cleo"])
    ledger.add("ana", parse("100.00"), {"ana": 1, "ben": 1, "cleo": 1})
    assert sum(ledger.balances.values()) == 0
    assert ledger.balances["ana"] in (6666, 6667)


def test_taxi_without_ana():
    ledger = Ledger(["ana", "ben", "cleo"])
    shares = ledger.add("ben", parse("12.01"), {"ana": 0, "ben": 1, "cleo": 1})
    assert shares["ana"] == 0
    assert sorted(shares.values()) == [0, 600, 601]


def test_a_weekend_is_settled():
    ledger = Ledger(["ana", "ben", "cleo"])
    ledger.add("ana", parse("60.00"), {"ana": 1, "ben": 1, "cleo": 1})
    ledger.add("ben", parse("15.00"), {"ben": 2, "cleo": 1})
    for debtor, creditor, cents in ledger.settle():
        ledger.balances[debtor] += cents
        ledger.balances[creditor] -= cents
    assert set(ledger.balances.values()) == {0}
