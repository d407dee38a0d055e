"""Long queues on Redis: whatever leaves or joins one, it is read as it was written, and little is written."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from gateway.domain.ids import SessionId, TurnId
from gateway.domain.routes import empty_session
from gateway.errors import StoreDamaged
from gateway.store.codec import EPOCH
from gateway.store.kernel.rows import SessionRow
from gateway.store.redis.long_queues import (
    AT_ONCE,
    LONG,
    Section,
    dumped,
    laid_out,
    section_key,
    sections_in,
    with_sections,
)
from gateway.store.redis.rows import SESSION
from tests.support.makers import route

ROW = SessionRow(session=empty_session(route(SessionId("chat:=1 =")), EPOCH))


def queue(count: int, first: int = 0) -> tuple[TurnId, ...]:
    return tuple(TurnId(f"t{number}") for number in range(first, first + count))


def stored(turns: tuple[TurnId, ...], before: Sequence[Section] = ()) -> tuple[str, tuple[Section, ...]]:
    """Return a row as it is read, and the sections that are stored with it."""
    words, sections = laid_out(turns, before)
    values = {section_key(one.name): " ".join(one.turns) for one in sections}
    (text,) = with_sections([f"7 {dumped(ROW, words)}"], lambda keys: [values.get(key) for key in keys])
    assert text is not None
    return text.removeprefix("7 "), sections


def test_a_queue_is_read_as_it_was_written() -> None:
    """Turns join at its end, leave at its head, and some leave between."""
    chance, turns, sections, made = random.Random(7), queue(1000), tuple[Section, ...](), 1000
    for _ in range(150):
        match chance.randrange(4):
            case 0:
                turns = turns[chance.randrange(1, 9) :]
            case 1:
                gone = chance.choice(turns)
                turns = tuple(one for one in turns if one != gone)
            case _:
                turns, made = (*turns, *queue(5, made)), made + 5
        text, now = stored(turns, sections)
        assert SESSION.load(7, text).turns == turns
        assert sections_in(text) == now
        assert all(len(one.turns) == AT_ONCE for one in now)
        sections = now


def test_one_more_turn_leaves_the_sections_as_they_are() -> None:
    turns = queue(10_000)
    words, sections = laid_out(turns, ())
    assert len(words) <= len(sections) + LONG
    now = laid_out((*turns, *queue(1, 10_000)), sections)[1]
    assert now[: len(sections)] == sections
    assert len(now) == len(sections) + 1


def test_a_short_queue_has_no_sections() -> None:
    assert laid_out(queue(LONG), laid_out(queue(LONG + 1), ())[1]) == (queue(LONG), ())


def test_a_missing_section_is_damage() -> None:
    words, _ = laid_out(queue(LONG + 1), ())
    with pytest.raises(StoreDamaged, match="section:"):
        with_sections([f"7 {dumped(ROW, words)}"], lambda keys: [None for _ in keys])
