"""Message that a late answer to a question becomes. Used by ingress; pure."""

from __future__ import annotations

from datetime import datetime

from gateway.domain.messages import Inbound, Press
from gateway.domain.sessions import Session, SessionKind


def late_answer(press: Press, session: Session, question: str, words: str, now: datetime) -> Inbound:
    """Return the message of a late press. Its key is the press's, so that repeating it stores nothing.

    `session`: the one that asked; the message is for the conversation of the press.
    """
    return Inbound(
        event_key=f"{press.event_key}/late",
        conversation=press.conversation,
        principal=press.principal,
        name=press.principal,
        direct=press.conversation.on_page or session.root_kind is not SessionKind.NON_MAIN,
        addressed=True,
        text=words,
        sent_at=now,
        quoted=question,
    )
