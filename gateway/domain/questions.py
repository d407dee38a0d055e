"""Question types: what a call of `ask_user` asks a person, and the answers so far. The payload of a QUESTION wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

from gateway.domain.ids import Principal

QUESTION_EXPIRY = timedelta(hours=24)
"""Time in which a question can be answered, when no setting says otherwise."""
QUESTIONS_AT_MOST = 4
"""Questions of one call. They are asked one after the other."""
OPTIONS_AT_MOST = 8
"""Options of one question."""
QUESTION_CHARS = 500
"""Characters of one question."""
OPTION_CHARS = 60
"""Characters of a question and of an option: both are shown whole, the option on a button."""
ANSWER_CHARS = 4_000
"""Characters of a written answer that the call is given."""
DONE = "done"
"""Pick that ends a choice of several options."""
WRITE = "write"
"""Pick that carries a text of the person's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question. A person may always write a text in place of choosing."""

    text: str
    options: tuple[str, ...] = ()
    several: bool = False
    """True when more than one option may be chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """Answer of one press or message: an option, the end of a choice, or a text."""

    question: int
    """Number of the question, from 0."""
    option: int | None = None
    text: str = ""

    @property
    def name(self) -> str:
        """Name that a button's handle is made for: `0/2`, `0/done`, `0/write`."""
        what = WRITE if self.text else DONE if self.option is None else str(self.option)
        return f"{self.question}/{what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """Questions of one call with the answers so far, in order: the first unanswered question is the one shown."""

    questions: tuple[Question, ...]
    requester: Principal
    """Person whose turn asks."""
    title: str = ""
    """Title of the sub-session that asks; empty for any other session."""
    answers: tuple[tuple[str, ...], ...] = ()
    """For each answered question the chosen options, or the one written text; empty when none was chosen."""
    chosen: tuple[int, ...] = ()
    """Options ticked so far in the current question, in the order of the options."""

    @property
    def current(self) -> int | None:
        """Number of the question that is asked now; None when all are answered."""
        return len(self.answers) if len(self.answers) < len(self.questions) else None

    @staticmethod
    def parse(payload: Mapping[str, Any]) -> Inquiry | None:
        """Return the inquiry in the payload of a wait; None for a damaged one."""
        rows = [_question(one) for one in _listed(payload.get("questions"))]
        questions = tuple(one for one in rows if one is not None)
        if not questions or len(questions) != len(rows):
            return None
        return Inquiry(
            questions=questions,
            requester=Principal(str(payload.get("requester", ""))),
            title=str(payload.get("title", "")),
            answers=tuple(tuple(map(str, _listed(one))) for one in _listed(payload.get("answers"))),
            chosen=tuple(one for one in _listed(payload.get("chosen")) if isinstance(one, int)),
        )

    def as_payload(self) -> dict[str, Any]:
        """Return the stored form, which `parse` reads."""
        return {
            "questions": [{"text": q.text, "options": list(q.options), "several": q.several} for q in self.questions],
            "requester": self.requester,
            "title": self.title,
            "answers": [list(one) for one in self.answers],
            "chosen": list(self.chosen),
        }

    def with_pick(self, pick: Pick) -> Inquiry | None:
        """Return the inquiry after a pick; None when it is not about the current question, or names no option."""
        if self.current is None or pick.question != self.current:
            return None
        question = self.questions[self.current]
        if pick.text:
            return self._answered((pick.text[:ANSWER_CHARS],))
        if pick.option is None:
            chosen = tuple(question.options[one] for one in self.chosen if one < len(question.options))
            return self._answered(chosen) if question.several else None
        if not 0 <= pick.option < len(question.options):
            return None
        if not question.several:
            return self._answered((question.options[pick.option],))
        return replace(self, chosen=tuple(sorted({pick.option} ^ set(self.chosen))))

    def _answered(self, answer: tuple[str, ...]) -> Inquiry:
        return replace(self, answers=(*self.answers, answer), chosen=())

    def said_by(self, pick: Pick) -> tuple[str, str]:
        """Return the question that a pick is about, and the answer in words; empty texts for an unknown question."""
        if not 0 <= pick.question < len(self.questions):
            return "", ""
        question = self.questions[pick.question]
        if pick.text:
            return question.text, pick.text
        if pick.option is None:
            return question.text, ", ".join(question.options[one] for one in self.chosen if one < len(question.options))
        return question.text, question.options[pick.option] if pick.option < len(question.options) else ""

    def picks(self) -> list[Pick]:
        """Return every pick that a button may stand for, of all questions: also of those that were asked before."""
        found = [Pick(question=n, option=k) for n, q in enumerate(self.questions) for k in range(len(q.options))]
        found += [Pick(question=n) for n, q in enumerate(self.questions) if q.several]
        return [*found, *(Pick(question=n, text=" ") for n in range(len(self.questions)))]


def _question(stored: object) -> Question | None:
    if not isinstance(stored, dict):
        return None
    table = cast("Mapping[str, Any]", stored)
    options = tuple(map(str, _listed(table.get("options"))))
    return Question(text=str(table.get("text", "")), options=options, several=table.get("several") is True)


def _listed(stored: object) -> Sequence[object]:
    return cast("list[object]", stored) if isinstance(stored, list) else []
