"""Eighteenth: a colleague: asked by voice, it asks back, keeps a list and fills in a form, through a death."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import FilePayload, expect

from tests.scenario.day_with_tools import ANN, OWNER, SLACK_ANN, TELEGRAM, TO_ANN, SlackChat, TelegramChat
from tests.support.browser import DESKTOP, chromium, sign_in
from tests.support.daemon import Daemon
from tests.support.model_server import Call, Question, Reply, ScriptedModel
from tests.support.pages import Pages, serving
from tests.support.patience import PATIENCE_S
from tests.support.slack.rig import slack_rig
from tests.support.telegram import FakeTelegram
from tests.support.voice_server import OGG, VoiceServer

WORDS = "order the bread for the feast"
HEARD = f"Heard: {WORDS}"
ASKED, DAY = "Which day suits?", "Friday"
ANSWER = "The bread is ordered for Friday."
FAST = "per_channel_per_s = 0\noverall_per_min = 0"
CONFIG = """
[owners]
ann = [{principals}]
[model]
name = "openai:scripted"
base_url = "{model}"
[voice]
base_url = "{voice}"
[tools.browser]
hosts = ["{host}"]
"""


def call(tool: str, **arguments: Any) -> Reply:
    """Return an answer with one call."""
    return Reply(calls=(Call(name=tool, arguments=json.dumps(arguments)),))


def todo(ask: str, order: str) -> Reply:
    """Return the call that writes the list."""
    items = [{"text": "ask for the day", "state": ask}, {"text": "fill in the form", "state": order}]
    return call("todo_write", todos=items)


def steps(url: str, ref: Callable[[str], str]) -> list[Callable[[], Reply]]:
    """Return what a model does with the order, one answer after the other. `ref`: of a name in the last result."""
    return [
        lambda: todo("doing", "open"),
        lambda: call("ask_user", questions=[{"question": ASKED, "options": ["Monday", DAY]}]),
        lambda: todo("done", "doing"),
        lambda: call("browser", action="open", url=url),
        lambda: call("browser", action="type", ref=ref("Name"), text=DAY),
        lambda: call("browser", action="snapshot"),
        lambda: call("browser", action="select", ref=ref("Colour"), values=["Green"]),
        lambda: call("browser", action="snapshot"),
        lambda: call("browser", action="click", ref=ref("Send")),
        lambda: todo("done", "done"),
        lambda: Reply(text=ANSWER),
    ]


def colleague(url: str, question: Question) -> Reply:
    """Answer as a model that works on the order."""
    seen = question.outcomes[-1].text if question.outcomes else ""

    def ref(name: str) -> str:
        found = re.search(rf'"{name}".*?\[ref=(\w+)\]', seen)
        assert found is not None, seen
        return found[1]

    return steps(url, ref)[question.results]()


def sent(pages: Pages, model: ScriptedModel) -> bool:
    """Return whether the form was sent once, as it was filled in."""
    told = json.dumps(model.requests[-1].body["messages"])
    return f"You said name={DAY}, colour=g" in told and [path for path in pages.asked if path.endswith("/said")] == [
        f"{pages.scope}/said"
    ]


class TelegramDesk(TelegramChat):
    """On Telegram."""

    async def record(self) -> None:
        """Send a voice message."""
        self.telegram.attach(ANN, "voice", OGG)

    async def choose(self, option: str) -> None:
        """Press an option."""
        card = await self.telegram.see(ANN, ASKED, button=option)
        self.telegram.press(ANN, card, option)

    def lists(self) -> list[str]:
        """Return the lists."""
        return [one.text for one in self.telegram.shown(ANN) if "fill in the form" in one.text]


class SlackDesk(SlackChat):
    """In Slack."""

    async def record(self) -> None:
        """Send a voice message."""
        self.slack.attach(SLACK_ANN, OGG, name="audio_message.webm", mimetype="audio/webm")

    async def choose(self, option: str) -> None:
        """Press an option."""
        card = await self.slack.see(TO_ANN, ASKED, button=option)
        self.slack.press(SLACK_ANN, card, option)

    def lists(self) -> list[str]:
        """Return the lists."""
        return [one.text for one in self.slack.shown(TO_ANN) if "fill in the form" in one.text]


async def through_a_death(chat: TelegramDesk | SlackDesk, shop: str) -> None:
    """Ask by voice; the daemon dies with its question open, and the answer goes to its next life. One card a host."""
    await chat.start()
    await chat.record()
    await chat.see(HEARD)
    await chat.see(ASKED)
    await chat.daemon.kill()
    await chat.start()
    await chat.choose(DAY)
    await chat.press(shop)
    await chat.see(ANSWER)
    assert [chat.answers(text) for text in (HEARD, ANSWER)] == [1, 1]


def done(lists: list[str]) -> bool:
    """Return whether the list is one message, and all of it is done."""
    return len(lists) == 1 and "2 of 2 done" in lists[0]


@pytest_asyncio.fixture
async def pages() -> AsyncIterator[Pages]:
    """A shop on loopback, which the owner permits."""
    async with serving() as found:
        yield found


@pytest_asyncio.fixture
async def ear() -> AsyncIterator[VoiceServer]:
    """A server that hears the order."""
    async with VoiceServer([WORDS]) as server:
        yield server


@pytest_asyncio.fixture
async def model(pages: Pages) -> AsyncIterator[ScriptedModel]:
    """The colleague."""
    async with ScriptedModel(answering=lambda question: colleague(f"{pages.here}/form", question)) as found:
        yield found


def config(principals: str, model: ScriptedModel, ear: VoiceServer, pages: Pages) -> str:
    """Return the configuration, without its channel."""
    return CONFIG.format(principals=principals, model=model.base_url, voice=ear.base_url, host=pages.scope)


@pytest.mark.whole("a browser and two lives; each part has cheap tests of its own")
async def test_an_order_on_telegram(tmp_path: Path, model: ScriptedModel, ear: VoiceServer, pages: Pages) -> None:
    """The list and the card are one message each, the form is sent once."""
    async with FakeTelegram().serve() as telegram:
        own = config(f'"telegram:{ANN}"', model, ear, pages) + TELEGRAM.format(api_root=telegram.api_root)
        chat = TelegramDesk(daemon=Daemon(folder=tmp_path, config=own, warm=True), telegram=telegram)
        try:
            await through_a_death(chat, pages.scope)
            await telegram.until(lambda: done(chat.lists()))
        finally:
            await chat.daemon.kill()
        assert telegram.surprises == []
    assert sent(pages, model)


@pytest.mark.whole("a browser and two lives; each part has cheap tests of its own")
async def test_an_order_in_slack(tmp_path: Path, model: ScriptedModel, ear: VoiceServer, pages: Pages) -> None:
    """The same there."""
    own = config(f'"slack:T0AA/{SLACK_ANN}"', model, ear, pages)
    async with slack_rig(tmp_path, config=own, limits=FAST, warm=True) as rig:
        rig.slack.person(SLACK_ANN, "ann")
        chat = SlackDesk(rig=rig)
        await through_a_death(chat, pages.scope)
        await rig.slack.until(lambda: done(chat.lists()))
        assert rig.slack.troubles == []
    assert sent(pages, model)


@pytest.mark.whole("a browser and two lives; each part has cheap tests of its own")
async def test_an_order_on_the_page(tmp_path: Path, model: ScriptedModel, ear: VoiceServer, pages: Pages) -> None:
    """In a real Chromium that stays open while the daemon dies."""
    note: FilePayload = {"name": "note.ogg", "mimeType": "audio/ogg", "buffer": OGG}
    async with AsyncExitStack() as stack:
        daemon = Daemon(folder=tmp_path, config=config("", model, ear, pages), warm=True)
        stack.push_async_callback(daemon.kill)
        await daemon.start()
        browser = await stack.enter_async_context(chromium())
        width, height = DESKTOP
        context = await browser.new_context(viewport={"width": width, "height": height})
        ann = await sign_in(context, daemon, OWNER)
        page = ann.page
        await page.get_by_test_id("file-input").set_input_files([note])
        await expect(page.get_by_test_id("chip").and_(page.locator("[data-state=ready]"))).to_have_count(1)
        await page.get_by_test_id("composer").press("Enter")
        await ann.sees(HEARD)
        await ann.sees(ASKED)
        await ann.shot("colleague-1-asks")
        await daemon.kill()
        await daemon.start()
        await page.get_by_role("button", name=DAY).click(timeout=PATIENCE_S * 1000)
        await ann.press("once")
        await ann.sees(ANSWER, within_s=60)
        await ann.sees("2 of 2 done")
        await ann.shot("colleague-2-done")
        await expect(page.get_by_text(HEARD)).to_have_count(1)
    assert sent(pages, model)
