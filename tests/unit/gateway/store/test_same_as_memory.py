"""Random run of the memory and the SQLite store side by side: they never differ."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gateway.domain.ids import InboundId, NodeId, OwnerName, Principal, SessionId, SlotId, WaitId
from gateway.domain.messages import Conversation, Inbound, Received, Refused, RefusedReason
from gateway.domain.routes import Drop, DropReason, Route, WhileRunning
from gateway.domain.slots import NewSlot, Slot, SlotKind
from gateway.domain.steps import StepState, Usage
from gateway.domain.turns import Lease, Turn, TurnKind, TurnState
from gateway.domain.views import Spent, TurnView
from gateway.domain.waits import NewWait, PressVerdict, Wait, WaitKind
from gateway.errors import DragomanError
from gateway.ports import ControlEffect, Store
from gateway.store.memory import MemoryStore
from gateway.store.sqlite import open_sqlite
from tests.contract.scene import offer_again
from tests.support.clock import FakeClock
from tests.support.makers import (
    ANN,
    ANN_TELEGRAM,
    BOB,
    CHAT,
    OTHER_CHAT,
    PAGE,
    WAITING,
    answer,
    approve,
    attachment,
    beginning,
    card,
    control,
    copy_timer,
    deny,
    drop,
    fetched,
    file_slot,
    inbound,
    new_wait,
    press,
    refuse,
    result,
    route,
    said,
    sha,
)
from tests.support.proof import times

MINTED = re.compile(r"\b([ito])[0-9a-f]{16}\b")
NODES = [NodeId("here#1"), NodeId("here#2"), NodeId("there#1")]
PLACES = [CHAT, OTHER_CHAT, PAGE]
NAMESPACES = ["bans", "chats"]
GROUP = SessionId("chat:telegram/default/-100")


@dataclass
class Life:
    """One store and what its random life remembers. Both lives make the same choices, each with its own ids."""

    store: Store
    leases: list[Lease] = field(default_factory=list[Lease])
    sending: list[Slot] = field(default_factory=list[Slot])
    names: dict[str, str] = field(default_factory=dict[str, str])

    def plain(self, value: object) -> str:
        """Return a result as text, minted ids replaced by their order of appearance."""
        return MINTED.sub(lambda found: self.names.setdefault(found[0], f"<{found[1]}{len(self.names)}>"), repr(value))

    async def view(self, pick: float) -> tuple[Lease, TurnView] | None:
        """One of the leases and its turn, if there is any."""
        if not self.leases:
            return None
        lease = self.leases[int(pick * len(self.leases))]
        return lease, await self.store.turn(lease.turn)


Step = Callable[[Life], Awaitable[object]]
Act = Callable[[Store, Lease, TurnView], Awaitable[object]]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def lives(tmp_path: Path, clock: FakeClock) -> AsyncIterator[list[Life]]:
    stores: list[Store] = [MemoryStore(clock), open_sqlite(str(tmp_path / "store.db"), clock)]
    yield [Life(store) for store in stores]
    for store in stores:
        await store.close()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(times(10, 10, small=1)))
async def test_a_random_life_leaves_the_same_rows_and_says_the_same(
    lives: list[Life], clock: FakeClock, seed: int
) -> None:
    random = Random(seed)
    memory, sqlite = lives
    for number in range(220):
        name, step = choose(random, number, clock)
        said_by = [await outcome(life, step) for life in lives]
        assert said_by[0] == said_by[1], f"{number}: {name}"
        if number % 20 == 0:
            await compare(memory, sqlite)
    await compare(memory, sqlite)


async def compare(memory: Life, sqlite: Life) -> None:
    for expected, found in zip(await everything(memory), await everything(sqlite), strict=True):
        assert found == expected


async def outcome(life: Life, step: Step) -> str:
    try:
        return life.plain(await step(life))
    except DragomanError as error:
        return f"{type(error).__name__}: {error}"


async def everything(life: Life) -> list[str]:
    """All that can be read of a store."""
    store = life.store
    sessions = await store.sessions()
    said: list[Any] = [sessions, await store.counts(), await store.open_approvals()]
    said.append(await store.last_contact(ANN, [ANN_TELEGRAM, BOB]))
    said += [await store.items(namespace) for namespace in NAMESPACES]
    said.append(await store.spent(date.min))
    for line in sessions:
        session = line.session.id
        rows = await store.changes(session, 0, 10_000)
        said += [
            *rows.rows,
            rows.rev,
            rows.more,
            await store.older(session, None, 7),
            await store.older(session, rows.rev // 2, 5),
        ]
        said += [await store.changes(session, rows.rev // 2, 9), await store.session(session)]
        said += [await store.history(session, epoch, 4) for epoch in range(line.session.epoch + 1)]
        said += [await store.card_slots(row.item.id) for row in rows.rows if isinstance(row.item, Wait)]
    return [life.plain(one) for one in said]


# --- the choices ----------------------------------------------------------------------------


def choose(random: Random, number: int, clock: FakeClock) -> tuple[str, Step]:
    """Make one step that each life can take; every random choice is made here, once for both."""
    makers = (
        [accept] * 5 + [claim] * 4 + [work] * 12 + [decide] * 4 + [outbox] * 4 + [sweep] * 3 + [people, stop, drops]
    ) + [overhear, amend, refuse_event, tell, put, compact]
    make = random.choice(makers)
    if random.random() < 0.25:
        clock.advance(random.choice([0.0015, 1, 6, 16, 61, 301, 901]))
    return make.__name__, make(random, number, clock)


def where(random: Random) -> tuple[Route, Principal, Conversation, bool]:
    session = None if random.random() < 0.7 else GROUP
    return route(session), random.choice([ANN_TELEGRAM, BOB]), random.choice(PLACES), session is None


def message(random: Random, number: int, who: Principal, place: Conversation, *, direct: bool) -> Inbound:
    known = random.random() < 0.1
    came = (attachment(f"{number}.png", size=number),) if number % 4 == 0 else ()
    said = inbound(f"text {number}", who=who, where=place, direct=direct, key=f"e{number // 2 if known else number}")
    return replace(said, attachments=came)


def accept(random: Random, number: int, _clock: FakeClock) -> Step:
    to, who, place, direct = where(random)
    kind = TurnKind.MODEL if random.random() < 0.6 else TurnKind.COMMAND
    running, say, arrived = (
        random.choice(list(WhileRunning)),
        random.choice([None, WAITING]),
        message(random, number, who, place, direct=direct),
    )
    brings = {"quoted": "q", "reply_to": f"{number}", "unread": "a photo"} if random.random() < 0.3 else {}
    follows = random.choice(["", f"e{number - 1}"])
    arrived = replace(arrived, cut=random.random() < 0.3, follows=follows, **brings)
    return lambda life: life.store.accept(to, arrived, kind, running=running, say_if_waiting=say)


def overhear(random: Random, number: int, _clock: FakeClock) -> Step:
    to = route(random.choice([None, GROUP, GROUP]))
    arrived = message(random, number, BOB, CHAT, direct=False)
    return lambda life: life.store.drop(arrived, Drop(reason=DropReason.CONTEXT, told=False, route=to), "")


def amend(random: Random, number: int, _clock: FakeClock) -> Step:
    _, who, place, direct = where(random)
    arrived = message(random, number, who, place, direct=direct)
    edit = replace(arrived, edits=f"e{number - random.randrange(6)}", text=f"edited {number}")
    return lambda life: life.store.amend(edit)


def refuse_event(random: Random, number: int, _clock: FakeClock) -> Step:
    key, reason = f"e{random.choice([number, number // 2])}", random.choice(list(RefusedReason))
    refused = Refused(channel="telegram", account="default", event_key=key, reason=reason, detail="d", raw="{}")
    return lambda life: life.store.refuse(refused)


def tell(random: Random, number: int, _clock: FakeClock) -> Step:
    key, owners = random.choice(["a", "b"]), {ANN: [ANN_TELEGRAM, BOB], OwnerName("cleo"): []}
    return lambda life: life.store.tell_owners(key, f"told {number}", owners)


def put(random: Random, number: int, _clock: FakeClock) -> Step:
    namespace, key = random.choice(NAMESPACES), f"k{number % 3}"
    ttl = random.choice([None, timedelta(seconds=20)])
    return lambda life: life.store.put(namespace, key, f"v{number}", ttl)


def compact(random: Random, number: int, clock: FakeClock) -> Step:
    """Sum up a history up to one of its turns, ended or not, of this epoch or an older one."""
    session, pick, day = random.choice([route().session, GROUP]), random.random(), clock.now().date()
    usage = Usage(input_tokens=number, output_tokens=1, cached_tokens=1, cost_micros=3)
    spent = random.choice([None, Spent(day=day, principal=BOB, model="small", answers=1, usage=usage)])

    async def step(life: Life) -> object:
        rows = (await life.store.older(session, None, 10_000)).rows
        turns = [row.item for row in rows if isinstance(row.item, Turn)]
        if not turns:
            return None
        turn = turns[int(pick * len(turns))]
        return await life.store.compact(session, turn.epoch, turn.id, f"summary {number}", spent)

    return step


def drops(random: Random, number: int, _clock: FakeClock) -> Step:
    arrived = message(random, number, BOB, CHAT, direct=True)
    refused, text = drop(told=random.random() < 0.7), random.choice(["", "No."])
    if random.random() < 0.3:
        refused = replace(refused, reason=DropReason.UNREADABLE)
    return lambda life: life.store.drop(arrived, refused, text)


def stop(random: Random, number: int, _clock: FakeClock) -> Step:
    to, who, place, direct = where(random)
    effect = random.choice(list(ControlEffect))
    what = control(effect, only=random.choice([None, who]))
    arrived = message(random, number, who, place, direct=direct)
    return lambda life: life.store.control(to, arrived, replace(what, stopped_text=f"stopped by {number}"))


def claim(random: Random, number: int, _clock: FakeClock) -> Step:
    node, limit = random.choice(NODES), random.randint(1, 3)

    async def step(life: Life) -> object:
        claimed = await life.store.claim(node, limit)
        life.leases = [*life.leases, *(one.lease for one in claimed)][-8:]
        return claimed

    return step


def work(random: Random, number: int, clock: FakeClock) -> Step:
    """Something a holder does; leases that were lost are tried too."""
    pick, act = (
        random.random(),
        random.choice([plan, begin, begin, line, ask, ask, run, run, run, bring, lane, end])(random, number, clock),
    )

    async def step(life: Life) -> object:
        found = await life.view(pick)
        return found and await act(life.store, *found)

    return step


def begin(random: Random, number: int, _clock: FakeClock) -> Act:
    """Show what an answer says so far."""
    place, text = random.choice([CHAT, CHAT, PAGE]), random.choice(["Once", "Once upon"])

    async def act(store: Store, lease: Lease, _view: TurnView) -> object:
        return await store.open_slot(lease, replace(said(text, where=place, slot=early_id(lease)), n=number))

    return act


def line(random: Random, _number: int, _clock: FakeClock) -> Act:
    """Say what the turn does."""
    text = random.choice(["thinking", "shell: date"])

    async def act(store: Store, lease: Lease, _view: TurnView) -> object:
        return await store.open_slot(lease, status(lease, text))

    return act


def status(lease: Lease, text: str) -> NewSlot:
    return NewSlot(conversation=CHAT, kind=SlotKind.STATUS, text=text, id=SlotId(f"status-{lease.turn}"))


def early_id(lease: Lease) -> SlotId:
    return SlotId(f"early-{lease.turn}")


def plan(random: Random, number: int, _clock: FakeClock) -> Act:
    place, answered = random.choice(PLACES), answer(f"answer {number}", calls=random.randrange(1, 4))
    over = random.random() < 0.5

    async def act(store: Store, lease: Lease, view: TurnView) -> object:
        slots = [said(f"text {number}", where=place, slot=early_id(lease) if over else None)]
        return await store.plan(lease, answered, given=ungiven(view), slots=slots)

    return act


def ask(random: Random, _number: int, clock: FakeClock) -> Act:
    """Open waits on the planned calls, with a card and a note that name them."""
    ttl = timedelta(seconds=random.choice([30, 3600]))
    kinds = [random.choice([WaitKind.APPROVAL, WaitKind.APPROVAL, WaitKind.CHILD]) for _ in range(3)]
    asked = [new_wait(0, expires_in=ttl, kind=kind) for kind in kinds]
    place = random.choice(PLACES)

    async def act(store: Store, lease: Lease, view: TurnView) -> object:
        planned = [one.n for one in view.steps if one.state is StepState.PLANNED]
        waits = [bind(wait, n) for wait, n in zip(asked, planned, strict=False)]
        named = tuple(wait.id for wait in waits)
        note = NewSlot(conversation=CHAT, kind=SlotKind.NOTE, text="asked", waits=named)
        return await store.open_waits(lease, waits, [card(*named, where=place), note])

    return act


def bind(wait: NewWait, n: int) -> NewWait:
    return replace(wait, n=n, approval=wait.approval and replace(wait.approval, action_sha=sha(n)))


def run(random: Random, number: int, _clock: FakeClock) -> Act:
    """Start or finish a step, asked or not."""
    pick, starts, bound, came = random.random(), random.random() < 0.6, random.random() < 0.9, result(f"r{number}")

    async def act(store: Store, lease: Lease, view: TurnView) -> object:
        n = int(pick * (len(view.steps) + 1))
        wait = next((one.id for one in reversed(view.waits) if one.n == n), None)
        if n == len(view.steps):
            return None
        if starts:
            return await store.start_step(lease, n, wait, beginning(n, action_sha=None if bound else "other"))
        return await store.finish_step(lease, n, came, [file_slot(f"f{number}.png", n=n)] if number % 3 == 0 else [])

    return act


def bring(random: Random, number: int, _clock: FakeClock) -> Act:
    """Store the outcome for a message's files, perhaps known already, or for a message of another turn."""
    pick, found = random.random(), [fetched(f"inbox/{number}.png"), fetched("", trouble="Gone.")]

    async def act(store: Store, lease: Lease, view: TurnView) -> object:
        inputs = [one.id for one in view.inputs] or [InboundId("nobody")]
        return await store.record_fetched(lease, inputs[int(pick * len(inputs))], found)

    return act


