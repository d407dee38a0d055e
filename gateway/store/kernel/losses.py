"""Transitions after a store lost changes that it had acknowledged. Used by the store on Redis, and by each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.domain.ids import OwnerName, Principal
from gateway.domain.nodes import Loss
from gateway.domain.steps import StepState
from gateway.domain.waits import WaitState
from gateway.store.codec import dump_json, from_us, load_json, to_us
from gateway.store.constants import AT_ONCE
from gateway.store.kernel import turns
from gateway.store.kernel.outbox import tell_owners
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import Fact
from gateway.store.kernel.sweeps import begin_life, expire_waits, void_approvals

LOSS = ("gateway", "loss")
"""Fact about the last loss of this store."""


def taking_back(life: int, revisions: int) -> list[Callable[[Part], int]]:
    """Return the transitions with which a new life begins, in their order. Each is repeated until it returns 0.

    What was approved may have run, and what is open may have been decided: neither is known any more.
    """
    return [lambda part: _record(part, life, revisions), begin_life, ask_anew, expire_waits, void_approvals]


def _record(part: Part, life: int, revisions: int) -> int:
    """Note a loss, once for each life."""
    known = _known(part)
    if known is None or known["life"] != life:
        every = revisions + (0 if known is None else known["every"])
        row = {"life": life, "revisions": revisions, "every": every, "at": to_us(part.now), "told": False}
        part.facts.put(LOSS, Fact(dump_json(row)))
    return 0


def ask_anew(part: Part) -> int:
    """Ask open approvals anew: each may have been decided, and its cards may say so. Return how many."""
    asked = part.index.asked_waits()[:AT_ONCE]
    for id_ in asked:
        wait = turns.set_wait(part, id_, state=WaitState.SUPERSEDED)
        part.set_step(wait.turn, wait.n, state=StepState.PLANNED, asked_anew=True)
        turns.wake(part, wait.turn)
    return len(asked)


def tell_loss(part: Part, owners: Mapping[OwnerName, Sequence[Principal]]) -> Loss | None:
    """Return what this store lost last. The owners are told of it once."""
    known = _known(part)
    if known is None:
        return None
    loss = Loss(life=known["life"], revisions=known["revisions"], every=known["every"], at=from_us(known["at"]))
    if not known["told"]:
        part.facts.put(LOSS, Fact(dump_json(known | {"told": True})))
        tell_owners(part, f"loss/{loss.life}", loss.sentence, owners, None)
    return loss


def _known(part: Part) -> dict[str, Any] | None:
    fact = part.facts.get(LOSS)
    return None if fact is None else load_json(fact.value)
