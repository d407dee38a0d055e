"""Workflow types: a graph of steps that sub-sessions do, and the pure check of its shape."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, cast

from gateway.domain.children import NewChild
from gateway.domain.ids import SessionId

STEPS_AT_MOST = 50
"""Steps of one workflow."""
TASKS_CHARS = 32_768
"""Characters of all tasks together: the card shows each of them whole."""
NAME_CHARS = 40
"""Characters of a step's name."""
_PLACEHOLDER = re.compile(r"\{\{\s*([^{}]{1,80}?)\s*\}\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStep:
    """One step as a call declares it. Empty fields inherit from the session that calls."""

    name: str
    task: str
    """Text with placeholders such as `{{plan}}` for the results of needed steps."""
    needs: tuple[str, ...] = ()
    agent: str = ""
    preset: str = ""
    tools: tuple[str, ...] | None = None
    tokens: int = 0
    """Maximum tokens; 0: an equal part of the rest of the turn."""
    timeout_s: float | None = None
    """Maximum seconds of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStep:
    """One step as the store keeps it: the child that will do it."""

    name: str
    needs: tuple[str, ...]
    child: NewChild


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStanding:
    """One step of a workflow that was begun, for people."""

    name: str
    state: str
    """waiting, running, done, failed, stopped or not run."""
    child: SessionId


WORKFLOW = "workflow"
"""Key in the payload of a wait on a workflow: its steps, in order."""


def steps_of(payload: Mapping[str, Any]) -> list[StepStanding]:
    """Return the states of a stored workflow's steps, in order; none for the payload of any other wait."""
    rows = payload.get(WORKFLOW)
    if not isinstance(rows, list):
        return []
    found = cast("list[Mapping[str, Any]]", rows)
    return [
        StepStanding(name=str(one["name"]), state=str(one["state"]), child=SessionId(str(one["child"]["session"])))
        for one in found
    ]


def inputs_of(task: str) -> tuple[str, ...]:
    """Return the names in the placeholders of a task, each once, in order."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(task)))


def with_inputs_named(task: str) -> str:
    """Return the task with words in place of its placeholders; the results themselves are quoted below it."""
    return _PLACEHOLDER.sub(lambda found: f"[result of {found[1]}, below]", task)


def fault_of(steps: Sequence[WorkflowStep]) -> str:
    """Return why a workflow cannot run, with the cure; empty when it can."""
    if not 1 <= len(steps) <= STEPS_AT_MOST:
        return f"A workflow has 1 to {STEPS_AT_MOST} steps, and this has {len(steps):,}. Split or merge some"
    size = sum(len(step.task) for step in steps)
    if size > TASKS_CHARS:
        return f"The tasks have {size:,} characters, and {TASKS_CHARS:,} is the limit. Shorten them"
    names = [step.name for step in steps]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        return f"Two steps are called {twice!r}. Give each its own name"
    wrong = (_fault_of_step(step, names) for step in steps)
    return next(filter(None, wrong), "") or _circle(steps)


def _fault_of_step(step: WorkflowStep, names: Sequence[str]) -> str:
    if len(step.name) > NAME_CHARS or not _NAME.fullmatch(step.name):
        return f"The name {step.name[:NAME_CHARS]!r} is not valid. Use at most {NAME_CHARS} letters, digits, _ . and -"
    if not step.task.strip():
        return f"The task of the step {step.name!r} is empty. Say what is to be done"
    missing = next((need for need in step.needs if need not in names), None)
    if missing is not None:
        return f"The step {step.name!r} needs {missing[:NAME_CHARS]!r}, which is no step. Add it or leave it out"
    unneeded = next((name for name in inputs_of(step.task) if name not in step.needs), None)
    if unneeded is None:
        return ""
    wanted = unneeded[:NAME_CHARS]
    return f"The task of the step {step.name!r} has {{{{{wanted}}}}}. Add {wanted!r} to its needs, or take it out"


def _circle(steps: Sequence[WorkflowStep]) -> str:
    try:
        TopologicalSorter({step.name: step.needs for step in steps}).prepare()
    except CycleError as error:
        circle = " needs ".join(reversed(error.args[1]))
        return f"The steps go in a circle: {circle}. Take out one of these needs"
    return ""


def in_words(steps: Sequence[WorkflowStep]) -> str:
    """Return the graph on one line, for its card."""
    lines = (f"{step.name} after {', '.join(step.needs)}" if step.needs else step.name for step in steps)
    noun = "sub-session" if len(steps) == 1 else "sub-sessions"
    return f"{len(steps)} {noun}: {'; '.join(lines)}"
