"""Transitions of budgets: a model request reserves before it is made, and its answer settles with what it used.

An account is a fact, as is the reservation of each turn. A reservation counts while its turn is held under the fence
that made it; so a crash, a failure and a lost lease need no release.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

from gateway.domain.budgets import ALL, NEARLY, BudgetLine, BudgetUse, Measure, Reservation, Reserved, ReserveOutcome
from gateway.domain.ids import SessionId, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Usage
from gateway.domain.turns import Lease
from gateway.store.codec import dump_conversation, load_conversation, to_us
from gateway.store.constants import HELD
from gateway.store.kernel import turns
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import Fact
from gateway.store.kernel.slots import add_slot

ACCOUNTS, RESERVATIONS = "budget", "reservation"
"""Namespaces of facts: the use of each account, and the lines of each open reservation."""
RESERVED_FOR = timedelta(days=1)
"""Time for which a reservation is stored that nobody settles."""
SUMMARY_FOR = timedelta(minutes=10)
"""Time for which the reservation of a request without a lease counts."""
NOTHING = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hold:
    """Part of an account that a request under way has reserved."""

    amount: int
    fence: int
    """Fence of its turn; 0 for a request without a lease."""
    until_us: int
    """End of one without a lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Account:
    """Stored account."""

    used: int = 0
    most: int = 0
    """Most that one request has used: later ones reserve as much."""
    told: int = 0
    """Percent of the last notice to the person."""
    holds: Mapping[str, _Hold]
    """Reservations by holder."""


def reserve(part: Part, lease: Lease | None, wanted: Reservation, holder: str) -> Reserved:
    """Reserve what a request may use in each of its budgets, or in none of them."""
    fence = 0 if lease is None else turns.held(part, lease).fence
    until = 0 if lease is not None else to_us(part.now + SUMMARY_FOR)
    accounts = [(line, _live(part, _load(part, line), holder)) for line in wanted.lines]
    for line, account in accounts:
        if account.used >= line.limit:
            return Reserved(outcome=ReserveOutcome.SPENT, line=line)
    amounts = [max(wanted.of(line.measure), account.most) for line, account in accounts]
    holds = [_Hold(amount=amount, fence=fence, until_us=until) for amount in amounts]
    for (line, account), hold in zip(accounts, holds, strict=True):
        others = sum(one.amount for one in account.holds.values())
        if others and account.used + others + hold.amount > line.limit:
            return Reserved(outcome=ReserveOutcome.BUSY, line=line)
    for (line, account), hold in zip(accounts, holds, strict=True):
        _store(part, line, replace(account, holds={**account.holds, holder: hold}))
    part.facts.put((RESERVATIONS, holder), Fact(_dump(wanted), part.now + RESERVED_FOR))
    return Reserved(outcome=ReserveOutcome.RESERVED)


def settle(part: Part, holder: str, usage: Usage, session: SessionId | None = None) -> None:
    """Replace the reservation by the request's usage, and notify its person at 80 % and at the end, once.

    A model without figures counts as estimated. Without a reservation nothing is settled.
    """
    known = part.facts.get((RESERVATIONS, holder))
    if known is None:
        return
    part.facts.delete((RESERVATIONS, holder))
    wanted = _load_reservation(known.value)
    said: list[str] = []
    for line in wanted.lines:
        account = _load(part, line)
        hold = account.holds.get(holder)
        amount = _amount(usage, line.measure) if usage != NOTHING else hold.amount if hold is not None else 0
        rest = {one: held for one, held in account.holds.items() if one != holder}
        account = replace(account, used=account.used + amount, most=max(account.most, amount), holds=rest)
        percent = ALL if account.used >= line.limit else NEARLY if account.used * ALL >= line.limit * NEARLY else 0
        if percent > account.told and wanted.place is not None:
            said.append(line.ended if percent == ALL else line.nearly)
        if wanted.place is not None or percent < account.told:  # lower than before: the limit was raised
            account = replace(account, told=percent)
        _store(part, line, account)
    if wanted.place is not None:
        for text in said:
            add_slot(part, NewSlot(conversation=wanted.place, kind=SlotKind.NOTE, text=text), session, None)


def uses(facts: Sequence[tuple[str, Fact]]) -> list[BudgetUse]:
    """Return the use of all stored accounts."""
    found: list[BudgetUse] = []
    for key, fact in facts:
        account, _, measure = key.rpartition(" ")
        found.append(BudgetUse(account=account, measure=Measure(measure), used=_parse(fact.value).used))
    return found


def _amount(usage: Usage, measure: Measure) -> int:
    return usage.input_tokens + usage.output_tokens if measure is Measure.TOKENS else usage.cost_micros


def _live(part: Part, account: _Account, holder: str) -> _Account:
    """Return the account without the holder's own reservation and those of turns that nobody works at any longer."""
    holds = {one: hold for one, hold in account.holds.items() if one != holder and _is_live(part, one, hold)}
    return replace(account, holds=holds)


def _is_live(part: Part, holder: str, hold: _Hold) -> bool:
    if not hold.fence:
        return hold.until_us > to_us(part.now)
    row = part.turns.get(TurnId(holder))
    return row is not None and row.fence == hold.fence and row.turn.state in HELD


# --- stored forms ---------------------------------------------------------------------------


def _key(line: BudgetLine) -> tuple[str, str]:
    return (ACCOUNTS, f"{line.account} {line.measure}")


def _load(part: Part, line: BudgetLine) -> _Account:
    fact = part.facts.get(_key(line))
    if fact is None or (fact.until is not None and fact.until <= part.now):
        return _Account(used=line.opening, holds={})
    return _parse(fact.value)


def _store(part: Part, line: BudgetLine, account: _Account) -> None:
    holds = {holder: [hold.amount, hold.fence, hold.until_us] for holder, hold in account.holds.items()}
    value = {"used": account.used, "most": account.most, "told": account.told, "holds": holds}
    part.facts.put(_key(line), Fact(json.dumps(value), part.now + line.kept_for))


def _parse(text: str) -> _Account:
    value = cast("dict[str, Any]", json.loads(text))
    holds = {
        holder: _Hold(amount=amount, fence=fence, until_us=until)
        for holder, (amount, fence, until) in value["holds"].items()
    }
    return _Account(used=value["used"], most=value["most"], told=value["told"], holds=holds)


def _dump(wanted: Reservation) -> str:
    lines = [
        [one.account, one.measure.value, one.limit, round(one.kept_for.total_seconds()), one.nearly, one.ended]
        for one in wanted.lines
    ]
    place = None if wanted.place is None else dump_conversation(wanted.place)
    return json.dumps({"lines": lines, "place": place})


def _load_reservation(text: str) -> Reservation:
    value = cast("dict[str, Any]", json.loads(text))
    lines = [
        BudgetLine(
            account=account,
            measure=Measure(measure),
            limit=limit,
            kept_for=timedelta(seconds=kept_s),
            nearly=nearly,
            ended=ended,
        )
        for account, measure, limit, kept_s, nearly, ended in value["lines"]
    ]
    place: Conversation | None = None if value["place"] is None else load_conversation(value["place"])
    return Reservation(lines=tuple(lines), tokens=0, micros=0, place=place)
