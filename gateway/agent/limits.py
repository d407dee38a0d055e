"""Limits of one turn, and the texts that name the limit reached. Pure. Used by `turn`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from gateway.domain.steps import StepKind
from gateway.domain.turns import TurnLimits
from gateway.domain.views import TurnView
from gateway.system.figures import duration
from gateway.toolcalls.subsessions import tokens_used

ANSWERS_BEYOND_CALLS = 5
"""Answers allowed beyond the call limit. An answer makes at least one call; a model refused its next has these left."""


def answers_limit(limits: TurnLimits) -> int:
    """Return how many times a turn may ask its model."""
    return limits.calls + ANSWERS_BEYOND_CALLS


def active_limit(view: TurnView, limits: TurnLimits) -> timedelta:
    """Return the working time of the turn; waiting for a decision does not count."""
    lineage = view.session.lineage
    return limits.active if lineage is None else timedelta(seconds=lineage.active_s)


def tokens_limit(view: TurnView, limits: TurnLimits) -> int:
    """Return the token limit of the turn, its children included; 0 when there is none."""
    lineage = view.session.lineage
    return limits.tokens if lineage is None else lineage.tokens


def beyond(view: TurnView, worked: timedelta, limits: TurnLimits, untold: int = 0) -> str:
    """Return a text with the limit reached and the way on; empty when the turn may ask its model again.

    `untold`: tokens, used or reserved, of children that the view lacks because the turn does not wait for them.
    """
    most = answers_limit(limits)
    if sum(1 for step in view.steps if step.kind is StepKind.MODEL) >= most:
        return _stopped(view, lambda what: f"the model was asked {most} times in {what}", "a smaller task")
    if worked > active_limit(view, limits):
        return out_of_time(view, limits)
    allowed, used = tokens_limit(view, limits), tokens_used(view)
    if allowed and used + untold >= allowed:
        theirs = f", and {untold:,} are its sub-sessions'" if untold else ""
        why = f"used {used:,} tokens{theirs}; its limit is {allowed:,}"
        return _stopped(view, lambda what: f"{what} {why}", "a smaller task")
    return ""


def out_of_time(view: TurnView, limits: TurnLimits) -> str:
    """Return the text of a turn that has used up its working time."""
    may = active_limit(view, limits)
    otherwise = "a longer timeout, or for a smaller task" if may < limits.child_active else "a smaller task"
    return _stopped(view, lambda what: f"{what} worked for {duration(may)}", otherwise)


def _stopped(view: TurnView, why: Callable[[str], str], otherwise: str) -> str:
    """Tell a person how to go on, and the parent of a sub-session what to do instead."""
    if view.session.lineage is None:
        return f"Stopped: {why('this turn')}. Write again to go on."
    return f"Stopped: {why('this sub-session')}. What it did so far holds; spawn another one with {otherwise}."
