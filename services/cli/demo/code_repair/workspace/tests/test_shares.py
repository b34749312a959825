import pytest

from splitbill.shares import split


def test_even_split():
    assert split(900, [1, 1, 1]) == [300, 300, 300]


def test_weighted_split():
    assert split(1000, [3, 2]) == [600, 400]


def test_not_a_cent_is_lost():
    assert sum(split(10000, [1, 1, 1])) == 10000


def test_refuses_negative_weights():
    with pytest.raises(ValueError, match="negative"):
        split(100, [1, -1])


def test_refuses_nobody():
    with pytest.raises(ValueError, match="take part"):
        split(100, [0, 0])
