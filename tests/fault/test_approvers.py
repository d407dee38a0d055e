"""Approvers at the wire: a quorum and an escalation on Telegram, a quorum on Slack, with the wrong presses between."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault import slack_rig, telegram_rig
from tests.fault.telegram_rig import ANN, BOB, JOE

NOT_VALID = "This button is not valid here."
DENIED = "Denied; nothing was run."
COUNTED = "Noted. Another approver must allow this too."
TWO = "quorum = 2"
FIRST_JOE = 'approvers = ["joe"]\nescalate_to = ["ann", "telegram:2002"]'


@pytest.mark.whole("the store's own tests of a quorum, and what nobody decided, stay")
async def test_two_owners_must_press_on_telegram(tmp_path: Path) -> None:
    """Twice the same person, a forged, a foreign and a late press count nothing; both cards say who allowed it."""
    async with telegram_rig.wire(tmp_path) as one:
        one.shell, telegram = TWO, one.telegram
        await one.start()
        telegram.say(JOE, "/status")
        await telegram.see(JOE, "This session")
        telegram.say(ANN, "/shell touch it-ran")
        anns = await telegram.see(ANN, "touch it-ran", button="Once")
        joes = await telegram.see(JOE, "touch it-ran", button="Once")
        assert "Allowed by: 0 of 2" in anns.text
        data = str(joes.button("Once")["callback_data"])
        assert (await telegram.toast(telegram.press(ANN, anns, "Once"))).text == COUNTED
        await telegram.until(lambda: "Allowed by: 1 of 2: ann" in joes.text)
        assert (await telegram.toast(telegram.press(ANN, anns, "Once"))).text == COUNTED
        assert (await telegram.toast(telegram.press(ANN, anns, data, forged=True))).text == NOT_VALID
        forged = f"{data[:-1]}{'A' if data[-1] != 'A' else 'B'}"
        assert (await telegram.toast(telegram.press(JOE, joes, forged, forged=True))).text == NOT_VALID
        assert telegram.shown(ANN)[-1].text.count("touch it-ran") == 1, "nothing ran"
        await one.all_sent()
        await one.daemon.kill()
        await one.start()
        assert (await telegram.toast(telegram.press(JOE, joes, "Once"))).text == "Allowed."
        await telegram.see(ANN, "exit 0")
        for card in (anns, joes):
            await telegram.until(lambda card=card: "ann and joe allowed once" in card.text)
        assert (await telegram.toast(telegram.press(ANN, anns, data, forged=True))).text == NOT_VALID
        await one.settled()


@pytest.mark.parametrize("presser", [ANN, BOB])
@pytest.mark.sampled(1)
async def test_undecided_approval_is_shown_to_further_approvers(presser: int, tmp_path: Path) -> None:
    """An approver who is no owner is asked like an owner. The first press wins, and every card is edited."""
    async with telegram_rig.wire(tmp_path) as one:
        one.shell, one.expiry, telegram = FIRST_JOE, "12s", one.telegram
        await one.start()
        for who in (JOE, BOB):
            telegram.say(who, "/status")
            await telegram.see(who, "This session")
        telegram.say(ANN, "/shell touch it-ran")
        await telegram.see(JOE, "touch it-ran", button="Once")
        await telegram.see(ANN, "An owner was asked to allow this")
        assert not [card for who in (ANN, BOB) for card in telegram.shown(who) if card.buttons]
        await one.all_sent()
        await one.daemon.kill()
        await one.start()
        cards = {who: await telegram.see(who, "touch it-ran", button="Once") for who in (JOE, ANN, BOB)}
        assert (await telegram.toast(telegram.press(presser, cards[presser], "Deny"))).text == DENIED
        name = {ANN: "ann", BOB: "telegram:2002"}[presser]
        for card in cards.values():
            await telegram.until(lambda card=card: f"{name} denied" in card.text and not card.buttons)
        await one.settled()


@pytest.mark.whole("the same rules as on Telegram, on another wire")
async def test_two_owners_must_press_on_slack(tmp_path: Path) -> None:
    """The card shows who allowed it; the requester's own second press counts nothing."""
    async with slack_rig.wire(tmp_path) as one:
        await one.rig.start({"DRAGOMAN_TOOLS__SHELL__QUORUM": "2"}, ready=True)
        slack = one.slack
        slack.slash(slack_rig.JOE, "status")
        await slack.see(slack_rig.TO_JOE, "This session")
        slack.slash(slack_rig.ANN, "shell touch it-ran")
        anns = await slack.see(slack_rig.TO_ANN, "touch it-ran", button="Once")
        joes = await slack.see(slack_rig.TO_JOE, "touch it-ran", button="Once")
        for _ in range(2):
            await slack.acknowledged(slack.press(slack_rig.ANN, anns, "Once"))
        await slack.until(lambda: "1 of 2: ann" in joes.text)
        await slack.acknowledged(slack.press(slack_rig.JOE, joes, "Once"))
        await slack.see(slack_rig.TO_ANN, "exit 0")
        await slack.until(lambda: "ann and joe allowed once" in anns.text)
        await one.settled()
