"""Budget lines of a model request: account, limit, and the notice in the chat. Pure. Used by `agent`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from gateway.domain.budgets import NEARLY, BudgetLimits, BudgetLine, BudgetUse, Measure
from gateway.domain.ids import Person, SessionId
from gateway.domain.sessions import SessionKind
from gateway.domain.text import as_code
from gateway.system.figures import money

SESSION_KEPT = timedelta(days=90)
"""Time after its last request for which the use of a session is stored."""
RESETS = "00:00 UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spender:
    """Person and session that a model request counts for."""

    person: Person
    """Requester of the root's turn: the owner's name, else the principal."""
    session: SessionId
    """Root of the session that asks."""
    epoch: int
    """Epoch of that root: `/new` begins a new account."""
    kind: SessionKind
    """Kind of that root."""


def person_account(person: Person, day: date) -> str:
    """Return the account of a person on a day."""
    return f"{day.isoformat()} {person}"


def session_account(session: SessionId, epoch: int) -> str:
    """Return the account of a session's present history."""
    return f"session {session} {epoch}"


def lines_of(limits: BudgetLimits, spender: Spender, day: date, currency: str) -> tuple[BudgetLine, ...]:
    """Return the budgets that a request counts against; none without a limit."""
    return (*_of_person(limits, spender, day, currency), *_of_session(limits, spender, currency))


def said(limit: int, measure: Measure, currency: str) -> str:
    """Return an amount with its unit: `200,000 tokens`, `$5.00`."""
    return f"{limit:,} tokens" if measure is Measure.TOKENS else money(limit, currency)


def budget_text(
    uses: Sequence[BudgetUse], limits: BudgetLimits, spender: Spender, day: date, currency: str, *, everybody: bool
) -> str:
    """Return the use of the person's and the session's budgets in lines, and of `everybody` with an account today.

    Empty without a budget.
    """
    used = {(one.account, one.measure): one.used for one in uses}
    lines = lines_of(limits, spender, day, currency)
    rows = [_row(line, used.get((line.account, line.measure), 0), currency, spender) for line in lines]
    if everybody:
        today = f"{day.isoformat()} "
        names = sorted({one.account.removeprefix(today) for one in uses if one.account.startswith(today)})
        for name in names:
            other = replace(spender, person=Person(name))
            theirs = _of_person(limits, other, day, currency) if name != spender.person else ()
            rows += [_row(line, used.get((line.account, line.measure), 0), currency, other) for line in theirs]
    return "\n".join(["Budgets:", "", *rows]) if rows else ""


def _row(line: BudgetLine, used: int, currency: str, spender: Spender) -> str:
    whose = f"this session, until {as_code('/new')}" if line.account.startswith("session ") else as_code(spender.person)
    until = "" if line.account.startswith("session ") else f" today, until {RESETS}"
    percent = used * 100 // line.limit
    amount = said(used, line.measure, currency).removesuffix(" tokens")
    return f"- {whose}{until}: {amount} of {said(line.limit, line.measure, currency)} ({percent} %)"


def _of_person(limits: BudgetLimits, spender: Spender, day: date, currency: str) -> Iterator[BudgetLine]:
    allowance = limits.people.get(spender.person, limits.person)
    direct = spender.kind is not SessionKind.NON_MAIN
    who = "You have" if direct else f"{as_code(spender.person)} has"
    for measure in Measure:
        if limit := allowance.of(measure):
            amount = said(limit, measure, currency)
            yield BudgetLine(
                account=person_account(spender.person, day),
                measure=measure,
                limit=limit,
                nearly=f"{who} used {NEARLY} % of today's {amount}. They reset at {RESETS}.",
                ended=f"{who} used all of today's {amount}. They reset at {RESETS}; no model is asked before.",
            )


def _of_session(limits: BudgetLimits, spender: Spender, currency: str) -> Iterator[BudgetLine]:
    resetter = "An owner can begin" if spender.kind is SessionKind.NON_MAIN else "You can begin"
    for measure in Measure:
        if limit := limits.session.of(measure):
            amount = said(limit, measure, currency)
            yield BudgetLine(
                account=session_account(spender.session, spender.epoch),
                measure=measure,
                limit=limit,
                kept_for=SESSION_KEPT,
                nearly=f"This session has used {NEARLY} % of its {amount}. {resetter} a new history with `/new`.",
                ended=f"This session has used all of its {amount}. {resetter} a new history with `/new`.",
            )
