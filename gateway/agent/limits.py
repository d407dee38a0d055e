"""Within a turn: what it may use, and what it says when that is used up. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from gateway.domain.steps import StepKind
from gateway.domain.turns import TurnLimits
from gateway.domain.views import TurnView
from gateway.toolcalls.subsessions import tokens_used

ANSWERS_BEYOND_CALLS = 5
"""An answer makes a call at least; a model that was refused its next one has so many answers to come to its end."""


def answers_limit(limits: TurnLimits) -> int:
    """Return how many times a turn may ask its model."""
    return limits.calls + ANSWERS_BEYOND_CALLS


def active_limit(view: TurnView, limits: TurnLimits) -> timedelta:
    """Return for how long the turn may work; waiting for a decision does not count."""
    lineage = view.session.lineage
    return limits.active if lineage is None else timedelta(seconds=lineage.active_s)


def tokens_limit(view: TurnView, limits: TurnLimits) -> int:
    """Return how many tokens the turn may use, those of its children included; 0 when there is no limit."""
    lineage = view.session.lineage
    return limits.tokens if lineage is None else lineage.tokens


def beyond(view: TurnView, worked: timedelta, limits: TurnLimits, untold: int = 0) -> str:
    """Say which limit the turn has passed, and what to do about it; empty when it may ask its model again.

    `untold`: tokens, used or held back, of children that are not in the view, because the turn does not wait for them.
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
    """What a turn says that worked for as long as it may."""
    may = active_limit(view, limits)
    otherwise = "a longer timeout, or for a smaller task" if may < limits.child_active else "a smaller task"
    return _stopped(view, lambda what: f"{what} worked for {_span(may)}", otherwise)


def _stopped(view: TurnView, why: Callable[[str], str], otherwise: str) -> str:
    """To a person, how to go on; to the parent of a sub-session, what to do otherwise."""
    if view.session.lineage is None:
        return f"Stopped: {why('this turn')}. Write again to go on."
    return f"Stopped: {why('this sub-session')}. What it did so far holds; spawn another one with {otherwise}."


def _span(span: timedelta) -> str:
    seconds = round(span.total_seconds())
    if seconds < 60 or seconds % 60:
        return f"{seconds:,} s"
    return "a minute" if seconds == 60 else f"{seconds // 60} minutes"
