"""Texts of a turn for people: an answer with its note, and the last text of a turn that has no answer. Pure.

`limits` has the texts of limits, `domain.turns` those of a stop. Used by `turn` and `answer_stream`.
"""

from __future__ import annotations

from gateway.domain.ids import answer_slot
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Answer
from gateway.domain.text import plain
from gateway.domain.views import TurnView
from gateway.errors import ModelError
from gateway.system.redaction import Redactor

EMPTY = "The model gave an empty answer. Ask again, or in other words."


def said(view: TurnView, answer: Answer, redactor: Redactor) -> list[NewSlot]:
    """Return the slot with an answer's text and then its note, the same note once a turn; empty without text.

    The note is for the person alone: it is no part of the answer's text, which models are given.
    """
    text = redactor.text(answer.text).strip()
    note = _note(view, answer, redactor)
    if note and not any(step.answer is not None and _note(view, step.answer, redactor) == note for step in view.steps):
        text = "\n\n".join(filter(None, [text, f"*{note}*"]))
    return [text_slot(view, text, len(view.steps))] if text else []


def _note(view: TurnView, answer: Answer, redactor: Redactor) -> str:
    """Return the note on one line. Its reason, in brackets at the end, names servers and keys: for owners alone."""
    owners_alone = view.session.root_kind is SessionKind.MAIN
    note = answer.note if owners_alone else answer.note.partition(" (")[0]
    return plain(redactor.text(note).replace("*", ""))


def why_no_answer(view: TurnView, error: ModelError) -> str:
    """Return the text of a turn whose model failed. The reason names servers and keys: for owners alone."""
    if view.session.root_kind is SessionKind.MAIN:
        return f"The model could not answer: {error}"
    if error.too_long:
        return "The conversation is too long for the model. Say /new to begin a new history."
    return "The model could not answer. An owner finds the reason in the log; ask again later."


def last_words(view: TurnView, text: str, so_far: str = "") -> NewSlot:
    """Return the slot of a turn without an answer; it replaces a partial answer that was shown.

    `so_far`: the partial answer, which stays above the text; both may be empty.
    """
    return text_slot(view, f"{so_far}\n\n*{text}*" if so_far and text else so_far or text, None)


def text_slot(view: TurnView, text: str, n: int | None) -> NewSlot:
    """Return the slot of an answer's text. `n`: the step that it shows; None: no step, the turn ends with it."""
    slot = answer_slot(view.turn.id, len(view.steps))
    return NewSlot(conversation=view.turn.conversation, kind=SlotKind.ANSWER, text=text, n=n, id=slot)
