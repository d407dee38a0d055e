"""Delivery of files: path, timeout and uncertain outcomes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.domain.ids import SessionId, SlotId, main_session
from gateway.domain.slots import MAY_TAKE_AT_MOST_S, NewSlot, RenderedSlot, SlotKind, SlotState, file_may_take_s
from gateway.domain.tools import Artifact, Effect, Risk
from gateway.errors import FileAway, SendFailed, SendOutcome
from gateway.outbound.message_actor import SEND_WITHIN_S
from gateway.store.kernel.rows import FILE_SENDING_AT_MOST
from tests.support.engine import Engine
from tests.support.fakes import FakeChannel, FakeTool, in_background, until
from tests.support.makers import ANN, CHAT, file_slot, result
from tests.support.sending import now

SECRET = "correct horse battery"
UNCERTAIN = SendFailed("no", outcome=SendOutcome.UNCERTAIN)
OWN_SESSION = main_session(ANN)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)], secrets=[SECRET])


async def shown_file(engine: Engine, file: str, *outcomes: SendFailed | None) -> list[RenderedSlot]:
    """Show a file of a call once, or as often as it fails."""
    kept = Artifact(file=file, name="Bill.pdf", media_type="application/pdf")
    lease = await engine.planned("shell")
    new = NewSlot(conversation=CHAT, kind=SlotKind.FILE, text=f"shell: {SECRET}", n=1, file=kept)
    assert await engine.store.finish_step(lease, 1, result(), [new])
    channel = FakeChannel(outcomes=list(outcomes))
    for _ in range(len(outcomes) + 1):
        delivery = engine.delivery(channel)
        async with in_background(delivery.run()) as running:
            await asyncio.sleep(0.03)
            delivery.drain()
            await running
        engine.clock.advance(120)
    return channel.sent


async def test_file_is_shown_with_its_path_and_redacted_caption(engine: Engine) -> None:
    path = engine.workspaces.outputs(OWN_SESSION) / "t-1-1.pdf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"%PDF-")
    (showing,) = await shown_file(engine, "t-1-1.pdf")

    assert (showing.path, showing.slot.kind) == (path, SlotKind.FILE)
    assert SECRET not in showing.text
    assert showing.text.startswith("shell: ")


@pytest.mark.parametrize("file", ["gone.pdf", "link.pdf", "folder.pdf", "../secret.pdf", "a\x00b"])
async def test_caption_alone_is_shown_for_a_missing_or_foreign_file(engine: Engine, file: str) -> None:
    folder = engine.workspaces.outputs(OWN_SESSION)
    (folder / "folder.pdf").mkdir(parents=True)
    (folder.parent / "secret.pdf").write_bytes(b"secret")
    (folder / "link.pdf").symlink_to(folder.parent / "secret.pdf")
    (showing,) = await shown_file(engine, file)

    assert showing.path is None


@pytest.mark.parametrize(("length", "state"), [(200_000, SlotState.SENT), (5, SlotState.DUE)])
async def test_a_file_is_given_time_by_its_length(engine: Engine, length: int, state: SlotState) -> None:
    """The long file's channel answers later than the timeout of a short one."""
    path = engine.workspaces.outputs(OWN_SESSION) / "t-1-1.bin"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(length))
    lease = await engine.planned("shell")
    assert await engine.store.finish_step(lease, 1, result(), [file_slot("t-1-1.bin", n=1)])
    (file,) = [one for one in await engine.slots() if one.kind is SlotKind.FILE]
    channel = FakeChannel(slow={CHAT.chat: asyncio.Event()})
    delivery = engine.delivery(channel)
    delivery.messages.send_within_s = 0.1
    async with in_background(delivery.run()) as running:
        await asyncio.sleep(0.5)
        channel.slow[CHAT.chat].set()
        delivery.drain()
        await running
    assert now(engine, file.id).state is state


@pytest.mark.parametrize(
    ("length", "seconds"), [(0, 0), (131_072, 1), (50_000_000, 381), (10**9, MAY_TAKE_AT_MOST_S), (-1, 0)]
)
def test_time_limit_of_an_upload(length: int, seconds: float) -> None:
    """Longer than a slow upload takes, and shorter than the time after which the sweep reclaims the slot."""
    assert round(file_may_take_s(length)) == seconds
    assert timedelta(seconds=SEND_WITHIN_S + MAY_TAKE_AT_MOST_S + 10) < FILE_SENDING_AT_MOST


async def test_a_file_whose_showing_is_in_doubt_is_repeated_and_marked(engine: Engine) -> None:
    (showing,) = await shown_file(engine, "t-1-1.pdf", UNCERTAIN)

    assert showing.slot.uncertain


async def test_a_file_on_a_node_that_cannot_be_asked_is_tried_again(engine: Engine) -> None:
    """Its caption alone would be all that people ever see of it."""

    async def away(_session: SessionId, _name: str) -> None:
        raise FileAway("The file is on the node first, which cannot be reached now.")

    lease = await engine.planned("shell")
    assert await engine.store.finish_step(lease, 1, result(), [file_slot("t-1-1.bin", n=1)])
    (file,) = [one for one in await engine.slots() if one.kind is SlotKind.FILE]
    channel = FakeChannel()
    delivery = engine.delivery(channel)
    delivery.messages.find = away
    async with in_background(delivery.run()) as running:
        await until(lambda: _tried(engine, file.id))
        delivery.drain()
        await running
    assert now(engine, file.id).state is SlotState.DUE
    assert [one for one in channel.sent if one.slot.kind is SlotKind.FILE] == []


async def _tried(engine: Engine, slot: SlotId) -> bool:
    return now(engine, slot).attempts > 0
