"""Writes of every store: each port's method runs one transition of the kernel on its backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from gateway.domain.audit import AuditMark, StartRecord
from gateway.domain.budgets import BudgetUse, Reservation, Reserved
from gateway.domain.children import MessageFate, NewChild, NewMessage, SpawnRefusal
from gateway.domain.durability import Durability, Reached, StoreTerms
from gateway.domain.grants import Grant
from gateway.domain.hooks import HookOutcome
from gateway.domain.ids import GrantId, InboundId, NodeId, OwnerName, Principal, SessionId, SlotId, TurnId, WaitId
from gateway.domain.messages import FetchedFile, Inbound, Press, Received, Refused
from gateway.domain.nodes import HomeHolder, Loss, NodeEntry, NodeLine
from gateway.domain.retention import Keep, LostFiles, Trimmed
from gateway.domain.routes import Accepted, Drop, Route, WhileRunning
from gateway.domain.slots import NewSlot, Slot
from gateway.domain.steps import Answer
from gateway.domain.task_lists import TaskItem
from gateway.domain.tools import ToolResult
from gateway.domain.turns import Lease, NamedLease, TurnKind, TurnState
from gateway.domain.views import Claimed, LastContact, Spent, TurnView
from gateway.domain.waits import NewWait, Pressed, PressVerdict, StartOutcome
from gateway.domain.workflows import NewStep
from gateway.errors import StoreError
from gateway.ports import ApproversOf, Clock, Control, Waiting, nobody_decides
from gateway.store.codec import from_us
from gateway.store.kernel import (
    audit,
    budgets,
    children,
    drops,
    facts,
    grants,
    homes,
    intake,
    journal,
    leases,
    losses,
    messages,
    nodes,
    outbox,
    questions,
    retention,
    sessions,
    sweeps,
    task_lists,
)
from gateway.store.kernel.part import FactKey, Part
from gateway.store.kernel.rows import Fact

T = TypeVar("T")


class KernelStore(ABC):
    """`ports.Store` but for its reads. A backend runs a transition atomically, and publishes its wake-ups."""

    def __init__(self, clock: Clock) -> None:
        """Take the clock that gives every transition its time."""
        self.clock = clock
        self.identity = ""
        """Id of a store on a server; empty for one that its address alone names."""

    @property
    def terms(self) -> StoreTerms:
        """Return its durability: nothing, on a disk of this machine."""
        return StoreTerms(durability=Durability.ALWAYS)

    @property
    def reached(self) -> Reached:
        """Return its progress: nowhere, but for a server, which may lose something."""
        return Reached()

    @property
    def waits_for(self) -> StoreError | None:
        """Return why requests wait: only for a server."""
        return None

    @abstractmethod
    async def run(self, transition: Callable[[Part], T]) -> T:
        """Run a transition and return when its changes are stored. Raises its exception, or `StoreError`."""

    @abstractmethod
    async def claim_turns(
        self, take: Callable[[Part, TurnId], Claimed | None], limit: int, wait_s: float, home: str = ""
    ) -> list[Claimed]:
        """Run `take` on turns that are ready at this home, each in a transition of its own. Wait when there is none."""

    @abstractmethod
    async def claim_due(self, take: Callable[[Part], list[Slot]], limit: int, wait_s: float) -> list[Slot]:
        """Run a claim of slots. When it takes none, wait for some."""

    @abstractmethod
    async def facts(self, keys: Sequence[FactKey]) -> list[Fact | None]:
        """Return stored facts, expired ones too."""

    @abstractmethod
    async def facts_in(self, namespace: str) -> list[tuple[str, Fact]]:
        """Return all facts of a namespace by key, expired ones too."""

    # --- intake -----------------------------------------------------------------------------

    async def accept(
        self, route: Route, message: Inbound, kind: TurnKind, *, running: WhileRunning, say_if_waiting: Waiting | None
    ) -> Accepted:
        """Store the message and its turn."""
        return await self.run(lambda part: intake.accept(part, route, message, kind, running, say_if_waiting))

    async def control(self, route: Route, message: Inbound, control: Control) -> int | None:
        """Store a control command with its effect and reply."""
        return await self.run(lambda part: intake.control(part, route, message, control))

    async def press(self, press: Press, wait: WaitId | None, verdict: PressVerdict) -> Pressed:
        """Store a press and decide its wait, once."""
        return await self.run(lambda part: intake.press(part, press, wait, verdict))

    async def drop(self, message: Inbound, drop: Drop, refusal: str) -> bool:
        """Store the reason why a message starts nothing."""
        return await self.run(lambda part: drops.drop(part, message, drop, refusal))

    async def amend(self, message: Inbound) -> bool:
        """Store the new text of a message that no model has read."""
        return await self.run(lambda part: drops.amend(part, message))

    async def refuse(self, refused: Refused) -> bool:
        """Store an event that is no message."""
        return await self.run(lambda part: drops.refuse(part, refused))

    # --- turn queue -------------------------------------------------------------------------

    async def lease_turns(
        self, node: NodeId, home: str, limit: int, wait_s: float, view: Callable[[Part, Lease], Claimed]
    ) -> list[Claimed]:
        """Lease turns that may run, and return each as `view` reads it in the same transition."""

        def take(part: Part, turn: TurnId) -> Claimed | None:
            lease = leases.claim(part, node, turn, home)
            return None if lease is None else view(part, lease)

        return await self.claim_turns(take, limit, wait_s, home)

    async def renew(self, lease: Lease) -> TurnState:
        """Extend the lease."""
        return await self.run(lambda part: leases.renew(part, lease))

    async def park(self, lease: Lease) -> bool:
        """Release the lease until a wait is decided."""
        return await self.run(lambda part: leases.park(part, lease))

    async def finish_turn(
        self,
        lease: Lease,
        state: TurnState,
        *,
        answer: Answer | None,
        given: Sequence[Received],
        slots: Sequence[NewSlot],
        timers: Sequence[NewWait],
    ) -> bool:
        """End the turn with its last answer."""
        return await self.run(lambda part: journal.finish_turn(part, lease, state, answer, given, slots, timers))

    async def release(self, lease: Lease) -> None:
        """Return the turn to the queue."""
        await self.run(lambda part: leases.release(part, lease))

    # --- turn journal -----------------------------------------------------------------------

    async def plan(
        self, lease: Lease, answer: Answer, *, given: Sequence[Received], slots: Sequence[NewSlot]
    ) -> TurnView:
        """Store an answer with its calls planned."""
        return await self.run(lambda part: journal.plan(part, lease, answer, given, slots))

    # --- questions and lists ------------------------------------------------------------------

    async def ask(self, lease: Lease, wait: NewWait, slots: Sequence[NewSlot]) -> WaitId | None:
        """Open the wait of a question."""
        return await self.run(lambda part: questions.ask(part, lease, wait, slots))

    async def write_list(self, lease: Lease, n: int, items: Sequence[TaskItem]) -> None:
        """Store a session's task list."""
        await self.run(lambda part: task_lists.write_list(part, lease, n, items))

    async def task_list(self, session: SessionId, epoch: int) -> Sequence[TaskItem]:
        """Return a session's task list."""
        (fact,) = await self.facts([task_lists.key_of(session)])
        return task_lists.items_of(fact, epoch)

    async def open_slot(self, lease: Lease, slot: NewSlot) -> bool:
        """Store the slot of an answer being written or of a status line, or its newer text."""
        return await self.run(lambda part: journal.open_slot(part, lease, slot))

    async def open_waits(
        self, lease: Lease, waits: Sequence[NewWait], slots: Sequence[NewSlot], *, most: int | None = None
    ) -> int | None:
        """Open waits on planned steps, with their cards."""
        return await self.run(lambda part: journal.open_waits(part, lease, waits, slots, most))

    async def store_hook_outcome(self, lease: Lease, n: int, outcome: HookOutcome) -> None:
        """Store the outcome of the hooks before a planned call, once."""
        await self.run(lambda part: journal.store_hook_outcome(part, lease, n, outcome))

    async def start_step(self, lease: Lease, n: int, wait: WaitId | None, beginning: StartRecord) -> StartOutcome:
        """Record that a call's effect may begin, with its audit row; consume its approval."""
        return await self.run(lambda part: journal.start_step(part, lease, n, wait, beginning))

    async def finish_step(
        self, lease: Lease, n: int, result: ToolResult, slots: Sequence[NewSlot] = ()
    ) -> TurnView | None:
        """Store a call's one result and the slots that show it."""
        return await self.run(lambda part: journal.finish_step(part, lease, n, result, slots))

    async def enter_plan(self, lease: Lease, n: int) -> None:
        """Give a session the preset that plans."""
        await self.run(lambda part: sessions.enter_plan(part, lease, n))

    async def leave_plan(self, lease: Lease, n: int) -> None:
        """Give the session of a turn the preset before its present one."""
        await self.run(lambda part: sessions.leave_plan(part, lease, n))

    async def record_fetched(
        self, lease: Lease, message: InboundId, files: Sequence[FetchedFile], slots: Sequence[NewSlot] = ()
    ) -> None:
        """Store the outcome of fetching a message's attachments, and the slots that show it."""
        await self.run(lambda part: journal.record_fetched(part, lease, message, files, slots))

    # --- children and usage -----------------------------------------------------------------

    async def revoke_grant(self, grant: GrantId, by: Principal) -> Grant | None:
        """Take a grant back."""
        return await self.run(lambda part: grants.revoke(part, grant, by))

    async def spawn(self, lease: Lease, n: int, child: NewChild) -> WaitId | SpawnRefusal | None:
        """Store a child with its task, and in mode RUN the wait of the step that spawned it."""
        return await self.run(lambda part: children.spawn(part, lease, n, child))

    async def begin_workflow(self, lease: Lease, n: int, steps: Sequence[NewStep]) -> WaitId | SpawnRefusal:
        """Store a workflow in the wait of its call's step, and begin the ready steps."""
        return await self.run(lambda part: children.begin_workflow(part, lease, n, steps))

    async def send(
        self, lease: Lease, n: int, message: NewMessage, only: Principal | None = None
    ) -> WaitId | MessageFate | SpawnRefusal:
        """Store a message to a child: in the task at work, or as a further task."""
        return await self.run(lambda part: children.send(part, lease, n, message, only))

    async def tell(self, lease: Lease, n: int, text: str) -> MessageFate | SpawnRefusal:
        """Store a message of a child at work to its parent."""
        return await self.run(lambda part: children.tell(part, lease, n, text))

    async def stop_child(self, parent: SessionId, child: SessionId, text: str, only: Principal | None = None) -> int:
        """Stop a child and all below it."""
        return await self.run(lambda part: children.stop_child(part, parent, child, text, only))

    async def compact(self, session: SessionId, epoch: int, through: TurnId, summary: str, spent: Spent | None) -> bool:
        """Store the summary of the beginning of a history, and its cost."""
        return await self.run(lambda part: sessions.compact(part, session, epoch, through, summary, spent))

    async def reserve(self, lease: Lease, wanted: Reservation) -> Reserved:
        """Reserve what a turn's model request may use."""
        return await self.run(lambda part: budgets.reserve(part, lease, wanted, lease.turn))

    async def reserve_summary(self, session: SessionId, wanted: Reservation) -> Reserved:
        """Reserve what the summary of a session may use."""
        holder = sessions.summary_holder(session)
        return await self.run(lambda part: budgets.reserve(part, None, wanted, holder))

    async def budget_uses(self) -> Sequence[BudgetUse]:
        """Return the use of all budgets."""
        return budgets.uses([one for one in await self.facts_in(budgets.ACCOUNTS) if self._is_good(one[1])])

    # --- sweeps -----------------------------------------------------------------------------

    async def expire_waits(self) -> int:
        """Expire waits that nobody decided or used in time."""
        return await self.run(sweeps.expire_waits)

    async def expire_grants(self) -> int:
        """End grants past their time."""
        return await self.run(grants.expire)

    async def reclaim(self) -> int:
        """Take back turns and slots of dead holders, and stop orphans."""
        return await self.run(sweeps.reclaim)

    async def fire_timers(self, approvers: ApproversOf = nobody_decides) -> int:
        """Copy answers and approvals to further chats, and resend slots that a late edit may have hidden."""
        return await self.run(lambda part: sweeps.fire_timers(part, approvers))

    async def void_leases(self, machine: str) -> int:
        """Void the leases of this machine's earlier processes."""
        return await self.run(lambda part: sweeps.void_leases(part, machine))

    # --- retention --------------------------------------------------------------------------

    async def trim(self, session: SessionId, keep: Keep, passed: int = 0) -> Trimmed:
        """Remove some of the old rows of a session."""
        return await self.run(lambda part: retention.trim(part, session, keep, passed))

    async def fold(self, settled_for: timedelta) -> int:
        """Do nothing: most stores have one form of a row."""
        del settled_for
        return 0

    async def trim_audit(self, age: timedelta) -> int:
        """Remove old rows of the audit that were exported."""
        return await self.run(lambda part: audit.trim(part, age))

    async def note_export(self, seq: int, row_hash: str) -> bool:
        """Note the row that an export of the audit ended in."""
        return await self.run(lambda part: audit.note_export(part, seq, row_hash))

    async def removed_audit(self) -> AuditMark | None:
        """Return the last row of the audit that was removed."""
        (found,) = await self.facts([audit.REMOVED])
        return audit.mark_of(None if found is None else found.value)

    async def lost_files(self) -> Sequence[LostFiles]:
        """Return the files of removed turns."""
        return list(retention.lost_files(await self.facts_in(retention.LOST)))

    async def forget_files(self, turns: Sequence[TurnId]) -> None:
        """Forget files that are removed."""
        await self.run(lambda part: retention.forget_files(part, turns))

    # --- outbox -----------------------------------------------------------------------------

    async def claim_slots(
        self, node: NodeId, channels: Sequence[str], limit: int, *, wait_s: float = 0
    ) -> Sequence[Slot]:
        """Claim the oldest due slot of each conversation; none overtakes an older one that awaits a retry."""

        def take(part: Part) -> list[Slot]:
            return outbox.claim_slots(part, node, channels, limit)

        return await self.claim_due(take, limit, wait_s)

    async def slot_sent(self, slot: Slot, message_ids: tuple[str, ...], *, unsettled: bool = False) -> None:
        """Record the version that is shown."""
        await self.run(lambda part: outbox.slot_sent(part, slot, message_ids, unsettled=unsettled))

    async def slot_part(self, slot: Slot, message_ids: tuple[str, ...]) -> None:
        """Record the messages shown so far."""
        await self.run(lambda part: outbox.slot_part(part, slot, message_ids))

    async def slot_retry(
        self, slot: Slot, delay: timedelta, *, uncertain: bool, unsettled: bool = False, counted: bool = True
    ) -> None:
        """Schedule a retry."""
        await self.run(
            lambda part: outbox.slot_retry(part, slot, delay, uncertain=uncertain, unsettled=unsettled, counted=counted)
        )

    async def slot_dead(self, slot: Slot, why: str) -> None:
        """Mark it dead, unless it changed meanwhile."""
        await self.run(lambda part: outbox.slot_dead(part, slot, why))

    async def slot_overwritten(self, slot: SlotId, version: int) -> bool:
        """Send the newer version once more."""
        return await self.run(lambda part: outbox.slot_overwritten(part, slot, version))

    async def tell_owners(
        self,
        key: str,
        text: str,
        owners: Mapping[OwnerName, Sequence[Principal]],
        *,
        under: NamedLease | None = None,
    ) -> bool:
        """Notify every owner, at most once an hour per key."""
        return await self.run(lambda part: outbox.tell_owners(part, key, text, owners, under))

    # --- accounts and nodes -----------------------------------------------------------------

    async def add_code(self, owner: OwnerName, code_sha: str, ttl: timedelta) -> None:
        """Store a sign-in code."""
        await self.run(lambda part: facts.add_code(part, owner, code_sha, ttl))

    async def redeem_code(self, code_sha: str, cookie_sha: str, ttl: timedelta, source: str) -> OwnerName | None:
        """Exchange a code for a cookie, once."""
        return await self.run(lambda part: facts.redeem_code(part, code_sha, cookie_sha, ttl, source))

    async def sign_out(self, cookie_sha: str) -> None:
        """Forget a cookie."""
        await self.run(lambda part: facts.sign_out(part, cookie_sha))

    async def saw_page(self, owner: OwnerName) -> None:
        """Record that the owner's page is open."""
        await self.run(lambda part: facts.saw_page(part, owner))

    async def join(self, entry: NodeEntry) -> NodeLine:
        """Let this node in."""
        return await self.run(lambda part: nodes.join(part, entry))

    async def resign(self, node: NodeId) -> None:
        """Take this node off the list."""
        await self.run(lambda part: nodes.resign(part, node))

    async def nodes(self) -> Sequence[NodeLine]:
        """Return all nodes."""
        return await self.run(nodes.nodes)

    async def drain(self, name: str, *, drained: bool) -> str:
        """Drain a node, or let it work again."""
        return await self.run(lambda part: nodes.drain(part, name, drained))

    async def astray(self, node: NodeId) -> Sequence[SessionId]:
        """Return families with unended turns whose home is away."""
        return await self.run(lambda part: homes.astray(part, node))

    async def say_awaited(self, node: NodeId) -> int:
        """Say in the chats of turns that wait for a home what they wait for."""
        return await self.run(lambda part: homes.say_awaited(part, node))

    async def take_over(self, node: NodeId, session: SessionId) -> bool:
        """Make this node's place the home of a family."""
        return await self.run(lambda part: homes.take_over(part, node, session))

    async def places_of(self, session: SessionId) -> Sequence[HomeHolder]:
        """Return the places that hold, or held, files of a session."""
        return await self.run(lambda part: homes.places_of(part, session))

    async def node_named(self, name: str) -> HomeHolder | None:
        """Return the node that can be asked for files."""
        return await self.run(lambda part: homes.node_named(part, name))

    async def stop_sending(self, node: NodeId) -> None:
        """Give up the accounts that this node sends for."""
        await self.run(lambda part: facts.stop_sending(part, node))

    async def begin(self, node: NodeId, downtime: timedelta) -> int:
        """Record that this node starts. After a downtime of all nodes, offer open cards again."""
        return await self.run(lambda part: sweeps.begin(part, node, downtime))

    async def alive(self, node: NodeId) -> NodeLine | None:
        """Record that this node is alive."""
        return await self.run(lambda part: nodes.alive(part, node))

    async def tell_loss(self, owners: Mapping[OwnerName, Sequence[Principal]]) -> Loss | None:
        """Return this store's last loss; notify the owners once."""
        return await self.run(lambda part: losses.tell_loss(part, owners))

    async def hold(self, name: str, node: NodeId, ttl: timedelta) -> NamedLease | None:
        """Acquire or renew a named lease."""
        return await self.run(lambda part: facts.hold(part, name, node, ttl))

    async def leave(self, node: NodeId) -> None:
        """Give up the named leases, and the accounts that this node sends for."""
        await self.run(lambda part: facts.leave(part, node))

    async def put(self, namespace: str, key: str, value: str, ttl: timedelta | None = None) -> None:
        """Store a value."""
        await self.run(lambda part: facts.put(part, namespace, key, value, ttl))

    # --- reads of facts ---------------------------------------------------------------------

    async def signed_in(self, cookie_sha: str) -> OwnerName | None:
        """Return the owner of this cookie."""
        (found,) = await self.facts([(facts.COOKIES, cookie_sha)])
        return OwnerName(found.value) if found is not None and self._is_good(found) else None

    async def last_contact(self, owner: OwnerName, principals: Sequence[Principal]) -> LastContact:
        """Return the last direct conversation of each person, and when the page was last open."""
        keys = [(facts.PAGES, str(owner)), *((messages.PEOPLE, str(who)) for who in principals)]
        seen, *people = await self.facts(keys)
        found = zip(principals, people, strict=True)
        direct = {who: facts.person_of(fact) for who, fact in found if fact is not None}
        return LastContact(direct=direct, page_seen_at=None if seen is None else from_us(int(seen.value)))

    async def get(self, namespace: str, key: str) -> str | None:
        """Return the value of a key."""
        (found,) = await self.facts([(facts.NOTES + namespace, key)])
        return found.value if found is not None and self._is_good(found) else None

    async def items(self, namespace: str) -> Mapping[str, str]:
        """Return the values of a namespace."""
        found = await self.facts_in(facts.NOTES + namespace)
        return {key: fact.value for key, fact in found if self._is_good(fact)}

    def _is_good(self, fact: Fact) -> bool:
        return fact.until is None or fact.until > self.clock.now()
