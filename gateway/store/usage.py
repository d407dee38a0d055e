"""Beside the path of an answer: what it adds to the books. Shared by every store. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from gateway.domain.ids import Principal
from gateway.domain.steps import Answer, Usage
from gateway.domain.views import Spent

NOTHING = Usage()


def cost_of(answer: Answer, principal: Principal, now: datetime) -> Spent | None:
    """What this answer costs the person whose turn it is; None when its model gave no figures."""
    if answer.usage == NOTHING:
        return None
    day = now.astimezone(UTC).date()
    return Spent(day=day, principal=principal, model=answer.model, answers=1, usage=answer.usage)


def together(one: Spent, other: Spent) -> Spent:
    """The sum of two of the same day, person and model."""
    return replace(one, answers=one.answers + other.answers, usage=one.usage + other.usage)
