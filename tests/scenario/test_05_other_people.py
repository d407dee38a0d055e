"""Fifth: an owner in a chat, another person, a group and a stranger, each with what they may have."""

from __future__ import annotations

import pytest

from tests.support.daemon import Daemon, page_of
from tests.support.platform import FakePlatform

ANN, BOB, EVE = "1001", "2002", "6666"


@pytest.mark.whole("the same rules as in the scenario of Telegram, which stays")
async def test_the_owners_chat_and_page_are_one_session(on_platform: Daemon, platform: FakePlatform) -> None:
    """A command from the chat: the card is there, the page shows it live, and the page may press it."""
    async with page_of(on_platform) as page:
        await platform.say(ANN, "/shell env echo one session")
        card = await platform.see(f"d{ANN}", "card", "one session")
        asked = await page.until_row("approval", lambda row: row["state"] == "open")
        assert (await page.press(page.button(asked, "once")))["result"] == "approved"
        await platform.see(f"d{ANN}", "answer", "one session")
        await platform.until(lambda: card.edits > 0 and not card.rows[0]["buttons"])
        assert "ann allowed once" in card.rows[0]["outcome"]


@pytest.mark.whole("the same rules as in the scenario of Telegram, which stays")
async def test_a_press_in_the_chat_runs_it(on_platform: Daemon, platform: FakePlatform) -> None:
    """The same from the chat's own button."""
    await platform.say(ANN, "/shell env echo pressed")
    card = await platform.see(f"d{ANN}", "card", "pressed")
    key = await platform.press(ANN, card.handle("once"))
    assert (await platform.acked(key))["result"] == "approved"
    await platform.see(f"d{ANN}", "answer", "pressed")


async def test_why_names_who_allowed_a_call(on_platform: Daemon, platform: FakePlatform) -> None:
    """`/why` after it ran, before it is made, and for a refusal: who allowed it, or what decided."""
    await platform.say(ANN, "/shell touch made-by-ann")
    card = await platform.see(f"d{ANN}", "card", "made-by-ann")
    await platform.say(ANN, "/why")
    await platform.see(f"d{ANN}", "reply", "It waits for a decision: execute needs an approval.")
    await platform.press(ANN, card.handle("once"))
    await platform.see(f"d{ANN}", "answer", "exit 0")
    await platform.say(ANN, "/why 1")
    told = await platform.see(f"d{ANN}", "reply", "allowed this one call at")
    assert f"{ANN} allowed this one call at" in told.text
    await platform.say(ANN, "/why shell rm -rf x")
    explained = await platform.see(f"d{ANN}", "reply", "**ask**")
    assert "default for execute in main: ask" in explained.text


async def test_another_person_has_no_shell(on_platform: Daemon, platform: FakePlatform) -> None:
    """`shell` exists only where an owner speaks: for others it is like a command that nobody has."""
    await platform.say(BOB, "/shell id")
    await platform.see(f"d{BOB}", "reply", "There is no command `/shell`.")
    await platform.say(BOB, "/tools")
    tools = await platform.see(f"d{BOB}", "reply", "Tools of this session")
    assert "shell" not in tools.text


async def test_a_group_asks_the_owner_elsewhere(on_platform: Daemon, platform: FakePlatform) -> None:
    """A dangerous call of a group: the card goes to the owner's own chat, a note to the group."""
    on_platform.config += '[tools.shell]\npermission = "always"\n'
    await on_platform.stop()
    await on_platform.start()
    await platform.say(ANN, "/status")
    await platform.see(f"d{ANN}", "reply", "This session")
    await platform.say(BOB, "/shell echo for the room", chat="room", direct=False)
    card = await platform.see(f"d{ANN}", "card", "for the room")
    await platform.see("room", "note", "asked")
    stolen = await platform.press(BOB, card.handle("once"), chat="room")
    assert (await platform.acked(stolen))["result"] == "not_valid"
    by_bob = await platform.press(BOB, card.handle("once"), chat=f"d{ANN}")
    assert (await platform.acked(by_bob))["result"] == "not_allowed"
    by_ann = await platform.press(ANN, card.handle("once"))
    assert (await platform.acked(by_ann))["result"] == "approved"
    await platform.see("room", "answer", "for the room")


async def test_nobody_to_ask_is_a_refusal(on_platform: Daemon, platform: FakePlatform) -> None:
    """With no direct chat and no page of an owner, nothing waits for ever: it is refused at once."""
    on_platform.config += '[tools.shell]\npermission = "always"\n'
    await on_platform.stop()
    await on_platform.start()
    await platform.say(BOB, "/shell id", chat="room", direct=False)
    assert "nobody can be asked" in (await platform.see("room", "answer")).text


@pytest.mark.whole("the same rules as in the scenario of Telegram, which stays")
async def test_a_stranger_gets_one_line_a_day(on_platform: Daemon, platform: FakePlatform) -> None:
    """The first message is refused in words, the others in silence; no session comes of it."""
    for n in range(5):
        await platform.acked(await platform.say(EVE, f"/shell id {n}"))
    await platform.see(f"d{EVE}", "refusal", "only talk to people")
    assert len(platform.in_chat(f"d{EVE}")) == 1
    code, out = await on_platform.run_command("sessions")
    assert code == 0
    assert EVE not in out


async def test_a_group_that_nobody_allowed_is_ignored(on_platform: Daemon, platform: FakePlatform) -> None:
    """Not even a refusal: the bot says nothing where it was not invited by its owner."""
    await platform.acked(await platform.say(ANN, "/status", chat="elsewhere", direct=False))
    await platform.acked(await platform.say(ANN, "/status"))
    await platform.see(f"d{ANN}", "reply")
    assert platform.in_chat("elsewhere") == []


@pytest.mark.whole("the same rules as in the scenario of Telegram, which stays")
async def test_two_conversations_of_one_owner(on_platform: Daemon, platform: FakePlatform) -> None:
    """Answers go where their turn began; both places read the same history."""
    async with page_of(on_platform) as page:
        await platform.acked(await platform.say(ANN, "from the chat"))
        await platform.see(f"d{ANN}", "answer", "No model")
        await page.say("from the page")
        await page.until_row("slot", lambda row: row["channel"] == "web" and row["kind"] == "answer")
        assert len(platform.in_chat(f"d{ANN}", "answer")) == 1
        texts = [row["text"] for row in page.rows.values() if row["type"] == "message"]
        assert texts == ["from the chat", "from the page"]
