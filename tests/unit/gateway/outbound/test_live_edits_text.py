"""Visible part of an answer while it is streamed."""

from __future__ import annotations

import time

import pytest

from gateway.domain.events import TextDelta
from gateway.outbound.live_edits import FollowedTurn
from gateway.outbound.rate_limit import SendPath
from gateway.system.redaction import Redactor
from tests.support.makers import CHAT
from tests.unit.gateway.outbound.test_live_edits import SECRET, SESSION, TURN

CHARS = 20_000


def turn(text: str) -> FollowedTurn:
    """Return a turn that wrote so much of its answer."""
    path = SendPath(account="a", chat="c", scopes=(), rate_limits=())
    found = FollowedTurn(conversation=CHAT, path=path, streams=True, seen_at=0.0, type_at=None)
    found.add(TextDelta(session=SESSION, turn=TURN, n=0, start=0, text=text), 0.0)
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
def test_visible_text_omits_the_last_word(written: str, shown: str) -> None:
    assert turn(written).visible_text(Redactor([SECRET])) == shown


def test_visible_text_of_a_long_word_costs_no_more() -> None:
    """Thousands of digits, base64 or a minified script are checked each second while the answer grows."""
    word = turn("7" * (CHARS) + " and then")
    words = turn("words " * (CHARS // 6) + " and then")
    redactor = Redactor([SECRET])
    took: dict[str, float] = {}
    for name, one in [("words", words), ("word", word)] * 3:
        began = time.process_time()
        assert one.visible_text(redactor).endswith(" and")
        took[name] = min(took.get(name, 9.0), time.process_time() - began)
    assert took["word"] < 5 * took["words"] + 0.02
