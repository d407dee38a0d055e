"""Button tokens: bound to one wait, card and verb, and not forgeable."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.approvals.button_token import ButtonTokens, cards_at, page_card, wait_of
from gateway.domain.ids import Handle, SlotId, WaitId
from gateway.domain.waits import Verb
from tests.support.fakes import ANN_PAGE, GROUP, KEY
from tests.support.makers import ANN, CHAT, OTHER_CHAT
from tests.support.proof import examples

HANDLES = ButtonTokens(KEY)
WAITS = st.from_regex(r"w[0-9a-f]{16}", fullmatch=True).map(WaitId)
CARDS = st.from_regex(r"o[0-9a-f]{16}", fullmatch=True) | st.just("page:ann") | st.text(max_size=40)
VERBS = st.sampled_from(Verb)


@given(WAITS, CARDS, VERBS)
@settings(deadline=None)
def test_a_handle_reads_back_as_its_verb_and_fits_every_platform(wait: WaitId, card: str, verb: Verb) -> None:
    handle = HANDLES.make(wait, card, verb)

    assert HANDLES.verb(handle, wait, ["other", card]) is verb
    assert wait_of(handle) == wait
    assert len(handle.encode()) <= 64
    assert handle.isascii()
    assert HANDLES.make(wait, card, verb) == handle  # the same on a resend
    assert verb.value not in handle


@example(WaitId("w" + "0" * 16), "o1", Verb.ONCE, 39, "\ud800")
@given(WAITS, CARDS, VERBS, st.integers(min_value=0), st.characters(exclude_categories=[]))
@settings(deadline=None, max_examples=examples(100))
def test_a_handle_with_one_character_changed_is_worthless(
    wait: WaitId, card: str, verb: Verb, place: int, char: str
) -> None:
    handle = HANDLES.make(wait, card, verb)
    at = place % len(handle)
    forged = Handle(handle[:at] + char + handle[at + 1 :])

    if forged != handle:
        assert HANDLES.verb(forged, wait, [card]) is None


@given(WAITS, WAITS, CARDS, CARDS, VERBS)
@settings(deadline=None)
def test_a_handle_is_worthless_elsewhere(one: WaitId, other: WaitId, card: str, another: str, verb: Verb) -> None:
    handle = HANDLES.make(one, card, verb)

    if other != one:
        assert HANDLES.verb(handle, other, [card]) is None
    if another != card:
        assert HANDLES.verb(handle, one, [another]) is None
    assert HANDLES.verb(handle, one, []) is None
    assert ButtonTokens(b"j" * 32).verb(handle, one, [card]) is None
    assert len({HANDLES.make(one, card, each) for each in Verb}) == len(Verb)


@pytest.mark.parametrize(
    ("handle", "named"),
    [
        ("w0123456789abcdef." + "a" * 22, "w0123456789abcdef"),
        ("w0123456789abcdef." + "a" * 21, None),
        ("w0123456789abcdef." + "a" * 23, None),
        ("w0123456789abcdef" + "a" * 22, None),
        ("w0123456789abcdef", None),
        ("w0123456789ABCDEF." + "a" * 22, None),
        ("W0123456789abcdef." + "a" * 22, None),
        ("w0123456789abcde." + "a" * 22, None),
        ("o0123456789abcdef." + "a" * 22, None),
        ("." + "a" * 22, None),
        ("", None),
    ],
)
def test_a_handle_names_a_wait_or_is_none(handle: str, named: str | None) -> None:
    assert wait_of(Handle(handle)) == named


@example("w" + "0" * 16 + "." + "\ud800" * 22)
@example("w" + "0" * 16 + "." + "\u00e9" * 22)
@example("w" + "0" * 16 + "\n." + "a" * 22)
@given(st.text(st.characters(exclude_categories=[])) | st.from_regex(r"w[0-9a-f]{16}\..*"))
@settings(deadline=None, max_examples=examples(200))
def test_any_text_may_come_as_a_handle(text: str) -> None:
    """A platform's payload is whatever a client sends: it is looked up or refused, and nothing is raised."""
    found = wait_of(Handle(text))

    assert found is None or (text.startswith(f"{found}.") and len(text) == 40)
    assert HANDLES.verb(Handle(text), WaitId("w" + "0" * 16), ["o1"]) is None


def test_cards_at_a_place_are_those_shown_there() -> None:
    shown = [(SlotId("o1"), CHAT), (SlotId("o2"), OTHER_CHAT), (SlotId("o3"), CHAT)]

    assert cards_at(CHAT, shown) == ["o1", "o3"]
    assert cards_at(GROUP, shown) == []
    assert cards_at(ANN_PAGE, shown) == ["page:ann"] == [page_card(ANN)]
