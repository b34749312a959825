from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from agents.policy.fairness import Claim, turns

NOW = datetime(2026, 1, 1, tzinfo=UTC)

claims = st.lists(
    st.builds(
        Claim,
        tenant_id=st.sampled_from("abcdefgh"),
        waiting=st.integers(0, 30),
        holds=st.integers(0, 10),
        served_at=st.none() | st.integers(0, 100).map(lambda n: NOW + timedelta(seconds=n)),
    ),
    unique_by=lambda claim: claim.tenant_id,
)


def test_who_floods_gets_no_more_than_the_others_and_all_of_it_when_they_want_nothing() -> None:
    flood, other = Claim("flood", 1_000, 3, NOW), Claim("other", 2, 0)
    assert turns([flood, other], 4) == ["other", "other", "flood", "flood"]
    assert turns([Claim("flood", 1_000, 20)], 3) == ["flood"] * 3


def test_among_equals_the_one_served_longest_ago_is_next() -> None:
    later = NOW + timedelta(seconds=1)
    assert turns([Claim("a", 2, 0, later), Claim("b", 2, 0, NOW), Claim("c", 2, 0)], 6) == list("cbacba")


@given(claims, st.integers(0, 40))
def test_places_are_all_used_and_never_more_than_wanted(found: list[Claim], places: int) -> None:
    order = turns(found, places)
    assert len(order) == min(places, sum(claim.waiting for claim in found))
    given_to = Counter(order)
    assert all(given_to[claim.tenant_id] <= claim.waiting for claim in found)
    for claim in found:  # nobody is passed by one that ends up with two more than it
        if given_to[claim.tenant_id] < claim.waiting:
            mine = claim.holds + given_to[claim.tenant_id]
            assert all(o.holds + given_to[o.tenant_id] <= mine + 1 for o in found if given_to[o.tenant_id])
