"""Protocols of the store, grouped by caller. `gateway.ports.audit`, `homes`, `intake` and `turns` hold others.

Every method is one atomic transition, durable when it returns. Times come from the store's own clock. A write under a
lease raises `LeaseLost` when the fence is stale, and then wrote nothing. `StoreFull` wrote nothing either. After a
commit the store publishes `Changed`, `TurnsDue`, `SlotsDue` and `TurnWoken` to `EventBus` as they apply.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Protocol

from gateway.domain.durability import Reached, StoreTerms
from gateway.domain.events import LiveEvent
from gateway.domain.ids import NodeId, OwnerName, Principal, SessionId, SlotId, TurnId, WaitId
from gateway.domain.messages import Conversation
from gateway.domain.nodes import Loss, NodeEntry, NodeLine
from gateway.domain.retention import Keep, LostFiles, Trimmed
from gateway.domain.sessions import Session
from gateway.domain.slots import Slot
from gateway.domain.turns import NamedLease
from gateway.domain.views import Counts, LastContact, RowPage, SessionLine, TurnView
from gateway.domain.waits import Wait
from gateway.errors import StoreError
from gateway.ports.audit import Audit
from gateway.ports.homes import Homes
from gateway.ports.intake import Intake
from gateway.ports.turns import Budgets, Children, Grants, Inquiries, TurnJournal, TurnQueue, UsageStore

ApproversOf = Callable[[Wait, Session], Collection[Principal]]
"""Principals that may decide an approval of a session now, when it is escalated. Pure: it may be called twice."""


def nobody_decides(_wait: Wait, _session: Session) -> Collection[Principal]:
    """Return no principal: a sweep without a configuration shows approvals to nobody else."""
    return ()


class Sweeps(Protocol):
    """Sweeps: transitions that are due by time alone. Each handles at most 500 rows a call and returns how many; call
    again until it returns 0.
    """

    async def expire_waits(self) -> int:
        """Expire OPEN waits past `expires_at`, and APPROVED waits decided over five minutes ago whose turn is not held.

        An expired wait on a child stops the child. Timers are left to `fire_timers`. Turns are queued and cards'
        versions raised as by a press.
        """
        ...

    async def reclaim(self) -> int:
        """Queue RUNNING turns with an expired lease again, and end STOPPING ones as STOPPED.

        STOPPED is as in `control`; a call that was started gets an UNKNOWN result. Stops a live RUN child whose
        parent's turn has ended, should there ever be one. Slots SENDING for over 60 s become DUE again, creates marked
        uncertain.
        """
        ...

    async def fire_timers(self, approvers: ApproversOf = nobody_decides) -> int:
        """Fire TIMER waits past `expires_at`. `approvers`: who may decide an approval now.

        Payload `{"copy_of": slot, "owner": name}`: store a COPY slot in that owner's last direct conversation that is
        not the web page, and mark the wait ANSWERED. It becomes CANCELLED instead when the page was seen since it was
        opened, or when there is no such conversation.

        Payload of `domain.waits.escalation`: show the approvals that are still open in the last direct conversation of
        each further approver who may decide them now, except where a card of them stands already; they are `ESCALATED`
        then. The timer becomes CANCELLED when none is open. No turn is woken. Any other timer becomes ANSWERED and
        wakes its turn.

        Also raise the version, marked `once_more`, of slots that an unsettled edit may have overwritten, once that edit
        is settled; not when the slot is to be sent anyway. Unsettled edits come from `slot_sent`, `slot_retry`, and
        slots that were reclaimed while an edit of theirs was SENDING.
        """
        ...

    async def expire_grants(self) -> int:
        """End grants past `expires_at`. They allow nothing from that moment on, swept or not."""
        ...

    async def void_leases(self, machine: str) -> int:
        """Void the leases of earlier lives of this machine. Call at start. A node id is `<machine>#<life>`.

        Turns end as in `reclaim`, and named leases are freed. SENDING slots become DUE again, creates marked uncertain.
        Turns never started that wait for the rest of a message are delayed by 1.5 s from now: the platform sends that
        again.
        """
        ...


class Retention(Protocol):
    """Removal of old history. Called by the daemon's retention loop alone.

    Only what has ended is removed: see `gateway.policy.retention`. Counters, grants that did not end and spending stay.
    Of the audit only what was exported goes.
    """

    async def some_roots(self, after: str, limit: int) -> tuple[Sequence[SessionId], str]:
        """Return some root sessions, and what to pass to get the next ones; both are empty at the end."""
        ...

    async def trim(self, session: SessionId, keep: Keep, passed: int = 0) -> Trimmed:
        """Remove some of the old turns of a root session, with all their rows and sub-sessions, oldest first.

        A few milliseconds of work: call it again with `Trimmed.passed` until that is None.
        """
        ...

    async def fold(self, settled_for: timedelta) -> int:
        """Compact some turns that ended that long ago, where the store has a smaller form. Readers see no difference.

        Return how many were examined; repeat until it returns 0.
        """
        ...

    async def trim_audit(self, age: timedelta) -> int:
        """Remove some rows of the audit that are older than this and were exported, the oldest first; the last stays.

        Return how many; call it again until it returns 0. Raises `StoreDamaged` when they are not what was written.
        """
        ...

    async def lost_files(self) -> Sequence[LostFiles]:
        """Return the files of removed turns. A turn of these that is still there is being removed: leave its files."""
        ...

    async def forget_files(self, turns: Sequence[TurnId]) -> None:
        """Forget files once they are removed."""
        ...


class Outbox(Protocol):
    """Outbox of slots. Called by `gateway.outbound` (delivery, live edits) and, for `tell_owners`, by the channel host.

    A result names the slot as it was claimed. For an older version than the slot has now it leaves it DUE for the newer
    one. A stale result changes nothing: somebody claimed the slot again since.
    """

    async def claim_slots(
        self, node: NodeId, channels: Sequence[str], limit: int, *, wait_s: float = 0
    ) -> Sequence[Slot]:
        """Claim DUE slots whose time has come, oldest first, one per conversation, none where one is SENDING.

        When there is none, wait `wait_s` seconds as `TurnQueue.claim` does; the topic is `SLOTS`.

        REFUSALs come after everything else, and at most eight of a channel are SENDING at any time. A slot never
        overtakes an older one of its conversation that waits for a retry. One exception: cards of sessions whose root
        is not MAIN, shown in an owner's chat, come after everything else there.

        An account has one sender at a time: the node that claims becomes it for 15 s, renewed by its claims. Slots of
        an account whose sender is another machine stay DUE.
        """
        ...

    async def any_due(self, channels: Sequence[str]) -> bool:
        """Return whether `claim_slots` would return anything for these channels now."""
        ...

    async def slot_sent(self, slot: Slot, message_ids: tuple[str, ...], *, unsettled: bool = False) -> None:
        """Mark this version as sent, shown by these messages.

        `unsettled`: an edit to an older version may still take effect. The same is assumed when another node sent the
        previous version, since it may have died while editing it. A minute later `fire_timers` shows the newest version
        again.
        """
        ...

    async def slot_part(self, slot: Slot, message_ids: tuple[str, ...]) -> None:
        """Store the messages that show its beginning so far; the rest is not uncertain. The slot keeps its state."""
        ...

    async def slot_retry(
        self, slot: Slot, delay: timedelta, *, uncertain: bool, unsettled: bool = False, counted: bool = True
    ) -> None:
        """Schedule a retry after `delay`.

        `uncertain`: a message of it may have appeared. `unsettled`: an edit to this version may still take effect; a
        minute later `fire_timers` shows the newest version again. Not `counted`: this does not use up an attempt,
        because nothing was tried (rate limit, ban) or the platform named the time.
        """
        ...

    async def slot_dead(self, slot: Slot, why: str) -> None:
        """Give a slot up: mark it DEAD with the reason."""
        ...

    async def slot_overwritten(self, slot: SlotId, version: int) -> bool:
        """Handle an edit to this version that no row records and that may have overwritten a newer one.

        A newer version that is sent or being sent is shown once more. Return False, and change nothing, when there is
        nothing newer; that case only reads.
        """
        ...

    async def tell_owners(
        self,
        key: str,
        text: str,
        owners: Mapping[OwnerName, Sequence[Principal]],
        *,
        under: NamedLease | None = None,
    ) -> bool:
        """Store a REPLY slot with `text` for each owner, once an hour for the same key. Return False when it was sent
        already, or when another node took the lease `under` since.

        The slots go to the owner's page, in the main session, and to the last direct conversation of one of the
        principals.
        """
        ...

    async def stop_sending(self, node: NodeId) -> None:
        """Give up the accounts that this node sends for. Call when it sends nothing any more."""
        ...


class Accounts(Protocol):
    """People: sign-ins on the page, and last contacts. Only hashes of secrets are stored."""

    async def add_code(self, owner: OwnerName, code_sha: str, ttl: timedelta) -> None:
        """Store the hash of a single-use sign-in code, valid for `ttl`."""
        ...

    async def redeem_code(self, code_sha: str, cookie_sha: str, ttl: timedelta, source: str) -> OwnerName | None:
        """Exchange a code for a signed-in cookie, once. Return None when it is unknown, used or expired.

        A valid code is checked first, so nobody locks out people who share an address with them. Any other attempt
        raises `Forbidden` after 10 failures of one `source` in 15 min. Guessing stays hopeless: a code has 192 random
        bits. The lookup is by SHA-256, so its timing reveals nothing about the code.
        """
        ...

    async def signed_in(self, cookie_sha: str) -> OwnerName | None:
        """Return the owner of this cookie; None when it is unknown or expired."""
        ...

    async def sign_out(self, cookie_sha: str) -> None:
        """End a sign-in. Idempotent."""
        ...

    async def saw_page(self, owner: OwnerName) -> None:
        """Store that the owner has the page open now."""
        ...

    async def last_contact(self, owner: OwnerName, principals: Sequence[Principal]) -> LastContact:
        """Return the last direct conversations of these principals, and when the owner last had the page open."""
        ...


class Node(Protocol):
    """This daemon as one node of many: who may be one, heartbeat and named leases."""

    async def join(self, entry: NodeEntry) -> NodeLine:
        """Let this node in. Call first of all. Raises `ConfigError` or `StartError`, and then wrote nothing.

        Raises `UnseenNodes` when others live at its home that it does not name in `seen`.

        All nodes have the same secret key. The first one's is kept by its fingerprint. A key of the cluster takes the
        place of that of a state folder when no other node lives. A name belongs to one node: an earlier life of the
        same seat is over, while another seat's lives on until 30 s after its last sign.
        """
        ...

    async def alive(self, node: NodeId) -> NodeLine | None:
        """Store that this node is alive now. Call every 10 s. Return its line; None when it must join again."""
        ...

    async def resign(self, node: NodeId) -> None:
        """Take this node off the list. Call when it ends."""
        ...

    async def nodes(self) -> Sequence[NodeLine]:
        """Return the nodes by name, with the turns that they hold; those that are silent for a day are left out."""
        ...

    async def drain(self, name: str, *, drained: bool) -> str:
        """Drain the node of this name, or the only one whose name begins so, or let it work again. Return its name.

        It stays drained over restarts. The caller publishes `NodesChanged`. Raises `NotFound` with its cure.
        """
        ...

    async def begin(self, node: NodeId, downtime: timedelta) -> int:
        """Store that this node starts now. After a downtime, show open cards again; return how many waits and cards.

        Call once at start, before `expire_waits`. It is a downtime when no node was alive for longer than `downtime`,
        by the store's clock. Of several nodes that start after it, the first one offers. One transition for any number
        of cards.

        A card with an OPEN wait that was shown gets one new slot in each place, except on the web page, which always
        shows open waits. An approval that expired meanwhile becomes SUPERSEDED, its step PLANNED with `asked_anew`, and
        its turn is queued. A question that expired meanwhile keeps its answers, and its time begins again. Both happen
        once: a step already asked again expires.
        """
        ...

    async def hold(self, name: str, node: NodeId, ttl: timedelta) -> NamedLease | None:
        """Take or renew a named lease (the only poller of a token). Return None while another node holds it.

        Its fence grows whenever another node takes it, also after `leave` and `void_leases`.
        """
        ...

    async def tell_loss(self, owners: Mapping[OwnerName, Sequence[Principal]]) -> Loss | None:
        """Return the store's last loss of acknowledged writes; None: no loss. Owners get one notice."""
        ...

    async def leave(self, node: NodeId) -> None:
        """Give up the named leases and the accounts that this node sends for, so that another one takes over at once.

        Call when nothing is being sent or polled any more.
        """
        ...


