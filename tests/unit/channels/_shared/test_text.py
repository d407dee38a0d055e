"""Which characters of a text anybody would see."""

from __future__ import annotations

import pytest

from channels._shared.text import visible

BLANKS = [
    "",
    " \n\t",
    "\u200b\u200d",
    "\u00ad\u034f\u180e",
    "\u115f\u1160\u17b4\u17b5",
    "\u2800\u3164\uffa0\ufffc",
    "\u0301\x07",
]


@pytest.mark.parametrize("blank", BLANKS)
def test_a_text_of_blanks_shows_nothing(blank: str) -> None:
    assert not visible(blank)
    assert visible(f"{blank}.")
