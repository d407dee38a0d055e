"""Fifteenth: files, the web and a chart from a chat: on Telegram, in Slack and on the page, with kills."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.scenario.day_with_tools import (
    ANN,
    CHANGE,
    CHANGED,
    CHART,
    OWNER,
    SETTINGS,
    SLACK_ANN,
    TELEGRAM,
    TO_ANN,
    WEIGH,
    Chat,
    PageChat,
    Sentence,
    SlackChat,
    TelegramChat,
    config,
    plain,
    prices,
    workspace,
)
from tests.support.browser import DESKTOP, PHONE, Person, chromium, sign_in
from tests.support.daemon import Daemon
from tests.support.model_server import ScriptedModel
from tests.support.pages import Pages, serving
from tests.support.slack.rig import slack_rig
from tests.support.telegram import FakeTelegram

FAST = "per_channel_per_s = 0\noverall_per_min = 0"


@pytest_asyncio.fixture
async def pages() -> AsyncIterator[Pages]:
    """Web pages on loopback, which the owner permits."""
    async with serving() as found:
        yield found


async def through_kills(chat: Chat, model: ScriptedModel, sentence: Sentence, point: str) -> None:
    """Say a sentence. The daemon dies before the press, and at a point between the approval and the answer."""
    model.rules.extend(sentence.rules())
    await chat.say(sentence.words)
    await chat.see_card(sentence.card)
    await chat.daemon.kill()
    await chat.start(point)
    await chat.press(sentence.card)
    assert await chat.daemon.died() < 0
    await chat.start()
    await chat.see(sentence.answer)


async def a_day(chat: Chat, model: ScriptedModel, pages: Pages, points: tuple[str, str, str, str]) -> None:
    """Say all four sentences. Each is answered once, and has its effect once."""
    folder = workspace(chat.daemon)
    await chat.start()
    settings = folder / "conf/settings.toml"
    said = (CHANGE, prices(pages), CHART)
    await through_kills(chat, model, CHANGE, points[0])
    assert settings.read_text() == CHANGED != SETTINGS
    await through_kills(chat, model, said[1], points[1])
    told = str(model.requests[-1].body["messages"])
    assert "Rye" in told
    assert "4.20 €" in told
    await through_kills(chat, model, CHART, points[2])
    assert (folder / "chart.png").read_bytes().startswith(b"\x89PNG")
    await through_kills(chat, model, WEIGH, points[3])
    assert "2800 g of rye flour" in str(model.requests[-1].body["messages"])
    assert [chat.answers(one.answer) for one in (*said, WEIGH)] == [1, 1, 1, 1]
    assert len(chat.pictures()) == 1


@pytest_asyncio.fixture
async def telegram(tmp_path: Path, model: ScriptedModel, pages: Pages) -> AsyncIterator[TelegramChat]:
    """The owner's chat there."""
    async with FakeTelegram().serve() as found:
        table = TELEGRAM.format(api_root=found.api_root)
        own = config(f'"telegram:{ANN}"', model.base_url, pages) + table
        chat = TelegramChat(daemon=Daemon(folder=tmp_path, config=own, warm=True), telegram=found)
        try:
            yield chat
        finally:
            await chat.daemon.kill()
        assert found.surprises == []


async def test_a_change_through_two_kills(telegram: TelegramChat, model: ScriptedModel) -> None:
    """Killed with the card open, and when the file has changed: it is changed once, and the person is told."""
    folder = workspace(telegram.daemon)
    await telegram.start()
    await through_kills(telegram, model, CHANGE, "J13:kill")
    assert (folder / "conf/settings.toml").read_text() == CHANGED
    assert telegram.answers(CHANGE.answer) == 1


@pytest.mark.whole("nine lives of a daemon; one sentence of it stays")
async def test_a_day_on_telegram(telegram: TelegramChat, model: ScriptedModel, pages: Pages) -> None:
    """The file changes after J12 or not at all; a page is fetched again; a sent chart is not sent again."""
    await a_day(telegram, model, pages, ("J12:kill", "J13:kill", "J14:kill:2", "J14:kill"))


@pytest.mark.whole("nine lives of a daemon; one sentence stays, on Telegram")
async def test_a_day_in_slack(tmp_path: Path, model: ScriptedModel, pages: Pages) -> None:
    """Killed when the file has changed, when the model has answered, and when the chart is about to be sent."""
    own = config(f'"slack:T0AA/{SLACK_ANN}"', model.base_url, pages)
    async with slack_rig(tmp_path, config=own, limits=FAST, warm=True) as rig:
        rig.slack.person(SLACK_ANN, "ann")
        await a_day(SlackChat(rig=rig), model, pages, ("J13:kill", "J6:kill", "J11:kill:2", "J6:kill"))
        assert rig.slack.troubles == []
        assert rig.slack.shown(TO_ANN)


@pytest.mark.whole("nine lives of a daemon; one sentence stays, on Telegram")
async def test_a_day_on_the_page(tmp_path: Path, model: ScriptedModel, pages: Pages) -> None:
    """Killed when the approval is used up, when the page's text is stored, and in the middle of the sending."""
    chat = PageChat(daemon=Daemon(folder=tmp_path, config=config("", model.base_url, pages), warm=True))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(chat.daemon.kill)
        stack.push_async_callback(chat.line.aclose)
        await a_day(chat, model, pages, ("J11:kill", "J14:kill", "J12:kill:2", "J14:kill"))


# --- what it looks like -------------------------------------------------------------------------


async def as_seen(person: Person, model: ScriptedModel, said: Sequence[Sentence], size: str) -> None:
    """Say the sentences on the page, press each card, and keep what is seen."""
    for n, sentence in enumerate(said):
        model.rules.extend(sentence.rules())
        await person.say(sentence.words)
        await expect(person.card()).to_contain_text(sentence.card)
        await person.shot(f"tools-{size}-{n}-card")
        await person.press("once")
        await person.sees(plain(sentence.answer))
        await person.shot(f"tools-{size}-{n}-answer")
    picture = person.page.get_by_test_id("picture").last
    await expect(picture).to_be_visible()
    assert await picture.evaluate("one => one.naturalWidth") == 400
    await person.shot(f"tools-{size}-chart")
    wide = await person.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, "the page scrolls sideways"


@pytest.mark.whole("a real Chromium; the same sentences without one stay")
@pytest.mark.parametrize(("name", "size"), [("desktop", DESKTOP), ("phone", PHONE)])
async def test_cards_and_charts_in_a_browser(
    tmp_path: Path, model: ScriptedModel, pages: Pages, name: str, size: tuple[int, int]
) -> None:
    """The diff, the host and the script on their cards; the answers below, with the chart."""
    daemon = Daemon(folder=tmp_path, config=config("", model.base_url, pages), warm=True)
    try:
        workspace(daemon)
        await daemon.start()
        async with chromium() as browser:
            context = await browser.new_context(viewport={"width": size[0], "height": size[1]})
            person = await sign_in(context, daemon, OWNER)
            await as_seen(person, model, (CHANGE, prices(pages), CHART), name)
            assert person.complaints == []
    finally:
        await daemon.kill()
