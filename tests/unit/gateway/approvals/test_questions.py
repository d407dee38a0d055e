"""Cards of questions: who may answer, which handles count, and what a card shows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from gateway.approvals import Approvals
from gateway.approvals.button_token import ButtonTokens
from gateway.approvals.questions import may_answer, picked, question_card, verdict_of
from gateway.domain.ids import Handle, Principal
from gateway.domain.questions import Inquiry, Pick, Question
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import QuestionCard
from gateway.domain.waits import PressResult, Wait, WaitKind, WaitState
from gateway.store.memory import MemoryStore
from tests.support.clock import FakeClock
from tests.support.fakes import CLEO_TELEGRAM, KEY, PEOPLE
from tests.support.makers import ANN_SLACK, ANN_TELEGRAM, BOB
from tests.unit.gateway.approvals.rig import session, wait

TOKENS = ButtonTokens(KEY)
CARD = "o0123456789abcdef"
MEMBER, ANN_WEB = Principal("telegram:9009"), Principal("web:ann")
DAY = Question(text="Which day?", options=("Monday", "Friday"))
TOPPINGS = Question(text="Which toppings?", options=("olives", "capers"), several=True)
MAIN, NON_MAIN = SessionKind.MAIN, SessionKind.NON_MAIN


def asked(
    *questions: Question, by: Principal = ANN_TELEGRAM, title: str = "", state: WaitState = WaitState.OPEN
) -> Wait:
    inquiry = Inquiry(questions=questions or (DAY,), requester=by, title=title)
    return replace(wait(state), kind=WaitKind.QUESTION, approval=None, payload=inquiry.as_payload())


def shown(found: Wait) -> QuestionCard:
    return question_card(found, CARD, PEOPLE, TOKENS)


@pytest.mark.parametrize(
    ("who", "requester", "kind", "may"),
    [
        (ANN_TELEGRAM, ANN_TELEGRAM, MAIN, True),
        (ANN_SLACK, ANN_TELEGRAM, MAIN, True),  # the same owner by another account
        (ANN_WEB, ANN_TELEGRAM, MAIN, True),
        (CLEO_TELEGRAM, ANN_TELEGRAM, MAIN, False),  # another owner's main session
        (BOB, ANN_TELEGRAM, MAIN, False),
        (BOB, BOB, NON_MAIN, True),
        (MEMBER, BOB, NON_MAIN, False),  # another member of the group
        (ANN_WEB, BOB, NON_MAIN, True),  # an owner, who sees the session
        (CLEO_TELEGRAM, BOB, NON_MAIN, True),
    ],
)
def test_people_who_may_answer(who: Principal, requester: Principal, kind: SessionKind, may: bool) -> None:
    found, place = asked(by=requester), session(kind)
    verdict = verdict_of(found, Pick(question=0, option=1), who, place, PEOPLE)
    assert may_answer(who, requester, place, PEOPLE) is may
    assert verdict.refusal is (None if may else PressResult.NOT_ALLOWED)
    assert (verdict.pick is not None) is may


def test_a_handle_counts_on_its_own_card_alone() -> None:
    found = asked(DAY, TOPPINGS)
    handle = shown(found).buttons[1].handle
    assert picked(handle, found, [CARD], "", TOKENS) == Pick(question=0, option=1)
    assert picked(handle, found, ["oanother"], "", TOKENS) is None, "a card of another conversation"
    assert picked(handle, replace(found, payload={}), [CARD], "", TOKENS) is None, "a damaged wait"
    other = replace(found, id=type(found.id)("wfedcba9876543210"))
    assert picked(handle, other, [CARD], "", TOKENS) is None
    assert picked(Handle(f"{handle[:-1]}!"), found, [CARD], "", TOKENS) is None
    assert verdict_of(found, None, ANN_TELEGRAM, session(), PEOPLE).refusal is PressResult.NOT_VALID
    assert (
        verdict_of(replace(found, payload={}), None, ANN_TELEGRAM, session(), PEOPLE).refusal is PressResult.NOT_VALID
    )


@pytest.mark.parametrize("chosen", [(), (0, 1)])
def test_each_button_stands_for_its_pick(chosen: tuple[int, ...]) -> None:
    inquiry = Inquiry(questions=(DAY, TOPPINGS), requester=ANN_TELEGRAM, answers=((),), chosen=chosen)
    found = replace(asked(), payload=inquiry.as_payload())
    card = shown(found)
    picks = [picked(one.handle, found, [CARD], "", TOKENS) for one in card.buttons]
    assert picks == [Pick(question=1, option=0), Pick(question=1, option=1), Pick(question=1)]
    assert [one.ends for one in card.buttons] == [False, False, True]
    assert card.buttons[2].label == (f"Done ({len(chosen)})" if chosen else "None of these")
    assert (card.question, card.count, card.wait) == ("Which toppings?", "2 of 2", found)
    assert card.answered == (("Which day?", "none of these"),)


def test_press_on_a_question_is_judged_by_its_own_card() -> None:
    """Through the facade that inbound and delivery use."""
    asking, found = Approvals(PEOPLE, MemoryStore(FakeClock()), TOKENS), asked(DAY, TOPPINGS)
    card = asking.question(found, CARD)
    assert card == shown(found)
    assert card.write is not None
    press = partial(asking.verdict, wait=found, cards=[CARD], session=session())
    assert press(card.buttons[1].handle, who=ANN_SLACK).pick == Pick(question=0, option=1)
    assert press(card.write, who=ANN_SLACK, text=" Sunday").pick == Pick(question=0, text="Sunday")
    assert press(card.write, who=ANN_SLACK).refusal is PressResult.NOT_VALID
    assert press(card.buttons[1].handle, who=ANN_SLACK, cards=["oanother"]).refusal is PressResult.NOT_VALID
    assert press(card.buttons[1].handle, who=BOB).refusal is PressResult.NOT_ALLOWED


def test_a_text_needs_the_handle_of_its_field() -> None:
    found = asked()
    write = shown(found).write
    assert write is not None
    assert picked(write, found, [CARD], " Sunday ", TOKENS) == Pick(question=0, text="Sunday")
    assert picked(write, found, [CARD], "  ", TOKENS) is None


def test_a_card_shows_one_question_and_the_answers_before_it() -> None:
    first = shown(asked(DAY, TOPPINGS))
    assert (first.question, first.count, first.answered) == ("Which day?", "1 of 2", ())
    assert [one.label for one in first.buttons] == ["Monday", "Friday"]
    assert first.note.startswith("For ann. Answer by ")
    inquiry = Inquiry(questions=(DAY, TOPPINGS), requester=BOB, title="Bake", answers=(("Friday",),), chosen=(1,))
    second = shown(replace(asked(), payload=inquiry.as_payload()))
    assert second.answered == (("Which day?", "Friday"),)
    assert [(one.label, one.chosen, one.ends) for one in second.buttons] == [
        ("olives", False, False),
        ("capers", True, False),
        ("Done (1)", False, True),
    ]
    assert second.note == f"The sub-session “Bake” asks. For {BOB}. Answer by 2026-01-01 01:00 UTC."
    assert (second.asks, first.asks) == ("Bake", "")
    assert shown(asked(DAY)).count == ""


@pytest.mark.parametrize(
    ("state", "note"),
    [
        (WaitState.ANSWERED, "Answered by Nobody"),
        (WaitState.SUPERSEDED, "Withdrawn."),
        (WaitState.EXPIRED, "Nobody answered in time. A later answer is a message."),
        (WaitState.CANCELLED, "Withdrawn."),
    ],
)
def test_a_card_that_is_over_has_no_buttons(state: WaitState, note: str) -> None:
    card = shown(asked(state=state))
    assert (card.buttons, card.write, card.note) == ((), None, note)


def test_card_says_who_answered_and_when() -> None:
    inquiry = Inquiry(questions=(DAY,), requester=BOB, answers=(("Friday", "Monday"),))
    found = replace(wait(WaitState.ANSWERED, who=ANN_SLACK), kind=WaitKind.QUESTION, payload=inquiry.as_payload())
    card = shown(found)
    assert card.note == "Answered by ann, 00:00 UTC"
    assert (card.question, card.answered, card.buttons) == ("", (("Which day?", "Friday, Monday"),), ())


def test_a_damaged_question_is_shown_empty() -> None:
    card = shown(replace(asked(), payload={"questions": "no list"}))
    assert (card.question, card.buttons, card.write, card.answered) == ("", (), None, ())
    assert card.note == "For . Answer by 2026-01-01 01:00 UTC."
