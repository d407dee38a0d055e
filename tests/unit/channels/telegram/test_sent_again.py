"""Re-sent messages: marked, with unchanged cuts."""

from __future__ import annotations

import pytest

from channels.telegram.formatted_text import units
from channels.telegram.limits import TEXT_UNITS
from channels.telegram.parts import RESENT, FilePart, TelegramTextPart
from tests.unit.channels.telegram.showings import card, pres, row, shown, texts


def test_a_repetition_says_so_once() -> None:
    first, *rest = texts(shown("word " * 1500, uncertain=True))
    assert first.text.startswith(f"{RESENT} word")
    assert rest
    assert not any(RESENT in part.text for part in rest)


@pytest.mark.parametrize(
    "text", ["word " * 2000, "**bold** and `code`\n\n" * 140, f"```\n{'x y ' * 2500}\n```", "é🧵" * 3000]
)
@pytest.mark.parametrize("there", [(), ("101",), ("101", "102")])
def test_repeated_message_is_marked_and_all_are_cut_as_before(text: str, there: tuple[str, ...]) -> None:
    at = len(there)
    before, after = texts(shown(text)), texts(shown(text, uncertain=True, there=there))
    assert len(before) == 3
    assert before[:at] + before[at + 1 :] == after[:at] + after[at + 1 :]
    assert after[at].text.startswith(RESENT)
    assert after[at].text.removeprefix(RESENT)[1:] == before[at].text
    assert units(after[at].text) <= TEXT_UNITS
    assert pres(after[at]) == pres(before[at])


def test_existing_message_is_not_marked() -> None:
    assert shown("word", uncertain=True, there=("101",)) == shown("word")
    assert shown("word", uncertain=True, there=("101",), partial=True) == shown("word", partial=True)


def test_repeated_file_is_marked_and_stays_the_same_file() -> None:
    text = "word " * (4 * 800)
    head, file = shown(text, uncertain=True, there=("101",))
    assert isinstance(head, TelegramTextPart)
    assert isinstance(file, FilePart)
    assert (RESENT in head.text, file.mark) == (False, RESENT)
    assert [part.digest for part in (head, file)] == [part.digest for part in shown(text)]


def test_repeated_card_is_marked_and_is_nothing_without_rows() -> None:
    (part,) = texts(card(row(), uncertain=True))
    assert part.text.startswith(RESENT)
    assert card() == []
    long = [row("z" * 60_000, n=1), row("z" * 3_200, n=2)]
    file, first, last = card(*long)
    assert texts(card(*long, uncertain=True)) == [first, last]
    assert texts(card(*long, uncertain=True, there=("1",)))[0].text.startswith(RESENT)
    marked = card(*long, uncertain=True, there=("1", "2"))
    assert marked[:2] == [file, first]
    assert texts(marked)[1].text.startswith(RESENT)
