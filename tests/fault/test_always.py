"""Grants at the wire: "Always" and its second question on Telegram, Slack and the page, with wrong presses between."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault import slack_rig, telegram_rig
from tests.fault.telegram_rig import ANN, JOE
from tests.support.daemon import page_of

NOT_VALID = "This button is not valid here."
QUESTION = "Always allow “shell touch it-ran” for 30 days?"


async def test_a_second_press_grants_on_telegram(tmp_path: Path) -> None:
    """Foreign, forged and late presses grant nothing; a restart forgets nothing; /grants takes it back."""
    async with telegram_rig.wire(tmp_path) as one:
        telegram = one.telegram
        await one.start()
        telegram.say(ANN, "/shell touch it-ran")
        card = await telegram.see(ANN, "touch it-ran", button="Always…")
        always = str(card.button("Always…")["callback_data"])
        assert len(always.encode()) <= 64
        assert (await telegram.toast(telegram.press(JOE, card, always, forged=True))).text != "Allowed."
        assert "Nothing is granted yet" in (await telegram.toast(telegram.press(ANN, card, "Always…"))).text
        await telegram.until(lambda: QUESTION in card.text)
        labels = [button["text"] for line in card.buttons for button in line]
        assert labels == ["Just once", "Back", "In this chat", "In this session"]
        chat = str(card.button("In this chat")["callback_data"])
        assert "Nothing was granted" in (await telegram.toast(telegram.press(ANN, card, "Back"))).text
        assert (await telegram.toast(telegram.press(ANN, card, chat, forged=True))).text == NOT_VALID
        await telegram.until(lambda: QUESTION not in card.text)
        await telegram.toast(telegram.press(ANN, card, "Always…"))
        await telegram.until(lambda: QUESTION in card.text)
        await one.all_sent()
        await one.daemon.kill()
        await one.start()
        assert (await telegram.toast(telegram.press(ANN, card, "In this chat"))).text == "Allowed."
        await telegram.until(lambda: "allowed always in this chat" in card.text)
        await telegram.see(ANN, "exit 0")
        assert (await telegram.toast(telegram.press(ANN, card, chat, forged=True))).text == "Already decided."
        telegram.say(ANN, "/shell touch it-ran")
        await telegram.until(lambda: sum("exit 0" in one.text for one in telegram.shown(ANN)) == 2)
        telegram.say(ANN, "/grants")
        listed = await telegram.see(ANN, "used 1 time")
        grant = next(word for word in listed.text.split() if word.startswith("g") and len(word) == 17)
        telegram.say(ANN, f"/grants revoke {grant}")
        await telegram.see(ANN, "Taken back")
        telegram.say(ANN, "/shell touch it-ran")
        await telegram.until(lambda: len([one for one in telegram.shown(ANN) if one.buttons]) == 1)
        (again,) = [one for one in telegram.shown(ANN) if one.buttons]
        await telegram.toast(telegram.press(ANN, again, "Deny"))
        await one.settled()


@pytest.mark.whole("the same rules as on Telegram, on another wire")
async def test_a_second_press_grants_on_slack(tmp_path: Path) -> None:
    async with slack_rig.wire(tmp_path) as one:
        await one.rig.start(ready=True)
        slack = one.slack
        slack.slash(slack_rig.ANN, "shell touch it-ran")
        card = await slack.see(slack_rig.TO_ANN, "touch it-ran", button="Always…")
        await slack.acknowledged(slack.press(slack_rig.ANN, card, "Always…"))
        await slack.until(lambda: QUESTION in card.text)
        await slack.acknowledged(slack.press(slack_rig.ANN, card, "In this session"))
        await slack.until(lambda: "allowed always in this session" in card.text)
        await slack.see(slack_rig.TO_ANN, "exit 0")
        await one.settled()


async def test_a_second_press_grants_on_the_page(tmp_path: Path) -> None:
    """The page shows the row of the server: the question, and the buttons that belong to it."""
    async with telegram_rig.wire(tmp_path) as one:
        await one.start()
        async with page_of(one.daemon, "ann") as page:
            await page.say("/shell touch it-ran")
            asked = await page.until_row("approval", lambda row: row["state"] == "open")
            assert [button["verb"] for button in asked["buttons"]] == ["once", "always", "deny", "deny_reason"]
            assert (await page.press(page.button(asked, "always")))["result"] == "ask_always"
            question = await page.until_row("approval", lambda row: bool(row["question"]))
            assert question["question"].startswith(QUESTION)
            verbs = [button["verb"] for button in question["buttons"]]
            assert verbs == ["once", "back", "grant_chat", "grant_session"]
            assert (await page.press(page.button(question, "grant_session")))["result"] == "approved"
            done = await page.until_row("approval", lambda row: row["state"] == "consumed")
            assert "allowed always in this session" in done["outcome"]
