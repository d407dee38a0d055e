"""Senders: two daemons on one store and one bot. One of them sends at a time, and a stale one changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.domain.events import ANSWERS, NODES, LiveEvent, NodesChanged, TurnReleased
from gateway.domain.ids import TurnId
from gateway.domain.messages import Conversation
from gateway.domain.slots import Slot, SlotKind, SlotState
from tests.fault.rig import until
from tests.fault.two import Machine, Pair, pair
from tests.support.clock import FakeClock
from tests.support.telegram import TOKEN, Call, FakeTelegram, faults

ANN, JOE = 1001, 1002
LEASE_S = 15
CLAIMS_WAIT_S = 1.2
TAKEN_BACK_S = 61
CONFIG = """
[owners]
ann = ["telegram:1001"]
joe = ["telegram:1002"]
[channels.telegram]
token = "file:{token}"
api_root = "{api_root}"
"""


def senders(two: Pair) -> list[Machine]:
    """Return the machines that ever got a slot to send."""
    return [one for one in two.machines if one.way.answered["claim_slots"]]


async def test_one_machine_sends_for_an_account_at_a_time(tmp_path: Path) -> None:
    """However many chats there are. When it stops in order, the other one sends at once."""
    clock = FakeClock()
    async with FakeTelegram().serve() as telegram, pair(tmp_path, clock, _config(tmp_path, telegram)) as two:
        for n in range(6):
            person = (ANN, JOE)[n % 2]
            telegram.say(person, f"hello {n}")
            await telegram.until(lambda who=person, count=n // 2 + 1: len(telegram.shown(who)) == count)
        [sender] = senders(two)
        sender.app.daemon.stop()
        await sender.running
        telegram.say(ANN, "still there?")
        await telegram.until(lambda: len(telegram.shown(ANN)) == 4)
        assert len(senders(two)) == 2


async def test_a_drained_sender_hands_over_before_its_lease_ends(tmp_path: Path) -> None:
    """And takes no turn any more: what is said now is answered by the other one, whoever polls."""
    async with FakeTelegram().serve() as telegram, pair(tmp_path, FakeClock(), _config(tmp_path, telegram)) as two:
        telegram.say(ANN, "hello")
        await telegram.until(lambda: len(telegram.shown(ANN)) == 1)
        [sender] = senders(two)
        membership = sender.app.daemon.membership
        await two.store.drain(membership.standing().name, drained=True)
        two.store.event_bus.publish(NODES, NodesChanged())
        await until(lambda: membership.drained)
        await asyncio.sleep(CLAIMS_WAIT_S)  # claims that wait for something go on
        turns = sender.way.answered["claim"]
        telegram.say(ANN, "still there?")
        await telegram.until(lambda: len(telegram.shown(ANN)) == 2)
        assert (len(senders(two)), sender.way.answered["claim"]) == (2, turns)


async def test_a_stale_sender_changes_nothing(tmp_path: Path) -> None:
    """Suspended while Telegram is slow: the other one sends again, marked; awake, the first one's result is none."""
    clock = FakeClock()
    async with FakeTelegram().serve() as telegram, pair(tmp_path, clock, _config(tmp_path, telegram)) as two:
        telegram.script(lambda call: faults.slow(hold_s=1.0) if _is_first(telegram, call) else None)
        telegram.say(ANN, "hello")
        await telegram.until(lambda: len(telegram.shown(ANN)) == 1)
        [stale] = senders(two)
        stale.suspend()
        clock.advance(TAKEN_BACK_S)
        await telegram.until(lambda: len(telegram.shown(ANN)) == 2)
        await until(lambda: _answer(two).state is SlotState.SENT)
        held, before = _answer(two), two.store.rev
        stale.wake()
        await until(lambda: stale.way.answered["slot_sent"] == 0 and stale.way.asked["slot_sent"] > 0)
        assert (_answer(two), two.store.rev) == (held, before)
        assert "(re-sent)" in telegram.shown(ANN)[1].text


async def test_answer_deltas_reach_their_sender_alone(tmp_path: Path) -> None:
    """Whichever machine runs the turn. Without a sender, that one."""
    async with FakeTelegram().serve() as telegram, pair(tmp_path, FakeClock(), _config(tmp_path, telegram)) as two:
        buses = [one.way.event_bus for one in two.machines]
        where = Conversation(channel="telegram", account="main", chat="1001")
        async with buses[0].subscribe(ANSWERS) as first, buses[1].subscribe(ANSWERS) as second:
            buses[1].publish_to_sender(where, TurnReleased(turn=TurnId("t-0")))
            assert await anext(second) == TurnReleased(turn=TurnId("t-0"))
            telegram.say(ANN, "hello")
            await telegram.until(lambda: len(telegram.shown(ANN)) == 1)
            [sender] = senders(two)
            of_sender, of_other = (first, second) if sender is two.machines[0] else (second, first)
            buses[0].publish_to_sender(where, TurnReleased(turn=TurnId("t-1")))
            buses[1].publish_to_sender(where, TurnReleased(turn=TurnId("t-2")))
            ends = [event.turn async for event in until_turn(of_sender, "t-2")]
            assert ends[-2:] == ["t-1", "t-2"]
            buses[0].publish(ANSWERS, TurnReleased(turn=TurnId("t-3")))
            assert not {"t-1", "t-2"} & {event.turn async for event in until_turn(of_other, "t-3")}


async def until_turn(events: AsyncIterator[LiveEvent], last: str) -> AsyncIterator[TurnReleased]:
    """Yield the ends of turns up to the one of `last`."""
    async for event in events:
        if isinstance(event, TurnReleased):
            yield event
            if event.turn == last:
                return


def _config(folder: Path, telegram: FakeTelegram) -> str:
    token = folder / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    return CONFIG.format(token=token, api_root=telegram.api_root)


def _is_first(telegram: FakeTelegram, call: Call) -> bool:
    return call.method == "sendMessage" and not telegram.shown(ANN)


def _answer(two: Pair) -> Slot:
    [found] = [row.slot for row in two.store.slots.values() if row.slot.kind is SlotKind.ANSWER]
    return found
