"""Which characters of a text anybody would see."""

from __future__ import annotations

import pytest

from channels._shared.text import seen, visible


def test_a_name_that_hides_something_is_shown_as_it_looks() -> None:
    assert seen("Ann\u202e \u200bBerg ", 64) == "Ann Berg"
    assert seen("Ann Berg", 4) == "Ann"


BLANKS = [
    "",
    " \n\t",
    "\u200b\u200d",
    "\u00ad\u034f\u180e",
    "\u115f\u1160\u17b4\u17b5",
    "\u2800\u3164\uffa0\ufffc",
    "\u0301\x07",
]


@pytest.mark.parametrize(
    "blank", ["", " \n\t", "\u200b\u200d", "\u00ad\u034f\u180e", "\u115f\u3164\u2800\ufffc", "\u0301\x07"]
)
def test_a_text_of_blanks_shows_nothing(blank: str) -> None:
    assert not visible(blank)
    assert visible(f"{blank}.")
