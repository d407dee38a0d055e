"""Channel contract for cards and their buttons: the part of the suite that safety depends on."""

from __future__ import annotations

import asyncio

from gateway.approvals import render
from gateway.domain.waits import WaitState
from tests.contract.channel_rig import QUIET_S, Can, Rig, Seen, Who, is_whole, needs

BUTTONS = ["Once", "Deny", "Deny with reason"]
WITH_ALWAYS = ["Once", "Always…", "Deny", "Deny with reason"]
"""For an action that a grant can allow."""


class CardContract:
    """The cards of `ChannelContract`, which has the rig."""

    # --- cards --------------------------------------------------------------------------------

    async def test_card_shows_the_whole_action_its_facts_and_three_buttons(self, rig: Rig) -> None:
        action = 'rm -rf "/tmp/\u202ecod.exe" <b>@person3003</b> [x](javascript:alert(1)) `a`\n*all* \x1b[2J'
        card = await rig.asks(f"shell:{action}")
        (wait,) = rig.waits()
        assert wait.approval is not None
        assert wait.approval.rendered == render(action)
        assert render(action) in card.text
        assert "\u202e" not in card.text
        row = rig.engine.approvals.row(wait, "any")
        assert row.title in card.text
        assert [value for _, value in row.facts if value not in card.text] == []
        assert (card.labels, card.active) == (BUTTONS, ())
        assert len({push.handle for push in card.buttons}) == 3

    async def test_a_long_action_is_shown_whole_too(self, rig: Rig) -> None:
        action = " && ".join(f"echo {n:05}" for n in range(1_000))
        await rig.asks(f"shell:{action}")
        await rig.until(lambda: is_whole(rig.shown(rig.direct(Who.ANN)), action, among=True))

    async def test_a_press_decides_and_the_card_says_who_and_what(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        card = await rig.asks("shell:uptime")
        rig.script("It is up.")
        assert await rig.pressed(Who.ANN, where, card.handle("Once"))
        await rig.see(where, "It is up.")
        decided = await rig.see(where, "ann allowed once")
        assert decided.id == card.id
        assert not any(one.buttons for one in rig.shown(where))
        assert render("uptime") in decided.text
        assert (rig.box.shell.calls, rig.waits()[0].decided_by) == (["uptime"], rig.principal(Who.ANN))

    async def test_a_denial_runs_nothing(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        card = await rig.asks("shell:uptime")
        assert await rig.pressed(Who.ANN, where, card.handle("Deny"))
        await rig.see(where, "ann denied")
        await rig.see(where, "That is all.")
        assert not any(one.buttons for one in rig.shown(where))
        assert (rig.box.shell.calls, rig.waits()[0].state) == ([], WaitState.DENIED)

    async def test_a_denial_with_a_reason_takes_the_reason_along(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        card = await rig.asks("shell:uptime")
        await rig.deny_with_reason(Who.ANN, where, card, "use the other machine")
        decided = await rig.see(where, "use the other machine")
        await rig.see(where, "That is all.")
        assert "ann denied" in decided.text
        (wait,) = rig.waits()
        assert (wait.state, wait.reason) == (WaitState.DENIED, "use the other machine")
        assert (rig.box.shell.calls, len(rig.asked())) == ([], 2)
        assert "use the other machine" in str(rig.engine.model.requests[-1].messages[-1])

    async def test_decided_rows_lose_their_buttons_and_others_keep_theirs(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        await rig.asks("shell:first", "write:second")
        await rig.until(lambda: len(_pushes(rig, Who.ANN)) == 8)
        first, second = (_pushes(rig, Who.ANN)[at : at + 4] for at in (0, 4))
        assert all(label.endswith(want) for (label, _), want in zip(first + second, WITH_ALWAYS * 2, strict=True))
        await rig.pressed(Who.ANN, where, first[0][1])
        await rig.until(lambda: [handle for _, handle in _pushes(rig, Who.ANN)] == [handle for _, handle in second])
        await rig.pressed(Who.ANN, where, second[2][1])
        await rig.until(lambda: _pushes(rig, Who.ANN) == [])
        await rig.see(where, "That is all.")
        assert (rig.box.shell.calls, rig.box.write.calls) == (["first"], [])

    @needs(Can.OTHERS)
    async def test_a_decision_is_shown_wherever_the_card_is(self, rig: Rig) -> None:
        ann, cleo = rig.direct(Who.ANN), rig.direct(Who.CLEO)
        for who, where in ((Who.ANN, ann), (Who.CLEO, cleo)):
            await rig.say(who, "hello", where)
            await rig.see(where, "That is all.")
        await rig.asks("shell:uptime", who=Who.BOB)
        card = await rig.card(cleo)
        assert not set(card.buttons) & set((await rig.card(ann)).buttons)
        await rig.pressed(Who.CLEO, cleo, card.handle("Once"))
        for where in (ann, cleo):
            await rig.see(where, "cleo allowed once")
            assert not any(one.buttons for one in rig.shown(where))
        await rig.until(lambda: rig.box.shell.calls)

    # --- presses that decide nothing ----------------------------------------------------------

    @needs(Can.ELSEWHERE)
    async def test_a_press_by_somebody_else_is_refused(self, rig: Rig) -> None:
        """I04: another owner, a friend and a stranger, at the very card."""
        card = await rig.asks("shell:uptime")
        people = (Who.CLEO, Who.BOB, Who.EVE)
        said = {await _refused(rig, who, card, card.handle(b), at=Who.ANN) for who in people for b in BUTTONS}
        await _still_works(rig, card, said)

    async def test_a_handle_is_worth_nothing_in_another_conversation(self, rig: Rig) -> None:
        """I07: another owner's, and where it can be said to be there, the right person's own."""
        card = await rig.asks("shell:uptime")
        people = (Who.CLEO,) if Can.ELSEWHERE in rig.cannot else (Who.CLEO, Who.ANN)
        said = {await _refused(rig, who, card, card.handle(b), at=Who.CLEO) for who in people for b in BUTTONS}
        await _still_works(rig, card, said)

    async def test_a_forged_handle_is_refused(self, rig: Rig) -> None:
        """I07."""
        card = await rig.asks("shell:uptime")
        good = card.handle("Once")
        other = "A" if good[-1] != "A" else "B"
        every = (good[:-1] + other, good[:-1], good[:-22], good.split(".")[0], "x", f"{good}=", good.swapcase())
        said = {await _refused(rig, Who.ANN, card, forged, at=Who.ANN) for forged in every}
        await _still_works(rig, card, said)

    async def test_a_second_press_is_told_that_it_comes_too_late(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        card = await rig.asks("shell:uptime")
        first = await rig.press(Who.ANN, where, card.handle("Deny"))
        said = await rig.told(first)
        await rig.see(where, "ann denied")
        for label in BUTTONS:
            late = await rig.pressed(Who.ANN, where, card.handle(label))
            assert late
            assert late != said
        await rig.redeliver(first)
        await rig.settled(first)
        assert (rig.waits()[0].state, rig.box.shell.calls) == (WaitState.DENIED, [])
        assert len([one for one in rig.shown(where) if "ann denied" in one.text]) == 1

    async def test_a_press_that_was_not_stored_decides_nothing_until_it_is(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        card = await rig.asks("shell:uptime")
        rig.store.broken, before = True, rig.store.asked
        event = await rig.press(Who.ANN, where, card.handle("Once"))
        await rig.until(lambda: rig.store.asked > before)
        await asyncio.sleep(QUIET_S)
        assert (rig.waits()[0].state, rig.box.shell.calls) == (WaitState.OPEN, [])
        assert not rig.acknowledged(event)
        rig.store.broken = False
        await rig.redeliver(event)
        await rig.see(where, "ann allowed once")
        await rig.settled(event)
        assert rig.box.shell.calls == ["uptime"]


# --- helpers ------------------------------------------------------------------------------------


def _pushes(rig: Rig, who: Who) -> list[tuple[str, str]]:
    """All buttons in somebody's direct chat: label and handle."""
    return [(push.label, push.handle) for one in rig.shown(rig.direct(who)) for push in one.buttons]


async def _refused(rig: Rig, who: Who, card: Seen, handle: str, *, at: Who) -> str:
    """Press, and see that nothing came of it but words; return them."""
    words = await rig.pressed(who, rig.direct(at), handle)
    assert words
    (wait,) = rig.waits()
    assert (wait.state, wait.decided_by) == (WaitState.OPEN, None)
    assert rig.box.shell.calls == []
    assert await rig.card(rig.direct(Who.ANN)) == card
    return words


async def _still_works(rig: Rig, card: Seen, refusals: set[str]) -> None:
    """See that the right press decides after all, and is answered otherwise than the wrong ones."""
    assert await rig.pressed(Who.ANN, rig.direct(Who.ANN), card.handle("Once")) not in refusals
    await rig.until(lambda: rig.box.shell.calls == ["uptime"])
