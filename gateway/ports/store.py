"""The store, by caller. Every method is one atomic transition, durable when it returns.

Times come from the store's own clock. A write under a lease raises `LeaseLost` when the fence is stale, and then wrote
nothing. `StoreFull` wrote nothing. After a commit the store publishes `Changed`, `TurnsDue`, `SlotsDue` and `TurnWoken`
to `EventBus` as they apply.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Protocol

from gateway.domain.audit import AuditHead, AuditRow, StartedCall
from gateway.domain.ids import NodeId, OwnerName, Principal, SessionId, SlotId, TurnId, WaitId
from gateway.domain.live import LiveEvent
from gateway.domain.messages import Inbound, Press, Refused
from gateway.domain.routes import Accepted, Drop, Route, WhileRunning
from gateway.domain.sessions import Session
from gateway.domain.slots import Slot
from gateway.domain.turns import TurnKind
from gateway.domain.views import Counts, LastContact, Rows, SessionLine, TurnView
from gateway.domain.waits import Pressed, PressVerdict, Wait
from gateway.ports.ingress import Control, Waiting
from gateway.ports.turns import Children, TurnJournal, TurnQueue, UsageStore


class Intake(Protocol):
    """Ingress writes. An event is (channel, account, event_key); a known one writes nothing and says `duplicate`.

    Twice is safe for every method. Called by `intake` only.
    """

    async def accept(
        self, route: Route, message: Inbound, kind: TurnKind, *, running: WhileRunning, say_if_waiting: Waiting | None
    ) -> Accepted:
        """Store the message and its turn; create the session when absent.

        With `message.cut`, the turn cannot be claimed for 1.5 s. The next message of the same principal in the same
        conversation ends that wait. It joins the turn (`Received.continues`) when it is a MODEL message that brings
        nothing but text and, with `follows`, follows the last part directly; if it is cut too, the turn waits again:
        for at most 8 parts, and 6 s from the first one's arrival.

        With `message.album`, the turn waits likewise, 1 s and at most 10 messages. A MODEL message of an album joins
        the album's turn while that was never started. It steers that turn while it is under way, whatever `running`
        says. Both hold only in the same session, by the same principal in the same conversation. Else it starts a turn
        of its own, and takes those along that were said beside the bot (`drop`). A command never joins.

        With STEER, a MODEL message joins the session's model turn that was started and not ended, when principal
        and conversation are the same (not one that is STOPPING); with INTERRUPT that turn is stopped as by `control`
        and says "Interrupted."; else, and then, a new turn is queued. A direct message becomes its principal's last
        direct conversation. When the session's model turn is parked, a REPLY slot with the text that `say_if_waiting`
        has for its open waits is stored too; not when there is none. Only a MODEL message is told so, or reports
        `waiting`. The duplicate of an event that was dropped or was a press has empty ids.
        """
        ...

    async def drop(self, message: Inbound, drop: Drop, refusal: str) -> bool:
        """Store the event with its reason. With `drop.told`, a REFUSAL slot, once in 24 h a principal.

        `UNREADABLE` is told by a REPLY slot each time. `CONTEXT` (with its route) is kept for the session's next
        model turn: `accept` gives it the last 50 that no turn was given, as `Received.context`. With `message.album` it
        joins that album's turn as in `accept`, if there is one. Return False for a duplicate.
        """
        ...

    async def amend(self, message: Inbound) -> bool:
        """Store an edit: the new text of the message `edits`, when it is of the same principal and conversation, of a
        MODEL turn or context, and no model has read it. That is so when it is ungiven and its turn QUEUED or PARKED,
        or RUNNING with a call that has no result, before which no model is asked; or when it is context of no turn, or
        of one that is QUEUED and has no answer. Return False otherwise: the event is then stored as `EDITED_LATE`. The
        duplicate of an edit returns True.
        """
        ...

    async def refuse(self, refused: Refused) -> bool:
        """Store an event that is no message, with why and, for `POISON`, what came. Return False for a duplicate."""
        ...

    async def control(self, route: Route, message: Inbound, control: Control) -> int | None:
        """Store the command, do its effect, store the reply slot. Return how many turns were stopped; None: duplicate.

        STOP and RESET reach every live child below the session, too. A RUNNING turn becomes STOPPING (its holder is
        woken and may only write results); a PARKED one, or a QUEUED one that was started before, ends STOPPED at once.
        Of every stopped turn, open and approved waits become CANCELLED, calls not started get a CANCELLED result, and
        those that ended get an ANSWER slot with `stopped_text`, unless the reply stands in their conversation: a turn
        of the session that began there says nothing of its own. A QUEUED turn never started stays, but not a child's.
        RESET also raises the epoch.
        """
        ...

    async def press(self, press: Press, wait: WaitId | None, verdict: PressVerdict) -> Pressed:
        """Store the press and, when the verdict allows, decide the approval by compare-and-set.

        Waits of other kinds are `NOT_VALID`.
        Only an OPEN wait with `expires_at` in the future is decided; a lost race is `ALREADY` or `EXPIRED`. A decided
        wait queues its turn when that is PARKED, wakes it otherwise, and raises the version of the card slots that
        show it. `withdraw_siblings` cancels the other open waits of the same model answer.
        After `ALREADY` and `EXPIRED` those cards are tried once more whose change was given up; but of a press that was
        `written` nothing is stored then: its event is still to be accepted, as a message.
        """
        ...


class Sweeps(Protocol):
    """What time does. Each takes at most 500 rows a call and returns how many; call again while it is not 0."""

    async def expire_waits(self) -> int:
        """OPEN waits past `expires_at` (one on a child stops it), and APPROVED ones decided over five minutes ago of
        turns that are not held, become EXPIRED; timers are left to `fire_timers`. Turns are queued and cards' versions
        raised as by a press.
        """
        ...

    async def reclaim(self) -> int:
        """RUNNING turns with an expired lease are QUEUED again; STOPPING ones end STOPPED as in `control`, with an
        UNKNOWN result for a call that was started. A live RUN child whose parent's turn has ended is stopped, should
        there ever be one. Slots SENDING for over 60 s are DUE again, creates marked uncertain.
        """
        ...

    async def fire_timers(self) -> int:
        """TIMER waits past `expires_at`: the ones with payload `{"copy_of": slot, "owner": name}` store a COPY slot in
        that owner's last direct conversation that is not the web page, unless the page was seen since they were opened.
        They become ANSWERED, or CANCELLED when the page was seen or there is no such conversation. A timer without
        `copy_of` becomes ANSWERED and wakes its turn.

        What an older edit may stand over that is settled by now (`slot_sent`, `slot_retry`, slots that were taken back
        while an edit of theirs was SENDING) gets one more version, marked `once_more`, unless one is to be sent anyway.
        """
        ...

    async def offer_again(self) -> int:
        """After a downtime, before `expire_waits`: cards with an OPEN wait that were shown get one new slot for each
        place, except on the web page, which always shows what is open. One transition, whatever their number.

        An approval that expired meanwhile becomes SUPERSEDED and its step PLANNED with `asked_anew`, once (a step
        already asked anew expires); its turn is queued. Call once at start.
        """
        ...

    async def void_leases(self, machine: str) -> int:
        """At start: leases of earlier lives of this machine end as in `reclaim`, what they held by name is free, and
        its SENDING slots are DUE again, marked uncertain when they were creates. A node id is `<machine>#<life>`.
        Turns that were held for the rest of a message, and never started, are held for 1.5 s from now: the platform
        tells that again.
        """
        ...


class Outbox(Protocol):
    """Slots on their way out. Called by `delivery`, by `streams` for what they show, and by `host`, which tells owners.

    Versions: a result for an older version than the slot has now leaves it DUE for the newer one.
    """

    async def claim_slots(
        self, node: NodeId, channels: Sequence[str], limit: int, *, wait_s: float = 0
    ) -> Sequence[Slot]:
        """Take DUE slots whose time has come, oldest first, one a conversation, none where one is SENDING.

        When there is none, wait for one as `Lanes.claim` does; the topic is `SLOTS`.

        REFUSALs come after everything else, and at most eight of a channel are SENDING at any time.

        A slot never overtakes an older one of its conversation that waits for its next try. Only cards of a session
        whose root is not MAIN, which stand in an owner's chat, come after everything else there.
        """
        ...

    async def any_due(self, channels: Sequence[str]) -> bool:
        """Whether `claim_slots` would give anything of these channels now."""
        ...

    async def slot_sent(self, slot: SlotId, version: int, platform_id: str, *, unsettled: bool = False) -> None:
        """The platform shows this version under this id. `unsettled`: an edit to an older one may still be made.

        So it may where another node than its sender made what was shown before, and may have been editing it when it
        died. A minute later `fire_timers` shows what is newest then.
        """
        ...

    async def slot_part(self, slot: SlotId, platform_id: str) -> None:
        """So much of it is shown, under this id; the rest follows, of which nothing is uncertain. Its state stays."""
        ...

    async def slot_retry(
        self, slot: SlotId, delay: timedelta, *, uncertain: bool, unsettled: bool = False, counted: bool = True
    ) -> None:
        """It was not shown, or that is not known (`uncertain`: a message of it may have appeared): again after `delay`.

        `unsettled`: an edit to this version may still be made. A minute later `fire_timers` shows what is newest then.

        Not `counted`: it was not even tried (a limit, a ban), or the platform said when; it does not use up a try.
        """
        ...

    async def slot_dead(self, slot: SlotId, version: int, why: str) -> None:
        """It will not be shown."""
        ...

    async def slot_overwritten(self, slot: SlotId, version: int) -> bool:
        """An edit that no row tells of, of this version, may have come after a newer one: what is newer and sent, or
        being sent, is shown once more. Return False, and change nothing, when there is nothing newer. Reads only then.
        """
        ...

    async def tell_owners(self, key: str, text: str, owners: Mapping[OwnerName, Sequence[Principal]]) -> bool:
        """Store a REPLY slot with `text` for each owner: on the page, in the main session, and in the last direct
        conversation of one of the principals. Once an hour for the same key; return False when it was said already.
        """
        ...


class Accounts(Protocol):
    """People: sign-in on the page, and where they can be reached. Only hashes of secrets are stored."""

    async def add_code(self, owner: OwnerName, code_sha: str, ttl: timedelta) -> None:
        """Store a single-use sign-in code."""
        ...

    async def redeem_code(self, code_sha: str, cookie_sha: str, ttl: timedelta, source: str) -> OwnerName | None:
        """Turn a code into a signed-in cookie, once; None when it is unknown, used or expired.

        A good code counts first, so nobody locks out those who share an address with them. Any other attempt raises
        `Forbidden` after 10 failures of one `source` in 15 min. Guessing stays hopeless: a code has 192 random bits.
        It is looked up by its SHA-256, so the time of a lookup says nothing about the code.
        """
        ...

    async def signed_in(self, cookie_sha: str) -> OwnerName | None:
        """Whose cookie this is, while it lasts."""
        ...

    async def sign_out(self, cookie_sha: str) -> None:
        """End it. Twice is safe."""
        ...

    async def saw_page(self, owner: OwnerName) -> None:
        """The owner has the page open now."""
        ...

    async def whereabouts(self, owner: OwnerName, principals: Sequence[Principal]) -> LastContact:
        """Where these principals wrote last, directly, and when the owner last had the page open."""
        ...


class Node(Protocol):
    """This daemon as one of many."""

    async def alive(self, node: NodeId) -> None:
        """Store that this node lives now. Every 10 s."""
        ...

    async def last_alive(self) -> datetime | None:
        """When any node said so last; None on a new store."""
        ...

    async def hold(self, name: str, node: NodeId, ttl: timedelta) -> bool:
        """Take or renew a named lease (a poller of one token); False while another node holds it."""
        ...


class KeyValue(Protocol):
    """Small facts that outlive a restart: bans, chats that moved, reasons that were asked for.

    A room is a named set of them, such as `channel/slack`.
    """

    async def note(self, room: str, key: str, value: str, ttl: timedelta | None = None) -> None:
        """Store one, in place of an older one of the key; forgotten after `ttl`."""
        ...

    async def notes(self, room: str) -> Mapping[str, str]:
        """All of a room that have not expired."""
        ...


class Queries(Protocol):
    """Reads. They see every transition that returned before they were called."""

    async def session(self, session: SessionId) -> Session | None:
        """One session."""
        ...

    async def sessions(
        self, limit: int = 200, ended: int = 50, *, always: SessionId | None = None
    ) -> Sequence[SessionLine]:
        """The `limit` root sessions that were active last, their live children, and the `ended` children that were
        active last of those whose task has ended: most recently active first. No number of children hides a root.

        `always`: a root that is among them whenever it was active, if it is stored.
        """
        ...

    async def turn(self, turn: TurnId) -> TurnView:
        """One turn. Raises `NotFound`."""
        ...

    async def history(self, session: SessionId, epoch: int, limit: int, *, oldest: bool = False) -> Sequence[TurnView]:
        """The last `limit` ended turns of this epoch that its summary does not cover, in the order they ended.

        `oldest`: the first ones instead.
        """
        ...

    async def changes(self, session: SessionId, after: int, limit: int) -> Rows:
        """Rows of the session with `rev` > after, by `rev`."""
        ...

    async def older(self, session: SessionId, before: int | None, limit: int) -> Rows:
        """The last rows of the session with `ord` < before (None: the newest), by `ord`."""
        ...

    async def wait(self, wait: WaitId) -> Wait | None:
        """One wait."""
        ...

    async def open_approvals(self, limit: int = 200) -> Sequence[Wait]:
        """Open approvals of every session, oldest first. `sessions` need not list all of their sessions."""
        ...

    async def card_slots(self, wait: WaitId) -> Sequence[Slot]:
        """The card slots that show this approval."""
        ...

    async def counts(self) -> Counts:
        """Figures of the whole store."""
        ...


class Audit(Protocol):
    """Reads of the audit. A row is written by `TurnJournal.start_step`, in its own transition, and by nothing else."""

    async def audit_head(self) -> AuditHead:
        """Where it stands."""
        ...

    async def audit_rows(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Rows with `seq` > after, by `seq`. Raises `StoreError` for one that cannot be read."""
        ...

    async def started_calls(self, after: int, limit: int) -> Sequence[StartedCall]:
        """The calls that were ever started whose step's `ord` is > after, by `ord`, each with its row."""
        ...


class EventBus(Protocol):
    """Publish and subscribe for what may be lost. Never blocks, never fails."""

    def publish(self, topic: str, event: LiveEvent) -> None:
        """Hand the event to whoever listens now."""
        ...

    def subscribe(self, *topics: str) -> AbstractAsyncContextManager[AsyncIterator[LiveEvent]]:
        """Listen until the context ends. A slow listener loses its oldest events first (it keeps 1,000)."""
        ...


class Store(
    Intake,
    TurnQueue,
    TurnJournal,
    Children,
    UsageStore,
    Sweeps,
    Outbox,
    Accounts,
    Node,
    KeyValue,
    Queries,
    Audit,
    Protocol,
):  # the bundle that `open_store` returns; callers take the part they need
    """Everything behind one URL."""

    @property
    def live(self) -> EventBus:
        """The same store's wake-ups."""
        ...

    async def probe(self) -> None:
        """Write something durably; raises `StoreError` when that fails."""
        ...

    async def close(self) -> None:
        """Finish what is queued and close. Twice is safe."""
        ...
