"""Status line end to end: from a turn's calls and children to the messages of a chat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.domain.slots import RenderedSlot, Slot, SlotKind, SlotState
from gateway.domain.steps import Answer, Usage
from gateway.domain.tools import Park, Risk, ToolResult
from gateway.errors import SendFailed, SendOutcome
from gateway.ports import Task, ToolContext
from tests.support.engine import Engine
from tests.support.fakes import ANN_PAGE, FakeChannel, FakeTool, Text, calls, in_background, until
from tests.support.makers import CHAT
from tests.support.patience import PATIENCE_S
from tests.support.sending import holds


@asynccontextmanager
async def at_work(engine: Engine, channel: FakeChannel) -> AsyncGenerator[None]:
    """Run turns and the delivery of their slots."""
    channel.streams = True
    delivery, worker = engine.delivery(channel), engine.worker()
    async with (
        asyncio.timeout(PATIENCE_S),
        in_background(delivery.run()),
        in_background(engine.live_edits(delivery).run()),
        in_background(worker.run()),
    ):
        yield


def of_status(showings: list[RenderedSlot]) -> list[str]:
    """Return the texts of the status lines."""
    return [one.text for one in showings if one.slot.kind is SlotKind.STATUS]


@pytest.fixture
def read() -> FakeTool:
    return FakeTool(name="read", risk=Risk.READ, hold=True)


async def test_a_call_that_takes_time_is_seen_at_work_and_summed_up(tmp_path: Path, read: FakeTool) -> None:
    usage = Usage(input_tokens=4_000, output_tokens=120, cost_micros=12_000)
    engine = Engine(tmp_path, [read], script=[calls("read:`notes`"), Answer(text="Done.", usage=usage)])
    channel = FakeChannel()
    async with at_work(engine, channel):
        await engine.say()
        await until(lambda: holds(of_status(channel.sent) == ["▸ read: `notes`"]))
        engine.clock.advance(6)
        await until(lambda: holds(of_status(channel.edited) == ["▸ read: `notes` · 6 s"]))
        engine.clock.advance(6)
        read.release.set()
        await until(lambda: holds(of_status(channel.edited)[-1].startswith("1 call")))
        await until(lambda: holds(channel.sent[-1].text == "Done."))
        engine.clock.advance(60)
        await asyncio.sleep(0.05)

    assert of_status(channel.edited)[-1] == "1 call (read), 12 s, 4,120 tokens, $0.012"
    assert len(of_status(channel.sent)) == 1


async def test_a_quick_call_is_not_seen(tmp_path: Path, read: FakeTool) -> None:
    read.hold = False
    engine = Engine(tmp_path, [read], script=[calls("read:notes")])
    channel = FakeChannel()
    async with at_work(engine, channel):
        await engine.say()
        await until(lambda: holds(bool(channel.sent)))

    assert [one.text for one in channel.sent] == ["That is all."]
    assert [slot.kind for slot in await engine.slots()] == [SlotKind.ANSWER]


async def test_page_has_no_status_line(tmp_path: Path, read: FakeTool) -> None:
    engine = Engine(tmp_path, [read], script=[calls("read:notes")])
    async with at_work(engine, FakeChannel()):
        await engine.say(where=ANN_PAGE)
        await read.until_begun()
        await asyncio.sleep(1.1)
        read.release.set()
        await until(lambda: holds(not [row for row in engine.store.turns.values() if row.turn.ended_at is None]))

    assert [slot.kind for slot in await engine.slots()] == [SlotKind.ANSWER]


async def test_activity_of_children_is_in_the_status_line_of_the_root(tmp_path: Path, read: FakeTool) -> None:
    async def spawn(ctx: ToolContext, args: Text) -> ToolResult | Park:
        return await ctx.sessions.spawn(Task(text=args.text, tools=["read"]))

    spawning = FakeTool(name="spawn", body=spawn)
    script = [calls("spawn:disk"), calls("read:df"), Answer(text="Half full."), Answer(text="It is half full.")]
    engine = Engine(tmp_path, [read, spawning], script=script)
    channel = FakeChannel()
    async with at_work(engine, channel):
        await engine.say()
        await read.until_begun()
        await until(lambda: holds(of_status(channel.sent) == ["▸ waits for a sub-session"]))
        engine.clock.advance(1.5)
        await until(lambda: holds(of_status(channel.edited) == ["1 sub-session: disk: read: df"]))
        engine.clock.advance(1.5)
        read.release.set()
        await until(lambda: holds(channel.sent[-1].text == "It is half full."))
        await until(lambda: holds(of_status(channel.edited)[-1].startswith("1 call (spawn), 3 s")))

    assert len(of_status(channel.sent)) == 1
    assert [slot.kind for slot in await engine.slots() if slot.conversation == CHAT].count(SlotKind.STATUS) == 1


async def test_unshowable_status_line_is_not_reported(tmp_path: Path, read: FakeTool) -> None:
    engine = Engine(tmp_path, [read], script=[calls("read:notes")])
    channel = FakeChannel(outcomes=[SendFailed("no", outcome=SendOutcome.DEAD)])
    async with at_work(engine, channel):
        await engine.say()
        await until(lambda: holds(any(one.state is SlotState.DEAD for one in _stored(engine))))
        await asyncio.sleep(0.05)
        assert [one.kind for one in _stored(engine)] == [SlotKind.STATUS]
        read.release.set()
        await until(lambda: holds([one.text for one in channel.sent][-1:] == ["That is all."]))


def _stored(engine: Engine) -> list[Slot]:
    return [row.slot for row in engine.store.slots.values()]