class KeyValue(Protocol):
    """Key-value store for small facts that outlive a restart: bans, migrated chats, reasons that were asked for.

    A namespace is one set of keys, such as `channel/slack`.
    """

    async def put(self, namespace: str, key: str, value: str, ttl: timedelta | None = None) -> None:
        """Store a value, in place of an older one of the key; it expires after `ttl`."""
        ...

    async def get(self, namespace: str, key: str) -> str | None:
        """Return the value of a key; None when there is none, or it has expired."""
        ...

    async def items(self, namespace: str) -> Mapping[str, str]:
        """Return all pairs of a namespace that have not expired."""
        ...


class Queries(Protocol):
    """Reads. They see every transition that returned before they were called."""

    async def session(self, session: SessionId) -> Session | None:
        """Return a session; None when it is not stored."""
        ...

    async def sessions(
        self, limit: int = 200, ended: int = 50, *, always: SessionId | None = None
    ) -> Sequence[SessionLine]:
        """Return the sessions for a list, most recently active first.

        These are the `limit` root sessions active last, their live children, and the `ended` children active last among
        those whose task has ended. No number of children hides a root. `always`: a root to include however long ago it
        was active, if it is stored.
        """
        ...

    async def turn(self, turn: TurnId) -> TurnView:
        """Return a turn. Raises `NotFound`."""
        ...

    async def history(self, session: SessionId, epoch: int, limit: int, *, oldest: bool = False) -> Sequence[TurnView]:
        """Return the last `limit` ended turns of this epoch that its summary does not cover, in the order they ended.

        `oldest`: the first ones instead.
        """
        ...

    async def changes(self, session: SessionId, after: int, limit: int) -> RowPage:
        """Return rows of the session with `rev` > after, by `rev`."""
        ...

    async def older(self, session: SessionId, before: int | None, limit: int) -> RowPage:
        """Return the last rows of the session with `ord` < before (None: the newest), by `ord`."""
        ...

    async def wait(self, wait: WaitId) -> Wait | None:
        """Return a wait; None when it is not stored."""
        ...

    async def open_approvals(self, limit: int = 200) -> Sequence[Wait]:
        """Return open approvals of every session, oldest first. `sessions` need not list all of their sessions."""
        ...

    async def card_slots(self, wait: WaitId) -> Sequence[Slot]:
        """Return the card slots that show this approval."""
        ...

    async def counts(self) -> Counts:
        """Return the figures of the whole store."""
        ...


