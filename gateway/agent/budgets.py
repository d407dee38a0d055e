"""Budgets of a node's turns: reserve before the model is asked. Used by `turn` and `compaction`.

The answer settles the reservation in the transition that stores it (decision 53).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date

from gateway.agent.window import chars_of_tools
from gateway.domain.budgets import BudgetLimits, BudgetLine, Measure, Reservation, ReserveOutcome
from gateway.domain.ids import Person, Principal
from gateway.domain.messages import Conversation
from gateway.domain.prompts import ModelRequest
from gateway.domain.sessions import Session, works_in
from gateway.domain.turns import Lease
from gateway.domain.views import Spent, TurnView
from gateway.errors import OverBudget
from gateway.policy.budgets import Spender, lines_of, person_account
from gateway.policy.routing import AllowedPeople
from gateway.ports import Budgets, Clock, Queries, UsageStore

CHARS_A_TOKEN = 2.5
"""Characters per token of an estimate: rather too many tokens than too few."""
ANSWER_TOKENS = 4_096
"""Tokens that an answer is estimated to have."""
AGAIN_S = 1.0
"""Seconds between attempts while other requests have reserved what is left; an answer here wakes at once."""


@dataclass(slots=True, kw_only=True)
class BudgetKeeper:
    """Reserver of budgets for model requests."""

    store: Budgets
    usage: UsageStore
    queries: Queries
    people: AllowedPeople
    clock: Clock
    limits: BudgetLimits = field(default_factory=BudgetLimits)
    dearest: tuple[float, float] = (0.0, 0.0)
    """Highest prices of a million tokens among all models: read and written."""
    currency: str = "USD"
    _opened: dict[str, int] = field(default_factory=dict[str, int])
    """Accounts whose use this node has read from the books, with the day's ordinal."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a reservation of this node ended; then there is a new one."""

    async def reserve(self, view: TurnView, lease: Lease, request: ModelRequest, chars: int) -> None:
        """Reserve for a turn's request of so many characters. Raises `OverBudget` when a budget is used up.

        Waits while what is left is reserved by requests under way.
        """
        if not self.limits.any:
            return
        place = view.session.lineage.conversation if view.session.lineage else view.turn.conversation
        wanted = await self._wanted(view.session, view.turn.principal, _size(request, chars), place)
        while wanted.lines:
            changed = self._changed
            found = await self.store.reserve(lease, wanted)
            if found.outcome is ReserveOutcome.RESERVED:
                return
            if found.outcome is ReserveOutcome.SPENT and found.line is not None:
                raise OverBudget(found.line.ended)
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await changed.wait()

    def settled(self) -> None:
        """Wake the requests that wait: a reservation of this node may have ended."""
        if self.limits.any:
            self._changed.set()
            self._changed = asyncio.Event()

    async def allows_summary(self, session: Session, who: Principal, request: ModelRequest, chars: int) -> bool:
        """Reserve for a summary. Return False, and reserve nothing, when it does not fit now."""
        if not self.limits.any:
            return True
        wanted = await self._wanted(session, who, _size(request, chars), None)
        if not wanted.lines:
            return True
        return (await self.store.reserve_summary(session.id, wanted)).outcome is ReserveOutcome.RESERVED

    async def _wanted(self, session: Session, who: Principal, chars: int, place: Conversation | None) -> Reservation:
        read = round(chars / CHARS_A_TOKEN)
        today = self.clock.now().astimezone(UTC).date()
        spender = await self._spender(session, who)
        lines = lines_of(self.limits, spender, today, self.currency)
        return Reservation(
            lines=await self._opened_with(lines, spender.person, today),
            tokens=read + ANSWER_TOKENS,
            micros=round(read * self.dearest[0] + ANSWER_TOKENS * self.dearest[1]),
            place=place,
        )

    async def _spender(self, session: Session, who: Principal) -> Spender:
        """Return the spender of a request; for a child, that of its root, whose turn has the same requester."""
        root = session if session.lineage is None else await self.queries.session(works_in(session))
        return Spender(
            person=Person(self.people.owner_of(who) or who),
            session=works_in(session),
            epoch=session.epoch if root is None else root.epoch,
            kind=session.root_kind,
        )

    async def _opened_with(self, lines: tuple[BudgetLine, ...], person: Person, today: date) -> tuple[BudgetLine, ...]:
        """Return the lines with what the books say of a person's day, where this node has not read it yet.

        Budgets may be configured in the middle of a day.
        """
        account = person_account(person, today)
        if self._opened.get(account) == today.toordinal() or not any(line.account == account for line in lines):
            return lines
        used = used_by(await self.usage.spent(today), self.accounts_of(person), today)
        self._opened = {one: day for one, day in self._opened.items() if day == today.toordinal()}
        self._opened[account] = today.toordinal()
        return tuple(replace(line, opening=used[line.measure]) if line.account == account else line for line in lines)

    def accounts_of(self, person: Person) -> frozenset[Principal]:
        """Return the principals of a person."""
        owners = {str(name): who for name, who in self.people.owners.items()}
        return owners.get(person, frozenset([Principal(person)]))


def used_by(spent: Collection[Spent], principals: Collection[Principal], today: date) -> Mapping[Measure, int]:
    """Return the usage of these principals on a day."""
    theirs = [one.usage for one in spent if one.day == today and one.principal in principals]
    return {
        Measure.TOKENS: sum(one.input_tokens + one.output_tokens for one in theirs),
        Measure.MONEY: sum(one.cost_micros for one in theirs),
    }


def _size(request: ModelRequest, chars: int) -> int:
    return len(request.system) + chars_of_tools(request.tools) + chars
