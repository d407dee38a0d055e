"""Budgets: tokens and money that a person may use in a day, or a session in its history. Reserved before a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from gateway.domain.messages import Conversation

NEARLY = 80
"""Percent of a budget at which its person gets a notice."""
ALL = 100


class Measure(StrEnum):
    """Unit of a budget."""

    TOKENS = "tokens"
    MONEY = "money"
    """Millionths of the configured currency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Amounts of a budget; 0 is no limit."""

    tokens: int = 0
    micros: int = 0

    def of(self, measure: Measure) -> int:
        """Return the limit in this unit; 0 without one."""
        return self.tokens if measure is Measure.TOKENS else self.micros


NO_LIMIT = Allowance()


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimits:
    """Configured budgets."""

    person: Allowance = NO_LIMIT
    """Budget of one person for one day (UTC), sub-sessions included."""
    session: Allowance = NO_LIMIT
    """Budget of one session and its sub-sessions, until its history is reset."""
    people: Mapping[str, Allowance] = field(default_factory=dict[str, Allowance])
    """Budgets of single persons, in place of `person`: by owner's name or principal."""

    @property
    def any(self) -> bool:
        """Return whether there is any budget."""
        return any(one != NO_LIMIT for one in (self.person, self.session, *self.people.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """One budget that a model request counts against."""

    account: str
    """Whose it is and for how long, such as `2026-11-25 ann`. The use of an account only grows."""
    measure: Measure
    limit: int
    opening: int = 0
    """Use before the account was first stored, from the books."""
    kept_for: timedelta = timedelta(days=2)
    """Time after its last use for which the account is stored."""
    nearly: str = ""
    """Text for the chat at 80 %."""
    ended: str = ""
    """Text for the chat when all is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Budgets of one model request, and what it may use as estimated before."""

    lines: tuple[BudgetLine, ...]
    tokens: int
    micros: int
    place: Conversation | None = None
    """Conversation that gets its notices; None: none."""

    def of(self, measure: Measure) -> int:
        """Return the estimate in this unit."""
        return self.tokens if measure is Measure.TOKENS else self.micros


class ReserveOutcome(StrEnum):
    """Result of a reservation."""

    RESERVED = "reserved"
    BUSY = "busy"
    """The remainder is reserved by requests under way; some of it may become free."""
    SPENT = "spent"
    """All of a budget is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Result of a reservation, with the budget that refused it."""

    outcome: ReserveOutcome
    line: BudgetLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """Use of one account."""

    account: str
    measure: Measure
    used: int
