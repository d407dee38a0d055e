"""Transitions after a store lost changes that it had acknowledged. Used by the store on Redis, and by each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gateway.domain.ids import OwnerName, Principal
from gateway.domain.nodes import Loss
from gateway.domain.steps import StepState
from gateway.domain.turns import TurnState
from gateway.domain.waits import WaitState
from gateway.store.codec import dump_json, from_us, load_json, to_us
from gateway.store.constants import AT_ONCE
from gateway.store.kernel import turns
from gateway.store.kernel.outbox import tell_owners
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import Fact, TurnRow
from gateway.store.kernel.sweeps import begin_life, expire_waits, void_approvals

LOSS = ("gateway", "loss")
"""Fact about the last loss of this store."""
EVERY = 1_000_000_000
"""More turns than a store holds."""


def taking_back(life: int, revisions: int) -> list[Callable[[Part], int]]:
    """Return the transitions with which a new life begins, in their order. Each is repeated until it returns 0.

    What was planned or approved may have run, and what is open may have been decided: none of it is known any more.
    """
    record = partial(_record, life=life, revisions=revisions)
    return [record, begin_life, doubt_calls, ask_anew, expire_waits, void_approvals]


def _record(part: Part, *, life: int, revisions: int) -> int:
    """Note a loss, once for each life."""
    known = _known(part)
    if known is None or known["life"] != life:
        every = revisions + (0 if known is None else known["every"])
        row = {"life": life, "revisions": revisions, "every": every, "at": to_us(part.now), "told": False}
        part.facts.put(LOSS, Fact(dump_json(row)))
    return 0


def count_again(part: Part, *, life: int, revisions: int) -> int:
    """Raise the count of the loss before a life to what a node knows that came later. The owners get a notice."""
    known = _known(part)
    if known is not None and known["life"] == life and known["revisions"] < revisions:
        every = known["every"] + revisions - known["revisions"]
        more = {"revisions": revisions, "every": every, "told": False, "again": known["told"] or _is_again(known)}
        part.facts.put(LOSS, Fact(dump_json(known | more)))
    return 0


def doubt_calls(part: Part) -> int:
    """Take planned calls for started ones, whose holder judges them by their effect. Return how many turns had some.

    A call without an approval starts with one row, and that row may be lost. No turn is held. A call asked again
    stays planned: a person decides about it.
    """
    sessions = dict.fromkeys(part.turns[one].turn.session for one in part.index.ready_turns(part.now, EVERY))
    rows = [part.turns[turn] for session in sessions for turn in turns.unended(part.sessions[session])]
    doubted = [(row, calls) for row in rows if (calls := _in_doubt(part, row))][:AT_ONCE]
    for row, calls in doubted:
        for n in calls:
            part.set_step(row.turn.id, n, state=StepState.STARTED, fence=row.fence)
    return len(doubted)


def _in_doubt(part: Part, row: TurnRow) -> list[int]:
    steps = turns.steps_of(part, row) if row.turn.state is TurnState.QUEUED else []
    return [step.n for step in steps if step.state is StepState.PLANNED and not step.asked_anew]


def ask_anew(part: Part) -> int:
    """Ask open approvals again: each may have been decided, and its cards may show that. Return how many."""
    asked = part.index.asked_waits()[:AT_ONCE]
    for id_ in asked:
        wait = turns.set_wait(part, id_, state=WaitState.SUPERSEDED)
        part.set_step(wait.turn, wait.n, state=StepState.PLANNED, asked_anew=True)
        turns.wake(part, wait.turn)
    return len(asked)


def tell_loss(part: Part, owners: Mapping[OwnerName, Sequence[Principal]]) -> Loss | None:
    """Return this store's last loss. The owners get one notice."""
    known = _known(part)
    if known is None:
        return None
    loss = Loss(
        life=known["life"],
        revisions=known["revisions"],
        every=known["every"],
        at=from_us(known["at"]),
        is_again=_is_again(known),
    )
    if not known["told"]:
        part.facts.put(LOSS, Fact(dump_json(known | {"told": True})))
        tell_owners(part, f"loss/{loss.life}/{loss.revisions}", loss.sentence, owners, None)
    return loss


def _is_again(known: Mapping[str, Any]) -> bool:
    return known.get("again", False)


def _known(part: Part) -> dict[str, Any] | None:
    fact = part.facts.get(LOSS)
    return None if fact is None else load_json(fact.value)