def lane(random: Random, _number: int, _clock: FakeClock) -> Act:
    what = random.choice(["park", "park", "park", "release", "renew"])

    async def act(store: Store, lease: Lease, _view: TurnView) -> object:
        moves: dict[str, Callable[[Lease], Awaitable[object]]] = {
            "park": store.park,
            "release": store.release,
            "renew": store.renew,
        }
        return await moves[what](lease)

    return act


def end(random: Random, number: int, clock: FakeClock) -> Act:
    state = random.choice([TurnState.DONE, TurnState.DONE, TurnState.FAILED, TurnState.STOPPED])
    slot = said("end", where=random.choice(PLACES), slot=SlotId(f"s{number}"))
    timer = copy_timer(SlotId(f"s{number}"), expires_in=timedelta(seconds=30))
    last, knows_all, over = (
        replace(answer(f"last {number}"), usage=Usage(output_tokens=number)),
        random.random() < 0.8,
        random.random() < 0.3,
    )

    async def act(store: Store, lease: Lease, view: TurnView) -> object:
        given = ungiven(view) if knows_all else []
        slots = [slot, said("over", slot=early_id(lease)), status(lease, f"{number} s")] if over else [slot]
        return await store.finish_turn(lease, state, answer=last, given=given, slots=slots, timers=[timer])

    return act


