"""F01 with a model that streams: kill -9 at the points of a turn, inside a stream, and while a fallback is asked."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.steps import Step
from gateway.domain.turns import Turn
from tests.fault.model_rig import Crowd, crowd, once, peek, promises, results_in, shell, shown_once
from tests.fault.oracle import Evidence, tell, tell_shown, the_page_shows_what_is_stored
from tests.fault.rig import Visitor, everything, lines_of, stored, unsent, until, until_quiet, visiting
from tests.fault.telegram_rig import ANN, Wire, judge_chats, slots_of, wire
from tests.support.model_server import Reply, Rule, count_events
from tests.support.patience import PATIENCE_S
from tests.support.platform import Shown
from tests.support.proof import KILLS, counted, figure

FIRST, SECOND = "echo x >> first", "echo x >> second"
WORK = "ann: do it"
CALLS = Reply(text="Let me look at both.", calls=(shell(FIRST), peek("it"), shell(SECOND)), fragments=3)
SUMMARY = Reply(text="Both were done, as far as I can tell.")
DEATHS = {
    "before the card is pressed": ("J4:1", "J5:1", "J6:1", "J7:1", "J8:1", "J10:1"),
    "around the call that reads, and after all results": ("J11:1", "J12:1", "J13:1", "J14:1", "J5:1", "J6:1"),
    "where allowed calls start": ("J11:2", "J12:1"),
    "where allowed calls end": ("J13:2", "J14:1"),
}
"""The points at which one turn dies, one life after the other; the number is the passage in that life."""
PRESSED_IN = dict(zip(DEATHS, (5, 4, 0, 0), strict=True))
"""From which life on the card is pressed."""
RAN = dict(zip(DEATHS, ({1}, {1}, {0}, {1}), strict=True))
"""Runs of each command: none when it died between the start and the command itself."""
CLOSE_S = 0.15
"""So long after the server wrote an event the daemon has read it, or is about to."""


async def press_all(ann: Crowd, card: Shown) -> None:
    """Allow both commands, the first one first."""
    for row in range(len(card.rows)):
        assert (await ann.press("ann", card, row, "once"))["result"] in ("approved", "duplicate")


async def die_at_each(points: Sequence[str], pressed_in: int, ann: Crowd) -> None:
    """Let one turn die at one point after the other; the last life is left in peace."""
    async with asyncio.TaskGroup() as group:
        for life, point in enumerate(points):
            if life:
                await ann.start(point.replace(":", ":kill:"), ready=False)
            else:
                await ann.post("ann", WORK)
            if life == pressed_in:
                card = await ann.platform.see("d1", "card", FIRST)
                group.create_task(press_all(ann, card), name="ann presses")
            assert await ann.daemon.died() == -signal.SIGKILL
        await ann.start()
    await until_quiet(ann.daemon)


async def evidence_of(ann: Crowd, page: Visitor) -> Evidence:
    """Return the evidence of ann's session at the end."""
    return Evidence(
        said=[WORK],
        ran={FIRST: len(lines_of(ann.daemon.state, "first")), SECOND: len(lines_of(ann.daemon.state, "second"))},
        frames=ann.platform.log,
        asked=[one.body for one in ann.model.requests],
        page=list(page.rows.values()),
        items=await stored(ann.daemon.state, "main:ann"),
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("where", DEATHS)
async def test_killed_at(where: str, tmp_path: Path) -> None:
    """One turn that dies again and again ends with one answer; commands ran at most once, each call has a result."""
    points = DEATHS[where]
    rules = [Rule(results=0, reply=CALLS), Rule(results=3, reply=SUMMARY)]
    async with crowd(tmp_path, ["ann"], rules, approval="ask") as ann:
        await ann.start(points[0].replace(":", ":kill:"))
        async with visiting(ann.daemon) as page, asyncio.timeout(2 * PATIENCE_S):
            await die_at_each(points, PRESSED_IN[where], ann)
            await page.row("turn", state="done")
            await until(lambda: not unsent(ann.daemon))
            assert await ann.daemon.stop() == 0
            found = await evidence_of(ann, page)
        counted(KILLS, len(points), "F01")
        tell("F01", found)
        tell_shown("F01", replace(found, in_flight=len(points)))
        promises(found)
        shown_once(found, len(points))
        the_page_shows_what_is_stored(found)
        _, read, _ = results_in(ann.asked("ann")[-1])
        assert read == "peeked at it"
        assert set(ann.answers("ann")) == {CALLS.text, SUMMARY.text}
        turns, unknown = found.of(Turn), [step for step in found.of(Step) if is_unknown(step)]
        figure("F01", "turns for one message", len(turns), 1)
        figure("F01", "calls of one answer with an unknown outcome, told to the model", len(unknown), 2)
        assert set(found.ran.values()) <= RAN[where] | {1}
        assert min(found.ran.values()) in RAN[where]


def is_unknown(step: Step) -> bool:
    """Return True if the outcome of a call is unknown."""
    return step.result is not None and step.result.code == "unknown"


# --- inside a stream ------------------------------------------------------------------------------

SLOW = Reply(text="This begins slowly and is never heard to its end. " * 4, chunks=40, delay_s=0.1, stall_after=30)
INSIDE = (1, 5, count_events(CALLS) - 6)
"""Events after which the stream falls silent, and the daemon dies: the beginning, the text, the arguments."""


async def die_in_a_stream(one: Wire, questions: int) -> None:
    """Die when so many questions were asked, and the last one's stream has fallen silent."""
    await until(lambda: len(one.model.requests) == questions)
    await asyncio.sleep(CLOSE_S)
    assert one.model.requests[-1].ended == "open"
    await one.kill()


async def test_killed_inside_a_stream(tmp_path: Path) -> None:
    """The question is asked again; of what had come, nothing stays, and no call comes of a half of it.

    In the end it dies while a chat shows the beginning of an answer: the same message then shows all of the new one.
    """
    silent = [once(CALLS.model_copy(update={"stall_after": k}), results=0) for k in INSIDE]
    rules = [*silent, Rule(results=0, reply=CALLS), once(SLOW, results=3), Rule(results=3, reply=SUMMARY)]
    async with wire(tmp_path, rules=rules) as one:
        one.channel += '\n[tools.peek]\nmodule = "tests.support.tools.peek"\n'
        await one.start()
        one.telegram.say(ANN, WORK)
        for questions in range(1, len(INSIDE) + 1):
            await die_in_a_stream(one, questions)
            assert not any(shown.labels for shown in one.telegram.shown(ANN))
            await one.start()
        card = await one.telegram.see(ANN, FIRST, button="Once")
        for label in [label for label in card.labels if "Once" in label]:
            await one.telegram.toast(one.telegram.press(ANN, card, label))
        begun = await one.telegram.see(ANN, "This begins slowly")
        await one.all_sent()
        await one.kill()
        await one.start()
        await one.settled()
        assert await one.daemon.stop() == 0
        rows = await everything(one.daemon.state)
        surplus = judge_chats(one.telegram, slots_of(rows), one.deaths)
        ran = {FIRST: len(lines_of(one.daemon.state, "first")), SECOND: len(lines_of(one.daemon.state, "second"))}
        asked = [asked.body for asked in one.model.requests]
        counted(KILLS, len(one.deaths), "F01")
        found = Evidence(said=[WORK], ran=ran, frames=(), asked=asked, page=(), items=rows["main:ann"])
        tell("F01", found)
        promises(found)
        assert set(ran.values()) == {1}
        assert len(results_in(one.model.requests[-1])) == 3
        shown = [message.text for message in one.telegram.shown(ANN)]
        figure("F01", "messages that show only a beginning in the end", sum("slowly" in text for text in shown), 0)
        assert not any("slowly" in text for text in shown), one.telegram.picture(ANN)
        assert (begun.text, surplus) == (SUMMARY.text, [])


@pytest.mark.whole("a kill inside a stream, and a fallback that steps in, stay")
async def test_killed_while_a_fallback_is_asked(tmp_path: Path) -> None:
    """The next life asks the first one again, then the second; who answered is said once, and it runs once."""
    silent = CALLS.model_copy(update={"stall_after": 5})
    rules = [
        Rule(model="first", reply=Reply(status=401, error="expired")),
        once(silent, model="second", results=0),
        Rule(model="second", results=0, reply=CALLS),
        Rule(model="second", results=3, reply=SUMMARY),
    ]
    async with crowd(tmp_path, ["ann"], rules, fallback=True, approval="ask") as ann:
        await ann.start()
        async with visiting(ann.daemon) as page:
            await ann.post("ann", WORK)
            await ann.until_asked("ann", 2)
            await asyncio.sleep(CLOSE_S)
            await ann.daemon.kill()
            await ann.start()
            await press_all(ann, await ann.platform.see("d1", "card", FIRST))
            await ann.see("ann", SUMMARY.text)
            await page.row("turn", state="done")
            await until_quiet(ann.daemon)
            await until(lambda: not unsent(ann.daemon))
            assert await ann.daemon.stop() == 0
            found = await evidence_of(ann, page)
        counted(KILLS, 1, "F01")
        tell("F01", found)
        tell_shown("F01", found)
        promises(found)
        shown_once(found, 1)
        assert set(found.ran.values()) == {1}
        notes = [text for text in ann.answers("ann") if "second answered: first failed" in text]
        assert len(notes) == 1
        assert [one.body["model"] for one in ann.asked("ann")] == ["first", "second", "first", "second", "second"]
