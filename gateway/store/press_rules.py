"""What comes of a press, and which turns `/stop` stops, for all stores. Pure: their transitions do the rest."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from gateway.domain.ids import Principal, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.turns import TurnState
from gateway.domain.waits import TOO_LATE, PressResult, PressVerdict, Wait, WaitKind, WaitState


def result_of_press(wait: Wait | None, verdict: PressVerdict, now: datetime) -> PressResult:
    """What comes of a press that was not handled before. Only APPROVED and DENIED decide the wait."""
    if verdict.refusal is not None or wait is None or wait.kind is not WaitKind.APPROVAL:
        return verdict.refusal or PressResult.NOT_VALID
    if wait.state in (WaitState.EXPIRED, WaitState.SUPERSEDED):
        return PressResult.EXPIRED
    if wait.state is not WaitState.OPEN:
        return PressResult.ALREADY
    if wait.expires_at <= now:
        return PressResult.EXPIRED
    return PressResult.APPROVED if verdict.state is WaitState.APPROVED else PressResult.DENIED


def stays_a_message(result: PressResult, verdict: PressVerdict) -> bool:
    """Whether nothing is recorded of a press: its event is that of a message, which is accepted next."""
    return verdict.written and result in TOO_LATE


def stop_words(words: str, place: Conversation, here: Conversation) -> str:
    """Return what a stopped turn says in its `place`: nothing where the reply to the command stands (`here`)."""
    return "" if place == here else words


def is_stopped_by(
    only: Principal | None, turn: TurnId, whose: str, state: str, *, begun: bool, unheard: Collection[TurnId]
) -> bool:
    """Whether a turn is stopped: what is under way, and what would begin with nobody asking, as news of children.

    `only`: whoever may stop no turns but their own. `unheard`: the turns that only tell of children that have ended.
    """
    theirs = only is None or whose == only
    return theirs and (begun or turn in unheard) and state != TurnState.STOPPING
