"""Accounts, Node and Views in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from gateway.errors import Forbidden
from gateway.model.ids import NodeId, OwnerName, Principal, SessionId, TurnId, WaitId
from gateway.model.sessions import Session, TurnKind, TurnState
from gateway.model.slots import Slot, SlotState
from gateway.model.views import Counts, Rows, SessionLine, TurnView, Whereabouts
from gateway.model.waits import Wait, WaitKind, WaitState
from gateway.store.memory.turns import Turns

FAILURES_KEPT = timedelta(minutes=15)
FAILURES_ALLOWED = 10


class MemoryPeople(Turns):
    """`ports.Accounts` and `ports.Node`."""

    async def add_code(self, owner: OwnerName, code_sha: str, ttl: timedelta) -> None:
        """Store a sign-in code."""
        with self.transition() as now:
            self.codes[code_sha] = (owner, now + ttl)

    async def redeem_code(self, code_sha: str, cookie_sha: str, ttl: timedelta, source: str) -> OwnerName | None:
        """Turn a code into a cookie, once."""
        with self.transition() as now:
            failures = [at for at in self.failures.get(source, []) if now - at < FAILURES_KEPT]
            if len(failures) >= FAILURES_ALLOWED:
                raise Forbidden("Too many failed sign-ins.", cure="Wait 15 minutes, then use a new link.")
            owner, until = self.codes.pop(code_sha, (None, now))
            if owner is None or until <= now:
                self.failures[source] = [*failures, now]
                return None
            self.cookies[cookie_sha] = (owner, now + ttl)
            return owner

    async def signed_in(self, cookie_sha: str) -> OwnerName | None:
        """Whose cookie this is."""
        owner, until = self.cookies.get(cookie_sha, (None, self.clock.now()))
        return owner if owner is not None and until > self.clock.now() else None

    async def sign_out(self, cookie_sha: str) -> None:
        """Forget a cookie."""
        with self.transition():
            self.cookies.pop(cookie_sha, None)

    async def saw_page(self, owner: OwnerName) -> None:
        """Remember that the page is open."""
        with self.transition() as now:
            self.page_seen[owner] = now

    async def whereabouts(self, owner: OwnerName, principals: Sequence[Principal]) -> Whereabouts:
        """Where these people can be reached."""
        direct = {p: self.people[p] for p in principals if p in self.people}
        return Whereabouts(direct=direct, page_seen_at=self.page_seen.get(owner))

    async def alive(self, node: NodeId) -> None:
        """Remember that this node lives."""
        with self.transition() as now:
            self.alive_at = now

    async def last_alive(self) -> datetime | None:
        """When a node last said so."""
        return self.alive_at

    async def hold(self, name: str, node: NodeId, ttl: timedelta) -> bool:
        """Take or renew a named lease."""
        with self.transition() as now:
            holder, until = self.holds.get(name, (node, now))
            if holder != node and until > now:
                return False
            self.holds[name] = (node, now + ttl)
            return True


class MemoryNotes(Turns):
    """`ports.Notes`."""

    async def note(self, room: str, key: str, value: str, ttl: timedelta | None = None) -> None:
        """Store a small fact; forget the room's expired ones."""
        with self.transition() as now:
            self.rooms[room] = self._lasting(room, now) | {key: (value, None if ttl is None else now + ttl)}

    async def notes(self, room: str) -> Mapping[str, str]:
        """The facts of a room."""
        found = self._lasting(room, self.clock.now())
        return {key: found[key][0] for key in sorted(found)}

    def _lasting(self, room: str, now: datetime) -> dict[str, tuple[str, datetime | None]]:
        facts = self.rooms.get(room, {}).items()
        return {key: (value, until) for key, (value, until) in facts if until is None or until > now}


