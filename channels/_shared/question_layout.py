"""Layout of a question's card: its lines and the labels of its buttons. Used by each channel's `questions`."""

from __future__ import annotations

from types import MappingProxyType

from gateway.domain.slots import PickButton, QuestionCard
from gateway.domain.text import cut, plain
from gateway.domain.waits import WaitState

ANSWER_SHOWN_CHARS = 300
"""Characters of an answer that its card repeats; the call has all of it."""
ENDS = MappingProxyType({WaitState.ANSWERED: "✅", WaitState.EXPIRED: "⌛"})
OWN_WORDS = "Or write your own answer."
OWN_WORDS_IN_GROUP = "Or reply to this message with your own answer."


def head(card: QuestionCard) -> str:
    """Return the first line: how many questions there are, or that there is one."""
    return f"❓ Question {card.count}" if card.count else "❓ Question"


def answered(card: QuestionCard) -> list[str]:
    """Return a line for each answered question."""
    return [f"{plain(question)} → {cut(plain(answer), ANSWER_SHOWN_CHARS)}" for question, answer in card.answered]


def note(card: QuestionCard) -> str:
    """Return the line about the wait."""
    return f"{ENDS.get(card.wait.state, '')} {plain(card.note)}".strip()


def label(button: PickButton, *, several: bool) -> str:
    """Return a button's label; an option of several shows whether it is ticked."""
    if button.ends or not several:
        return plain(button.label)
    return f"{'☑' if button.chosen else '☐'} {plain(button.label)}"


def takes_several(card: QuestionCard) -> bool:
    """Return whether more than one option may be chosen."""
    return any(button.ends for button in card.buttons)
