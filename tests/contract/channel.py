"""Contract of every channel, tested on the real one between the real engine and its platform.

A channel's test file adds a rig and a class: `class TestSlack(ChannelContract): rig_class = SlackRig`.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from gateway.domain.messages import Conversation, RefusedReason
from gateway.domain.waits import WaitState
from gateway.errors import SendFailed, SendOutcome
from gateway.ports import Channel
from tests.contract.channel_cards import CardContract
from tests.contract.channel_files import FileContract
from tests.contract.channel_rig import (
    QUIET_S,
    Can,
    Rig,
    Who,
    has_files,
    is_whole,
    met,
    needed_by,
    needs,
    no_progress,
    showing,
)

STOPS_WITHIN_S = 1.0
FINE = "https://example.org/fine"
HOSTILE = (
    f"@everyone @person3003 <!channel> <@U0BB> [you won](javascript:alert(1)) [me](tg://user?id=1001) [ok]({FINE}) "
    '<b onclick="x()">bold</b> <script>alert(1)</script> /stop'
)


class ChannelContract(CardContract, FileContract):
    """The suite. Each test is one promise."""

    rig_class: ClassVar[type[Rig]]

    def __init_subclass__(cls) -> None:
        """Remove the tests that the platform or its rig does not support (see `Rig.files`)."""
        missing = {*cls.rig_class.cannot, *([] if has_files(cls.rig_class) else [Can.FILES])}
        for name in dir(cls):
            if needed_by(getattr(cls, name)) & missing:
                setattr(cls, name, None)

    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncIterator[Rig]:
        async with self.rig_class.started(tmp_path) as rig:
            yield rig

    # --- on the way in ------------------------------------------------------------------------

    async def test_direct_message_is_answered_in_its_conversation(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        rig.script("Good morning.")
        event = await rig.say(Who.ANN, "hello", where)
        await rig.see(where, "Good morning.")
        await rig.settled(event)
        (received,) = rig.received()
        message = received.message
        assert (message.principal, message.conversation) == (rig.principal(Who.ANN), where)
        assert (message.direct, message.addressed, message.text) == (True, True, "hello")
        assert [one.text for one in rig.shown(where)] == ["Good morning."]
        assert not any(rig.shown(rig.direct(who)) for who in Who if who is not Who.ANN)

    @needs(Can.OTHERS)
    async def test_a_friend_is_answered_and_a_stranger_is_refused_once(self, rig: Rig) -> None:
        bob, eve = rig.direct(Who.BOB), rig.direct(Who.EVE)
        rig.script("Hello, Bob.")
        await rig.say(Who.BOB, "hello", bob)
        await rig.see(bob, "Hello, Bob.")
        await rig.say(Who.EVE, "hello", eve)
        await rig.see(eve, "only talk to people")
        await rig.settled(await rig.say(Who.EVE, "please", eve))
        assert len(rig.shown(eve)) == 1
        assert [one.principal for one in rig.store.dropped] == [rig.principal(Who.EVE)] * 2
        assert rig.asked() == ["hello"]

    @needs(Can.GROUPS)
    async def test_group_message_is_answered_only_when_addressed(self, rig: Rig) -> None:
        group = rig.group()
        await rig.settled(await rig.say(Who.CLEO, "what a day", group, to_bot=False))
        assert rig.asked() == []
        rig.script("It is noon.")
        await rig.settled(await rig.say(Who.BOB, "what time is it", group))
        await rig.see(group, "It is noon.")
        message = rig.received()[-1].message
        assert (message.principal, message.conversation) == (rig.principal(Who.BOB), group)
        assert (message.direct, message.addressed) == (False, True)
        assert rig.shown(rig.direct(Who.BOB)) == []

    @needs(Can.THREADS)
    async def test_a_thread_is_a_conversation_of_its_own(self, rig: Rig) -> None:
        group, thread = rig.group(), rig.thread()
        rig.script("In the thread.", "In the group.")
        await rig.say(Who.ANN, "one", thread)
        await rig.see(thread, "In the thread.")
        await rig.say(Who.ANN, "two", group)
        await rig.see(group, "In the group.")
        assert [one.message.conversation for one in rig.received()] == [thread, group]
        assert [[one.text for one in rig.shown(place)] for place in (thread, group)] == [
            ["In the thread."],
            ["In the group."],
        ]

    @needs(Can.ACCOUNTS)
    async def test_two_accounts_do_not_mix(self, rig: Rig) -> None:
        one, two = rig.direct(Who.ANN), rig.direct(Who.ANN, second=True)
        assert one != two
        for where, answer in ((one, "That was one."), (two, "That was two.")):
            rig.script(answer)
            await rig.say(Who.ANN, "the same words", where)
            await rig.see(where, answer)
        assert [received.message.conversation for received in rig.received()] == [one, two]
        card = await rig.asks("shell:uptime", where=one)
        assert await rig.pressed(Who.ANN, two, card.handle("Once"))
        assert rig.waits()[0].state is WaitState.OPEN
        assert [one.text for one in rig.shown(two)] == ["That was two."]

    async def test_nothing_is_acknowledged_before_it_is_stored(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        rig.store.open.clear()
        event = await rig.say(Who.ANN, "hello", where)
        await rig.until(lambda: rig.store.asked)
        await asyncio.sleep(QUIET_S)
        assert not rig.acknowledged(event)
        rig.store.open.set()
        await rig.until(lambda: rig.acknowledged(event))

    async def test_event_that_failed_to_store_is_redelivered_once(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        rig.script("At last.")
        rig.store.broken = True
        event = await rig.say(Who.ANN, "hello", where)
        await rig.until(lambda: rig.store.asked)
        await asyncio.sleep(QUIET_S)
        assert not rig.acknowledged(event)
        rig.store.broken = False
        await rig.redeliver(event)
        await rig.see(where, "At last.")
        await rig.settled(event)
        assert rig.asked() == ["hello"]
        assert len(rig.shown(where)) == 1

    async def test_a_redelivered_event_does_nothing(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        rig.script("Once is enough.")
        event = await rig.say(Who.ANN, "hello", where)
        await rig.see(where, "Once is enough.")
        await rig.redeliver(event)
        await rig.settled(event)
        assert (len(rig.received()), len(rig.asked()), len(rig.shown(where))) == (1, 1, 1)

    async def test_the_order_of_a_conversation_is_kept(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        words = [f"word {n}" for n in range(12)]
        rig.script(*(f"Answer {n}." for n in range(12)))
        for word in words:
            await rig.say(Who.ANN, word, where)
        await rig.see(where, "Answer 11.")
        assert rig.asked() == words
        assert [one.text for one in rig.shown(where)] == [f"Answer {n}." for n in range(12)]

    async def test_unreadable_event_blocks_nothing(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        rig.script("Still here.")
        for event in rig.unreadable:
            await rig.push(event)
        await rig.settled(await rig.say(Who.ANN, "hello", where))
        await rig.see(where, "Still here.")
        assert [one.message.text for one in rig.received()] == ["hello"]
        assert (rig.channel.trouble(), rig.task.done()) == ("", False)

    @needs(Can.NOBODY)
    async def test_message_of_no_person_is_refused_with_a_row(self, rig: Rig) -> None:
        events = await rig.from_nobody()
        await rig.until(lambda: all(rig.acknowledged(event) for event in events))
        reasons = [one.reason for one in rig.store.refused]
        assert reasons == [RefusedReason.NOT_A_PERSON] * len(events)
        assert (rig.received(), rig.store.dropped, rig.asked()) == ([], [], [])

    # --- on the way out -----------------------------------------------------------------------

    @pytest.mark.parametrize("size", [3_000, 10_000, 100_000])
    async def test_an_answer_is_shown_whole_however_long(self, rig: Rig, size: int) -> None:
        where = rig.direct(Who.ANN)
        text = "\n".join(f"Line {n:06}." for n in range(size // 13))
        rig.script(text)
        await rig.say(Who.ANN, "all of it", where)
        await rig.until(lambda: is_whole(rig.shown(where), text))

    @needs(Can.RENDERS)
    async def test_an_answer_pings_nobody_runs_nothing_and_forges_nothing(self, rig: Rig) -> None:
        """I48."""
        for where in (rig.group(), rig.direct(Who.ANN)) if Can.GROUPS not in rig.cannot else (rig.direct(Who.ANN),):
            rig.script(HOSTILE)
            await rig.settled(await rig.say(Who.ANN, "what does it say", where))
            seen = await rig.see(where, "alert(1)")
            assert {*seen.active} <= {FINE}
            assert seen.buttons == ()
            assert all(word in seen.text for word in ("everyone", "person3003", "channel", "you won", "bold"))

    @needs(Can.SENDS)
    async def test_an_edit_twice_is_the_same_as_once(self, rig: Rig) -> None:
        where, channel = await met(rig), rig.channel
        ids = await channel.show(showing(where, "one"), no_progress)
        assert ids
        for _ in range(2):
            assert await channel.show(showing(where, "two", shown=ids), no_progress) == ids
            assert [one.text for one in rig.shown(where)] == ["two"]

    @needs(Can.SENDS)
    async def test_edit_adds_missing_and_removes_surplus_messages(self, rig: Rig) -> None:
        where, channel = await met(rig), rig.channel
        short, long = "short", "\n".join(f"Line {n:06}." for n in range(800))
        ids = await channel.show(showing(where, short), no_progress)
        ids = await channel.show(showing(where, long, shown=ids), no_progress)
        assert is_whole(rig.shown(where), long)
        ids = await channel.show(showing(where, short, shown=ids), no_progress)
        assert [one.text for one in rig.shown(where)] == [short]
        for _ in range(2):
            ids = await channel.show(showing(where, "", shown=ids), no_progress)
            assert rig.shown(where) == []

    @needs(Can.SENDS)
    async def test_deleted_message_stays_deleted_when_shown_once_more(self, rig: Rig) -> None:
        """Somebody deleted it, perhaps."""
        where, channel = await met(rig), rig.channel
        shown = showing(where, "one")
        ids = await channel.show(shown, no_progress)
        await channel.show(showing(where, "", shown=ids), no_progress)
        again = replace(shown.slot, message_ids=ids, version=3, sent_version=2, once_more=True)
        assert await channel.show(replace(shown, slot=again), no_progress) == ids
        assert rig.shown(where) == []

    @needs(Can.SENDS)
    async def test_interrupted_send_continues_after_the_sent_part(self, rig: Rig) -> None:
        where, channel = await met(rig), rig.channel
        text = "\n".join(f"Line {n:06}." for n in range(800))
        so_far: list[tuple[str, ...]] = []

        async def stop(message_ids: tuple[str, ...]) -> None:
            so_far.append(message_ids)
            raise SendFailed(outcome=SendOutcome.WAIT)

        with pytest.raises(SendFailed):
            await channel.show(showing(where, text), stop)
        first = [one.id for one in rig.shown(where)]
        assert first
        await channel.show(showing(where, text, shown=so_far[0]), no_progress)
        assert is_whole(rig.shown(where), text)
        seen = rig.shown(where)
        assert [one.id for one in seen][: len(first)] == first
        assert len({one.text for one in seen}) == len(seen)

    @needs(Can.SENDS)
    async def test_uncertain_send_is_shown_once_or_marked_as_repeated(self, rig: Rig) -> None:
        """A platform that can be asked what stands there is asked; elsewhere the second one says what it is."""
        where, channel = await met(rig), rig.channel
        async with rig.failing(rig.lost):
            with pytest.raises(SendFailed) as failed:
                await channel.show(showing(where, "the answer"), no_progress)
        assert (failed.value.outcome, failed.value.creating) == (SendOutcome.UNCERTAIN, True)
        await channel.show(showing(where, "the answer", uncertain=True), no_progress)
        *_, last = seen = rig.shown(where)
        assert last.text.endswith("the answer")
        marked = [one for one in seen if "re-sent" in one.text]
        assert marked == ([] if rig.can_be_asked else [last])
        assert len(seen) - len(marked) <= 1

    @needs(Can.SENDS)
    async def test_platform_failure_fails_the_send_and_typing_reports_bans(self, rig: Rig) -> None:
        where, channel = await met(rig), rig.channel
        ids = await channel.show(showing(where, "before"), no_progress)
        for name, outcome in rig.failures.items():
            async with rig.failing(name):
                with pytest.raises(SendFailed) as failed:
                    await channel.show(showing(where, f"send {name}"), no_progress)
                assert (name, failed.value.outcome) == (name, outcome)
                with pytest.raises(SendFailed) as failed:
                    await channel.show(showing(where, f"edit {name}", shown=ids), no_progress)
                assert not failed.value.creating
                assert await refusal_of_typing(channel, where) in (None, SendOutcome.WAIT), name
            rig.engine.clock.advance(60)  # what was forbidden for a while is tried again
        await channel.show(showing(where, "after", shown=ids), no_progress)
        assert "after" in [one.text for one in rig.shown(where)]

    @needs(Can.TYPING)
    async def test_typing_is_shown(self, rig: Rig) -> None:
        where = await met(rig)
        await rig.channel.typing(where)
        assert rig.typed(where)

    @needs(Can.LIMITS)
    async def test_paces_are_finite_and_named_widest_first(self, rig: Rig) -> None:
        channel = rig.limited()
        places = [rig.direct(Who.ANN), rig.direct(Who.ANN, second=True)]
        places += [] if Can.GROUPS in rig.cannot else [rig.group()]
        places += [] if Can.THREADS in rig.cannot else [rig.thread()]
        for where in places:
            rate_limits = channel.rate_limits(where)
            assert rate_limits
            assert all(0 < pace.every_s < math.inf and pace.burst >= 1 for pace in rate_limits)
            scopes = [pace.scope for pace in rate_limits]
            assert all(narrow.startswith(f"{wide}/") for wide, narrow in itertools.pairwise(scopes))
            assert scopes[0].startswith(f"{rig.name}/{where.account}")

    # --- its life -----------------------------------------------------------------------------

    async def test_a_channel_that_works_has_no_trouble(self, rig: Rig) -> None:
        assert rig.channel.name == rig.name
        await rig.until(lambda: rig.channel.trouble() == "")

    @needs(Can.ALONE)
    async def test_trouble_is_reported_while_it_lasts(self, rig: Rig) -> None:
        async with rig.unreachable():
            await rig.until(rig.channel.trouble)
            assert not rig.task.done()
        await rig.until(lambda: rig.channel.trouble() == "")

    @needs(Can.ALONE)
    async def test_message_during_an_outage_is_answered_after_it(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        rig.script("Back again.")
        async with rig.unreachable():
            await rig.until(rig.channel.trouble)
            event = await rig.say(Who.ANN, "hello", where)
            await asyncio.sleep(QUIET_S)
            assert not rig.acknowledged(event)
        await rig.see(where, "Back again.")

    async def test_cancelled_channel_ends_promptly_and_leaves_nothing(self, rig: Rig) -> None:
        """Cancelled while it waits for the store: the message is not acknowledged, and no task goes on."""
        rig.store.open.clear()
        event = await rig.say(Who.ANN, "hello", rig.direct(Who.ANN))
        await rig.until(lambda: rig.store.asked)
        rig.task.cancel()
        await asyncio.wait([rig.task], timeout=STOPS_WITHIN_S)
        assert rig.task.done()
        await rig.until(lambda: not _of_channels())
        assert not rig.acknowledged(event)


# --- helpers ------------------------------------------------------------------------------------


async def refusal_of_typing(channel: Channel, where: Conversation) -> SendOutcome | None:
    """Return the refusal of a typing indicator; None without one."""
    try:
        await channel.typing(where)
    except SendFailed as refused:
        return refused.outcome
    return None


def _of_channels() -> list[str]:
    """Return the tasks that run code of channels."""
    found: list[str] = []
    for task in asyncio.all_tasks():
        code = getattr(task.get_coro(), "cr_code", None)
        path = Path(code.co_filename) if code is not None else Path()
        if "channels" in path.parts or path.name == "memory_channel.py":
            found.append(f"{task.get_name()} ({path.name})")
    return found
