"""Answers to /why: who allowed a call and why it ran, why another one did not, and how a call would be decided.

Used by `control_replies`. Reads the rows of the session, the audit and the grants; runs nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from gateway.domain.audit import AuditRow, StartBasis
from gateway.domain.grants import CallPlace, Grant
from gateway.domain.ids import SessionId
from gateway.domain.messages import Inbound
from gateway.domain.sessions import Session, SessionKind, works_in
from gateway.domain.steps import Step, StepKind, StepState
from gateway.domain.text import as_code, one_line
from gateway.domain.tools import ResultStatus
from gateway.domain.waits import Wait, WaitKind, WaitState
from gateway.policy.grants import holds, of_history
from gateway.ports import Audit, Clock, Grants, Queries
from gateway.sandbox import Containment
from gateway.system.redaction import Redactor
from gateway.toolcalls.explanation import Explainer, Explanation
from gateway.toolcalls.registry import Registry

CALLS_LISTED = 9
"""Last calls that have a number."""
ROWS_READ = 500
"""Rows of the session that are searched for them."""
SHOWN_CHARS = 120
"""Characters of a call's arguments in a line."""
REMOVED_CALLS = (
    "Nothing is kept here that was called. Older messages and their calls were removed; "
    "each start is in the audit, or in its exports."
)
NO_CALLS = "Nothing was called here yet. Ask how a call would be decided with `/why TOOL TEXT`."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Called:
    """A call with everything that is stored about it."""

    step: Step
    wait: Wait | None
    """Its last approval; None when nobody was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyReplies:
    """Maker of replies to /why."""

    queries: Queries
    audit: Audit
    grants: Grants
    registry: Registry
    containment: Containment
    workspace: Callable[[SessionId], object]
    home: Callable[[], str]
    """Returns the folder of a session."""
    redactor: Redactor
    clock: Clock

    async def reply(self, rest: str, message: Inbound, session: Session, *, owner: bool) -> str:
        """Return the reply. `rest`: nothing, the number of a call, the id of a grant, or a tool and its text.

        `owner`: an owner asks, and also gets the reason why a tool does not exist here.
        """
        word, _, text = rest.strip().partition(" ")
        if not text and (not word or word.isdecimal()):
            return await self._of_a_call(int(word[:9] or 1), message, session, owner=owner)
        grants = await self._grants(message, session)
        if not text and (grant := next((one for one in grants if one.id == word), None)) is not None:
            return self._line(_grant_text(grant))
        explained = self._explainer(session, grants, owner=owner).explain(word.removeprefix("/"), text)
        return self._explained(self._call(word.removeprefix("/"), text), explained)

    async def explain(self, session: Session, tool: str, text: str) -> Explanation:
        """Return the decision about a call in a session, with its grants for the session. For the control socket."""
        found = of_history(await self.grants.live_grants(), session)
        return self._explainer(session, found, owner=True).explain(tool, text)

    async def _of_a_call(self, number: int, message: Inbound, session: Session, *, owner: bool) -> str:
        calls, removed = await self._calls(session)
        if not calls:
            return REMOVED_CALLS if removed else NO_CALLS
        if not 1 <= number <= len(calls):
            return f"There is no call {number}. The last ones are 1 to {len(calls)}; 1 is the newest."
        called = calls[number - 1]
        lines = [self._title(called), *[self._line(one) async for one in self._why(called, message, session, owner)]]
        others = [f"- `/why {n}`: {self._title(one)}" for n, one in enumerate(calls, 1) if n != number]
        if others and number == 1:
            lines += ["", "Calls before it:", "", *others[:4]]
        return "\n".join(lines)

    async def _calls(self, session: Session) -> tuple[Sequence[_Called], bool]:
        """Return the last calls of a session, newest first, and whether older turns were removed."""
        page = await self.queries.older(session.id, None, ROWS_READ)
        rows = page.rows
        steps = [row.item for row in rows if isinstance(row.item, Step) and row.item.kind is StepKind.TOOL]
        waits = {
            (row.item.turn, row.item.n): row.item
            for row in rows
            if isinstance(row.item, Wait) and row.item.kind is WaitKind.APPROVAL
        }
        found = [_Called(step=step, wait=waits.get((step.turn, step.n))) for step in reversed(steps) if step.call]
        return found[:CALLS_LISTED], page.removed > 0

    async def _why(self, called: _Called, message: Inbound, session: Session, owner: bool) -> AsyncIterator[str]:
        step, wait = called.step, called.wait
        if (outcome := step.hook_outcome) is not None and outcome.arguments is not None:
            yield f"The hook {outcome.by} changed its arguments."
        row = await self.audit.audit_row(step.turn, step.n)
        if row is not None:
            yield await self._allowed_by(row, wait)
        elif step.state is StepState.ASKED or (wait is not None and wait.state is WaitState.OPEN):
            grants = await self._grants(message, session)
            name = step.call.tool if step.call else ""
            found = self._explainer(session, grants, owner=owner).explain(name, step.arguments)
            yield f"It waits for a decision: {found.because}.{f' Rule: {found.rule}.' if found.rule else ''}"
        for line in _end_of(step, wait, ran=row is not None):
            yield line

    async def _allowed_by(self, row: AuditRow, wait: Wait | None) -> str:
        at = _time(row.at)
        match row.basis:
            case StartBasis.APPROVAL:
                when = ""
                if wait is not None and wait.decided_at is not None:
                    when = f" at {_time(wait.decided_at)}, {_seconds(wait.decided_after)} after it was asked"
                return f"It ran at {at}: {row.decided_by} allowed this one call{when} (approval {row.wait})."
            case StartBasis.GRANT:
                live = await self.grants.live_grants()
                grant = next((one for one in live if one.id == row.grant), None)
                about = f" {_grant_text(grant)}" if grant is not None else " It does not hold any more."
                return f"It ran at {at}: the grant {row.grant} allowed it.{about}"
            case StartBasis.RULE:
                return f"It ran at {at}: a rule allowed it, {row.rule}."
            case StartBasis.AGAIN:
                return f"It ran again at {at}, since it was interrupted and may be repeated."
            case StartBasis.SETTINGS:
                return f"It ran at {at}: calls of {row.tool} like this need no approval here, by its settings."

    async def _grants(self, message: Inbound, session: Session) -> list[Grant]:
        """Return the grants that hold for a call of this person here."""
        place = CallPlace(
            histories=((session.id, session.epoch),),
            root_kind=session.root_kind,
            conversation=message.conversation,
            principal=message.principal,
        )
        now = self.clock.now()
        return [one for one in await self.grants.live_grants() if holds(one, place, now)]

    def _explainer(self, session: Session, grants: Sequence[Grant], *, owner: bool) -> Explainer:
        return Explainer(
            tools=self.registry.snapshot(),
            session=session,
            containment=self.containment,
            workspace=lambda: str(self.workspace(works_in(session))),
            home=self.home,
            grants=grants,
            openly=owner or session.kind is SessionKind.MAIN,
        )

    def _explained(self, call: str, found: Explanation) -> str:
        rule = f" Rule: {as_code(found.rule)}." if found.rule and found.rule not in found.because else ""
        steps = [f"{n}. {as_code(self._line(step))}" for n, step in enumerate(found.order, 1)]
        because = self._line(found.because).removesuffix(".")
        return "\n".join([f"{call}: **{found.decision}**: {because}.{rule}", "", *steps])

    def _title(self, called: _Called) -> str:
        step = called.step
        state = step.state.value if step.result is None else step.result.status.value
        name = step.call.tool if step.call else ""
        tool = self.registry.snapshot().get(name)
        text = "" if tool is None else _telling(step.arguments, tool.spec.shows or tool.spec.positional)
        return f"{self._call(name, text or step.arguments.removeprefix('{}'))}: {state}"

    def _call(self, tool: str, text: str) -> str:
        shown = one_line(self.redactor.text(text[: 10 * SHOWN_CHARS]), SHOWN_CHARS)
        return f"{as_code(tool[:40])} {as_code(shown)}" if shown else as_code(tool[:40])

    def _line(self, text: str) -> str:
        return one_line(self.redactor.text(text), 10 * SHOWN_CHARS)


def _telling(arguments: str, name: str | None) -> str:
    """Return the argument that cards show as the code to run, or people type alone; empty when there are others."""
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):
        return ""
    found = cast("dict[str, object]", read).get(name or "") if isinstance(read, dict) else None
    return found if isinstance(found, str) else ""


def _end_of(step: Step, wait: Wait | None, *, ran: bool) -> Iterator[str]:
    """Yield why a call did not run, or how it ended."""
    if step.result is None:
        return
    if not ran and wait is not None and wait.decided_by is not None and wait.state is WaitState.DENIED:
        when = f" at {_time(wait.decided_at)}" if wait.decided_at is not None else ""
        reason = f": {wait.reason}" if wait.reason else ""
        yield f"It did not run: {wait.decided_by} denied it{when}{reason}"
    elif not ran:
        yield f"It did not run ({step.result.code or step.result.status.value}): {step.result.hint}"
    elif step.result.status is not ResultStatus.OK:
        yield f"It ended as {step.result.status.value}. {step.result.hint}"


def _grant_text(grant: Grant) -> str:
    used = f"used {grant.used} times" if grant.used != 1 else "used once"
    return (
        f"Grant {grant.id}: {grant.shown}, given by {grant.granted_by} at {_time(grant.granted_at)} for this "
        f"{grant.place.value}, until {_time(grant.expires_at)}, {used}."
    )


def _seconds(time: timedelta) -> str:
    return f"{time.total_seconds():,.1f} s"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
