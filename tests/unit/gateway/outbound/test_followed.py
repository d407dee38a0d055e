"""What streams follow: how much of an answer may be shown while it comes."""

from __future__ import annotations

import time

import pytest

from gateway.domain.live import TextDelta
from gateway.outbound.followed import FollowedTurn
from gateway.outbound.rate_limit import SendPath
from gateway.system.redaction import Redactor
from tests.support.makers import CHAT
from tests.unit.gateway.outbound.test_live_edits import SECRET, SESSION, TURN

CHARS = 20_000


def turn(text: str) -> FollowedTurn:
    """One that wrote so much of its answer."""
    way = SendPath(account="a", chat="c", scopes=(), rate_limits=())
    found = FollowedTurn(conversation=CHAT, way=way, streams=True, seen_at=0.0, type_at=None)
    found.hear(TextDelta(session=SESSION, turn=TURN, n=0, start=0, text=text), 0.0)
    return found


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("One two thr", "One two"),
        ("One two ", "One two"),
        ("One two\n\n", "One two"),
        (" \n One two", "One"),
        ("One", ""),
        ("", ""),
        ("Ein Wörtchen", "Ein Wö"),
        ("Über", "Ü"),
        (f"It is {SECRET} now", "It is [hidden]"),
    ],
)
def test_the_last_word_waits_for_its_end(written: str, shown: str) -> None:
    assert turn(written).so_far(Redactor([SECRET])) == shown


def test_a_word_of_any_length_costs_no_more_than_others() -> None:
    """A number of thousands of digits, base64, a minified script: looked at each second while the answer grows."""
    word = turn("7" * (CHARS) + " and then")
    words = turn("words " * (CHARS // 6) + " and then")
    redactor = Redactor([SECRET])
    took: dict[str, float] = {}
    for name, one in [("words", words), ("word", word)] * 3:
        began = time.process_time()
        assert one.so_far(redactor).endswith(" and")
        took[name] = min(took.get(name, 9.0), time.process_time() - began)
    assert took["word"] < 5 * took["words"] + 0.02
