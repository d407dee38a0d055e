"""Cards of questions: who may answer, the pick behind a press, and what a card shows. Used by `cards`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.approvals.action import name_of
from gateway.approvals.authorization import person_of
from gateway.approvals.button_token import ButtonTokens
from gateway.domain.ids import Handle, Principal
from gateway.domain.questions import Inquiry, Pick
from gateway.domain.sessions import Session
from gateway.domain.slots import PickButton, QuestionCard
from gateway.domain.waits import PressResult, PressVerdict, Wait, WaitState, inquiry_of
from gateway.policy.routing import AllowedPeople, may_see


def may_answer(who: Principal, requester: Principal, session: Session, people: AllowedPeople) -> bool:
    """Return whether a person may answer: the one whose turn asks, by any account, and owners who see the session."""
    if person_of(who, people) == person_of(requester, people):
        return True
    owner = people.owner_of(who)
    return owner is not None and may_see(owner, session.owner, session.root_kind)


def verdict_of(wait: Wait, pick: Pick | None, who: Principal, session: Session, people: AllowedPeople) -> PressVerdict:
    """Return the verdict on a press on a question's card. `pick`: what its handle stands for; None: it is not ours."""
    inquiry = inquiry_of(wait)
    if inquiry is None or pick is None:
        return PressVerdict(refusal=PressResult.NOT_VALID)
    if not may_answer(who, inquiry.requester, session, people):
        return PressVerdict(refusal=PressResult.NOT_ALLOWED)
    return PressVerdict(refusal=None, state=WaitState.ANSWERED, pick=pick)


def picked(handle: Handle, wait: Wait, cards: Iterable[str], text: str, tokens: ButtonTokens) -> Pick | None:
    """Return the pick that a handle of one of these cards stands for; None when the handle is not ours.

    `text`: what the person wrote with it.
    """
    inquiry = inquiry_of(wait)
    if inquiry is None:
        return None
    picks = {pick.name: pick for pick in inquiry.picks()}
    pick = picks.get(tokens.named(handle, wait.id, cards, picks) or "")
    if pick is None or not pick.text:
        return pick
    return Pick(question=pick.question, text=text.strip()) if text.strip() else None


def question_card(wait: Wait, card: str, people: AllowedPeople, tokens: ButtonTokens) -> QuestionCard:
    """Return the card of a question's wait. A damaged wait is shown without questions."""
    inquiry = inquiry_of(wait) or Inquiry(questions=(), requester=Principal(""))
    answered = [
        (question.text, ", ".join(answer) or "none of these")
        for question, answer in zip(inquiry.questions, inquiry.answers, strict=False)
    ]
    current, several = inquiry.current, len(inquiry.questions) > 1
    is_open = wait.state is WaitState.OPEN and current is not None
    return QuestionCard(
        wait=wait,
        answered=tuple(answered),
        question="" if current is None else inquiry.questions[current].text,
        count=f"{current + 1} of {len(inquiry.questions)}" if several and current is not None else "",
        buttons=tuple(_buttons(wait, inquiry, current, card, tokens)) if is_open and current is not None else (),
        write=tokens.make(wait.id, card, Pick(question=current, text=" ").name)
        if is_open and current is not None
        else None,
        asks=inquiry.title,
        note=_note(wait, inquiry, people),
    )


def _buttons(wait: Wait, inquiry: Inquiry, current: int, card: str, tokens: ButtonTokens) -> Iterable[PickButton]:
    question = inquiry.questions[current]
    for k, option in enumerate(question.options):
        name = Pick(question=current, option=k).name
        yield PickButton(label=option, handle=tokens.make(wait.id, card, name), chosen=k in inquiry.chosen)
    if question.several:
        label = f"Done ({len(inquiry.chosen)})" if inquiry.chosen else "None of these"
        yield PickButton(label=label, handle=tokens.make(wait.id, card, Pick(question=current).name), ends=True)


def _note(wait: Wait, inquiry: Inquiry, people: AllowedPeople) -> str:
    """Return the people asked and the expiry, or the outcome of the question."""
    asks = f"The sub-session “{inquiry.title}” asks. " if inquiry.title else ""
    match wait.state:
        case WaitState.OPEN:
            return f"{asks}For {name_of(inquiry.requester, people)}. Answer by {wait.expires_at:%Y-%m-%d %H:%M} UTC."
        case WaitState.ANSWERED:
            at = f", {wait.decided_at:%H:%M} UTC" if wait.decided_at else ""
            return f"Answered by {name_of(wait.decided_by, people)}{at}"
        case WaitState.EXPIRED:
            return "Nobody answered in time. A later answer is a message."
        case _:
            return "Withdrawn."
