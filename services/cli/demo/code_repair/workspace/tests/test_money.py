import pytest

from splitbill.money import parse, show


@pytest.mark.parametrize(("text", "cents"), [("12", 1200), ("12.5", 1250), ("0.05", 5), ("-3.99", -399), (" 7.00 ", 700)])
def test_parse(text, cents):
    assert parse(text) == cents


@pytest.mark.parametrize("text", ["", "abc", "1.234", "1,50", "--1"])
def test_parse_refuses(text):
    with pytest.raises(ValueError, match="not an amount"):
        parse(text)


@pytest.mark.parametrize("cents", [0, 5, 99, 100, 1250, -1, -399])
def test_show_is_the_inverse_of_parse(cents):
    assert parse(show(cents)) == cents