class EventBus(Protocol):
    """Publish and subscribe, for events that may be lost. Never blocks, never fails.

    An event has one of three ranges: all nodes, this node, or the node that sends for an account. After a loss that a
    bus notices, every subscriber gets `LookAgain`.
    """

    def publish(self, topic: str, event: LiveEvent) -> None:
        """Pass the event to the current subscribers of the topic on all nodes."""
        ...

    def publish_here(self, topic: str, event: LiveEvent) -> None:
        """Pass the event to the current subscribers of the topic on this node alone."""
        ...

    def publish_to_sender(self, where: Conversation, event: LiveEvent) -> None:
        """Pass the event to the subscribers of `ANSWERS` on the node that sends for this account; without one, here."""
        ...

    def send_for(self, accounts: Collection[tuple[str, str]]) -> None:
        """Take this node for the sender of these accounts, by channel and name, while the lease of its claim lasts."""
        ...

    def subscribe(self, *topics: str) -> AbstractAsyncContextManager[AsyncIterator[LiveEvent]]:
        """Subscribe until the context ends. A slow subscriber loses its oldest events first (it keeps 1,000)."""
        ...


class Store(
    Intake,
    TurnQueue,
    TurnJournal,
    Inquiries,
    Children,
    UsageStore,
    Grants,
    Budgets,
    Sweeps,
    Retention,
    Outbox,
    Accounts,
    Node,
    Homes,
    KeyValue,
    Queries,
    Audit,
    Protocol,
):  # callers take only the protocol they need
    """All protocols of one store, as `open_store` returns it."""

    @property
    def event_bus(self) -> EventBus:
        """Event bus of this store."""
        ...

    @property
    def terms(self) -> StoreTerms:
        """Return the durability of this store, and the number of replicas that have a write when it returns."""
        ...

    @property
    def identity(self) -> str:
        """Return the id of a store on a server; empty for one that its address alone names."""
        ...

    @property
    def reached(self) -> Reached:
        """Return the progress of a store on a server, for a note that outlives this process."""
        ...

    @property
    def waits_for(self) -> StoreError | None:
        """Return why requests wait for a server, with the cure; None while they do not. They fail after a time."""
        ...

    async def probe(self) -> None:
        """Write something durably. Raises `StoreError` when that fails."""
        ...

    async def close(self) -> None:
        """Finish the queued writes and close. Idempotent."""
        ...