def ungiven(view: TurnView) -> list[Received]:
    return [received for received in view.inputs if received.given is None]


def decide(random: Random, number: int, _clock: FakeClock) -> Step:
    pick, who = random.random(), random.choice([ANN_TELEGRAM, BOB])
    verdict: PressVerdict = random.choice([approve(), approve(), deny(), deny(withdraw_siblings=True), refuse()])
    event = press(who=who, key=f"p{number // 2 if random.random() < 0.2 else number}", reason="x" * 1200)

    async def step(life: Life) -> object:
        asked = await life.store.open_approvals()
        wait = asked[int(pick * len(asked))].id if asked else WaitId("none")
        return await life.store.press(event, wait, verdict)

    return step


def outbox(random: Random, number: int, _clock: FakeClock) -> Step:
    what, pick, limit, node = random.random(), random.random(), random.randrange(1, 4), random.choice(NODES)
    channels = random.choice([["telegram"], ["telegram", "slack"]])

    async def step(life: Life) -> object:
        if what < 0.4 or not life.sending:
            taken = await life.store.claim_slots(node, channels, limit)
            life.sending = [*life.sending, *taken]
            return list(taken)
        slot = life.sending[int(pick * len(life.sending))]
        if what < 0.7:
            return await life.store.slot_sent(slot, (f"m{number}",), unsettled=limit == 2)
        if what < 0.78:
            return await life.store.slot_part(slot, (f"p{number}",))
        if what < 0.9:
            doubts = {"uncertain": pick < 0.5, "unsettled": limit == 1}
            return await life.store.slot_retry(slot, timedelta(seconds=5), **doubts, counted=what < 0.85)
        return await life.store.slot_dead(slot, "gone")

    return step


def sweep(random: Random, _number: int, _clock: FakeClock) -> Step:
    what = random.randrange(5)

    async def step(life: Life) -> object:
        store = life.store
        if what < 2:
            # In which order one transition gives back several slots is nobody's business: leave it one.
            for slot in life.sending[1:]:
                await store.slot_retry(slot, timedelta(), uncertain=True)
            life.sending = life.sending[:1]
            return await store.reclaim() if what else await store.void_leases("here")
        return await [store.expire_waits, store.fire_timers, partial(offer_again, store)][what - 2]()

    return step


def people(random: Random, number: int, _clock: FakeClock) -> Step:
    what = random.randrange(6)
    steps: list[Step] = [
        lambda life: life.store.saw_page(ANN),
        lambda life: life.store.add_code(OwnerName("ann"), "code", timedelta(seconds=20)),
        lambda life: life.store.redeem_code("code", f"cookie{number % 3}", timedelta(seconds=60), "here"),
        lambda life: life.store.signed_in(f"cookie{number % 3}"),
        lambda life: life.store.hold("poller", NODES[number % 3], timedelta(seconds=10)),
        lambda life: life.store.alive(NODES[0]),
    ]
    return steps[what]