class MemoryViews(Turns):
    """`ports.Views`."""

    async def session(self, session: SessionId) -> Session | None:
        """One session."""
        row = self.all_sessions.get(session)
        return row.session if row else None

    async def sessions(self, limit: int = 200, ended: int = 50) -> Sequence[SessionLine]:
        """Roots with their live children, and some that have ended, most recently active first."""
        rows = sorted(self.all_sessions.values(), key=lambda row: (row.session.active_at, row.rev), reverse=True)
        roots = {row.session.id for row in [row for row in rows if row.session.lineage is None][:limit]}
        over = [row for row in rows if row.session.lineage is not None and row.session.id not in self.live_children]
        listed = roots | {row.session.id for row in over[:ended]}
        for row in self.live_children.values():
            if row.session.lineage is not None and row.session.lineage.root in roots:
                listed.add(row.session.id)
        waiting = Counter(w.session for w in await self.open_approvals(limit=len(self.undecided)))
        return [self._line(row.session, row.rev, waiting[row.session.id]) for row in rows if row.session.id in listed]

    def _line(self, session: Session, rev: int, waiting: int) -> SessionLine:
        lanes = [self.lane(session.id, kind) for kind in TurnKind]
        states = [row.turn.state for lane in lanes for row in lane.turns.values()]
        return SessionLine(
            session=replace(session, summary=""),
            rev=rev,
            waiting=waiting,
            running=sum(lane.held for lane in lanes),
            queued=states.count(TurnState.QUEUED),
        )

    async def turn(self, turn: TurnId) -> TurnView:
        """One turn with everything stored of it."""
        return self.view_of(self.turn_row(turn))

    async def history(self, session: SessionId, epoch: int, limit: int, *, oldest: bool = False) -> Sequence[TurnView]:
        """The last ended turns, or the first, in the order they ended."""
        return self.history_of(session, epoch, limit, oldest=oldest)

    async def changes(self, session: SessionId, after: int, limit: int) -> Rows:
        """What changed since a revision."""
        rows = sorted((r for r in self.rows.get(session, {}).values() if r.rev > after), key=lambda r: r.rev)
        taken = tuple(rows[:limit])
        rev = taken[-1].rev if taken else after
        return Rows(session=session, rows=taken, rev=rev, more=len(rows) > limit)

    async def older(self, session: SessionId, before: int | None, limit: int) -> Rows:
        """The last rows before a place."""
        known = self.rows.get(session, {}).values()
        rows = sorted((r for r in known if before is None or r.ord < before), key=lambda r: r.ord)
        rev = max((r.rev for r in known), default=0)
        return Rows(session=session, rows=tuple(_last(rows, limit)), rev=rev, more=len(rows) > limit)

    async def wait(self, wait: WaitId) -> Wait | None:
        """One wait."""
        return self.waits.get(wait)

    async def open_approvals(self, limit: int = 200) -> Sequence[Wait]:
        """Open approvals, oldest first."""
        undecided = self.undecided.values()
        found = [w for w in undecided if w.kind is WaitKind.APPROVAL and w.state is WaitState.OPEN]
        return found[:limit]

    async def card_slots(self, wait: WaitId) -> Sequence[Slot]:
        """The card slots that show an approval."""
        return [self.slots[slot].slot for slot in self.cards.get(wait, ())]

    async def counts(self) -> Counts:
        """Figures of the store."""
        rows = self.unended.values()
        due = [row.slot.due_at for here in self.unsent.values() for row in here.values() if row.sending_since is None]
        return Counts(
            queued_turns=sum(1 for row in rows if row.turn.state is TurnState.QUEUED),
            running_turns=len(self.held_turns),
            parked_turns=sum(1 for row in rows if row.turn.state is TurnState.PARKED),
            open_waits=sum(1 for wait in self.undecided.values() if wait.state is WaitState.OPEN),
            due_slots=len(due),
            dead_slots=sum(1 for row in self.slots.values() if row.slot.state is SlotState.DEAD),
            oldest_queued_at=min((row.queued_at for row in rows if row.turn.state is TurnState.QUEUED), default=None),
            oldest_due_at=min(due, default=None),
        )


T = TypeVar("T")


def _last(rows: Sequence[T], limit: int) -> Sequence[T]:
    return rows[max(0, len(rows) - limit) :]
