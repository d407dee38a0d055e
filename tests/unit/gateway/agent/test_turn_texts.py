from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.agent.turn_texts import said, why_no_answer
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.steps import Answer
from gateway.errors import ModelError
from gateway.system.redaction import Redactor
from tests.support.turns import answered, lineage, session, turn_view

NOTE = "b answered: a failed (10.0.0.7:8123 wants a key (401: no))"
GROUP = session(kind=SessionKind.NON_MAIN)
CHILD = session(of=lineage())


def told(of: Session, answer: Answer, *before: Answer) -> list[str]:
    steps = [answered(n, note=one.note) for n, one in enumerate(before)]
    return [slot.text for slot in said(turn_view(of=of, steps=steps), answer, Redactor())]


@pytest.mark.parametrize(
    ("of", "shown"),
    [
        (session(), NOTE),
        (CHILD, NOTE),
        (session(kind=SessionKind.DM), "b answered: a failed"),
        (GROUP, "b answered: a failed"),
        (replace(CHILD, root_kind=SessionKind.NON_MAIN), "b answered: a failed"),
    ],
)
def test_why_another_answered_is_told_to_owners_alone(of: Session, shown: str) -> None:
    assert told(of, Answer(text="Hi.", note=NOTE)) == [f"Hi.\n\n*{shown}*"]


def test_a_note_that_looks_the_same_is_shown_once_a_turn() -> None:
    later = Answer(text="Hi.", note="b answered: a failed (something else)")

    assert told(GROUP, later, Answer(text="", note=NOTE)) == ["Hi."]
    assert told(session(), later, Answer(text="", note=NOTE)) == [f"Hi.\n\n*{later.note}*"]


def test_why_a_model_failed_is_told_to_owners_alone() -> None:
    refused = ModelError("The key for 10.0.0.7:8123 is refused.", cure="Set another one.")
    said_in = {one: why_no_answer(turn_view(of=one), refused) for one in (session(), GROUP, CHILD)}

    assert "10.0.0.7:8123" in said_in[session()]
    assert "10.0.0.7:8123" in said_in[CHILD]
    assert "10.0.0.7" not in said_in[GROUP]
    assert "/new" in why_no_answer(turn_view(of=GROUP), ModelError("Too long.", too_long=True))
