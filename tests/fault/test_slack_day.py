"""F02: a whole day in two Slack workspaces, by sockets and over HTTP: an owner, a friend, and a daemon that dies."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from channels.slack.settings import Mode
from gateway.domain.messages import Received
from gateway.domain.steps import Step
from gateway.domain.views import Item
from gateway.domain.waits import Wait
from tests.fault.day import HALF_TOLD, REFUSAL, STORY, TOLD_SLOWLY, command_of, errand
from tests.fault.rig import everything, lines_of, until
from tests.fault.slack_rig import (
    ANN,
    ANN_TOO,
    BOB,
    EVE,
    KITCHEN,
    SHED,
    TO_ANN,
    TO_ANN_TOO,
    TO_BOB,
    Wire,
    as_stored,
    cards_as_made,
    half_given,
    inboxes,
    judge_places,
    paths_told,
    press,
    wire,
)
from tests.fault.telegram_rig import judge_sessions, slots_of
from tests.support.model_server import Reply, Rule
from tests.support.proof import KILLS, LOST, RAN_TWICE, TWICE, counted, figure
from tests.support.slack import FakeSlack, Pressed, Shown, faults

WORKSPACES = (("acme", "T0AA"), ("garden", "T0BB"))
RECIPE, OVEN = "how do I bake this", "is it done"
"""Questions about a file that comes with each: a document, and a picture."""
PDF = b"%PDF-1.4\n" + bytes(range(256)) * 2_000 + b"\n%%EOF\n"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
STEPS = " ".join(f"In step {n} the dough is kneaded once more." for n in range(1, 801))
"""Too long for messages: it goes as a file."""
RULES = [
    Rule(text="another story", reply=Reply(text=STORY)),
    Rule(text="story", reply=TOLD_SLOWLY),
    *errand("parcel"),
    *errand("moon"),
    Rule(text=RECIPE, reply=Reply(text=STEPS)),
    Rule(text=OVEN, reply=Reply(text="It looks done.")),
]
RAN = {"parcel": 1, "lamp": 0, "moon": 1, "shed": 1}
"""Each errand of the day, and how often its command is to run."""
CONTROL = "/status"
PRESS_WITHIN_S = 1.0
STANDS_S = 5.0
"""So long Slack does not say that a file was shared."""
DEATHS = 9


@dataclass(slots=True, kw_only=True)
class Day:
    """The people of that day, and the lives of the daemon that answers. Every message is recorded."""

    wire: Wire
    said: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By session, in order."""
    shared: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Files that people sent, by the words beside them."""
    pressed: list[Pressed] = field(default_factory=list[Pressed])
    """Buttons, forms and commands of people while it lived."""
    thread: Shown | None = None
    """Thread of the kitchen with the bot."""

    @property
    def acme(self) -> FakeSlack:
        """The first workspace."""
        return self.wire.rig.workspaces["acme"]

    @property
    def garden(self) -> FakeSlack:
        """The second one."""
        return self.wire.rig.workspaces["garden"]

    # --- who says what ---

    def ann(self, text: str, *, thread: Shown | str = "") -> Shown:
        """The owner writes to the bot."""
        return self._said("main:ann", text, self.acme.say(ANN, text, thread=thread))

    def ann_in_garden(self, text: str) -> Shown:
        """… in the other workspace."""
        return self._said("main:ann", text, self.garden.say(ANN_TOO, text))

    def bob(self, text: str) -> Shown:
        """Her friend writes to the bot."""
        return self._said(f"dm:slack/acme/{TO_BOB}", text, self.acme.say(BOB, text))

    def in_thread(self, text: str, *, to_bot: bool = True) -> Shown:
        """He writes in the kitchen, in the one thread that there is from then on."""
        named = f"@dragoman {text}" if to_bot else text
        shown = self.acme.say(BOB, named, channel=KITCHEN, thread=self.thread or "")
        self.thread = self.thread or shown
        return self._said(f"chat:slack/acme/{KITCHEN}/{self.thread.ts}", text, shown)

    def bob_shares(self, text: str, file: bytes, name: str, mimetype: str, *, thread: Shown | None = None) -> None:
        """He sends a file with some words to the bot, or into the kitchen's thread."""
        place = KITCHEN if thread else TO_BOB
        shown = self.acme.attach(BOB, file, name=name, text=text, channel=place, thread=thread or "", mimetype=mimetype)
        self.shared[text] = file
        session = f"chat:slack/acme/{KITCHEN}/{thread.ts}" if thread else f"dm:slack/acme/{TO_BOB}"
        self._said(session, text, shown)

    async def ann_commands(self, text: str) -> None:
        """The owner gives a command, or says something as one."""
        if text != CONTROL:
            self.said.setdefault("main:ann", []).append(text)
        await self.taken(self.acme, self.acme.slash(ANN, text.removeprefix("/")))

    def _said(self, session: str, text: str, shown: Shown) -> Shown:
        self.said.setdefault(session, []).append(text)
        return shown

    async def told_in_thread(self, text: str) -> Shown:
        """The kitchen is told something, in its thread."""
        assert self.thread is not None
        return await self.acme.see(KITCHEN, text, thread=self.thread.ts)

    async def card(self, text: str) -> Shown:
        """The owner is asked about something; returns the card."""
        return await self.acme.see(TO_ANN, text, button="Once")

    async def press(self, card: Shown, label: str) -> None:
        """The owner presses a button, once."""
        await self.taken(self.acme, self.acme.press(ANN, card, label))

    async def taken(self, slack: FakeSlack, pressed: Pressed) -> None:
        """Something that was pressed was taken."""
        self.pressed.append(await slack.acknowledged(pressed))

    # --- lives ---

    async def wakes(self, dies_at: str = "") -> None:
        """A life begins. `dies_at`: the point where it will end by `kill -9`."""
        await self.wire.start(f"{dies_at}:kill" if dies_at else "", ready=not dies_at)

    def slack_repeats_itself(self) -> None:
        """Everything that was said so far is told again."""
        for slack in (self.acme, self.garden):
            slack.replay(1000, attempt=1, reason="http_timeout")


@asynccontextmanager
async def a_day(folder: Path, mode: Mode) -> AsyncGenerator[Day]:
    """Both workspaces are there, and nobody has said anything."""
    async with wire(folder, mode=mode, rules=RULES, workspaces=WORKSPACES, limits="overall_per_min = 0") as one:
        today = Day(wire=one)
        today.acme.person(EVE, "eve")
        today.garden.person(ANN_TOO, "ann.too")
        today.garden.channel(SHED, "shed", members=[ANN_TOO])
        yield today


@pytest.mark.by_the_clock
@pytest.mark.whole("kills, limits and redelivery on Slack, and the scenario of Slack, stay")
@pytest.mark.parametrize("mode", ["socket", "http"])
async def test_a_day(mode: Mode, tmp_path: Path) -> None:
    """Nine deaths later everybody was answered, once, where it was asked, and nothing ran that should not."""
    async with a_day(tmp_path, mode) as today, asyncio.timeout(110):
        await today.wakes()
        await everybody_says_good_morning(today)
        await the_panel_and_the_slash_command(today)
        await the_kitchen_talks(today)
        await it_dies_while_it_tells_a_story(today)
        await it_dies_over_the_parcel(today)
        await it_dies_between_question_and_answer(today)
        await it_dies_before_a_reason_is_given(today)
        await it_dies_while_a_sub_session_waits(today)
        await the_other_workspace_asks_for_something(today)
        await it_dies_while_a_file_comes(today)
        await it_dies_while_a_file_goes(today)
        await a_picture_is_shown_around(today)
        today.slack_repeats_itself()
        counted(KILLS, len(today.wire.deaths), "F02")
        await evening(today)
        assert len(today.wire.deaths) == DEATHS


# --- morning ------------------------------------------------------------------------------------


async def everybody_says_good_morning(today: Day) -> None:
    """An owner in both workspaces is one conversation; her friend has his own; a stranger gets one line."""
    today.ann("good morning")
    await today.acme.see(TO_ANN, "You said: good morning")
    today.ann_in_garden("and a good one here")
    await today.garden.see(TO_ANN_TOO, "You said: and a good one here")
    assert "good morning" in str(today.wire.model.requests[-1].body["messages"])
    today.bob("it is me")
    await today.acme.see(TO_BOB, "You said: it is me")
    assert "good" not in str(today.wire.model.requests[-1].body["messages"][1:])
    for _ in range(2):
        today.acme.say(EVE, "let me in")
    await today.acme.see("D0EVE", REFUSAL)


async def the_panel_and_the_slash_command(today: Day) -> None:
    """Both are the owner's one conversation; answers stay in the thread that was begun below an answer."""
    acme = today.acme
    acme.open_agent(ANN, looking_at=KITCHEN)
    await acme.until(lambda: (TO_ANN, "") in acme.world.prompts)
    root = acme.shown(TO_ANN)[0]
    today.ann("water the plants", thread=root)
    await acme.see(TO_ANN, "You said: water the plants", thread=root.ts)
    await today.ann_commands(CONTROL)
    await acme.see(TO_ANN, "This session", thread="")
    await today.ann_commands("what is new?")
    await acme.see(TO_ANN, "You said: what is new?", thread="")


async def the_kitchen_talks(today: Day) -> None:
    """A mention begins a thread, in which the bot is meant from then on."""
    today.in_thread("how long does rye bread take?")
    await today.told_in_thread("rye bread take?")
    today.in_thread("and how hot?", to_bot=False)
    await today.told_in_thread("and how hot?")
    today.slack_repeats_itself()


# --- noon: it dies, again and again -------------------------------------------------------------


async def it_dies_while_it_tells_a_story(today: Day) -> None:
    """Killed in the middle of an answer that everybody sees growing. It is told again, in the same place."""
    today.wire.model.rules.insert(0, HALF_TOLD)
    today.in_thread("another story, please")
    begun = await today.told_in_thread("On day 1 ")
    await today.wire.all_sent()
    assert STORY[-40:] not in begun.text
    await today.wire.kill()
    today.wire.model.rules.remove(HALF_TOLD)
    await today.wakes(dies_at="J9")
    await today.acme.until(lambda: begun.text == STORY)


async def it_dies_over_the_parcel(today: Day) -> None:
    """Killed when the card had been sent, and when the command had run but nobody had written that down yet."""
    today.in_thread("fetch the parcel")
    await today.wire.killed()
    card = await today.card(command_of("parcel"))
    async with asyncio.TaskGroup() as group:
        group.create_task(press(today.acme, ANN, card, "Once"), name="press")
        await today.wakes(dies_at="J13")
        await today.wire.killed()
        await today.wakes(dies_at="J2")
        await today.told_in_thread("So much about the parcel.")
    assert "Outcome unknown" in str(today.wire.model.requests[-1].body["messages"])
    await today.wire.all_sent()


async def it_dies_between_question_and_answer(today: Day) -> None:
    """Killed with the question stored and Slack not told; then with the answer written and nobody told that."""
    root = today.acme.shown(TO_ANN)[0]
    today.ann("and the roses?", thread=root)
    await today.wire.killed()
    await today.wakes(dies_at="J17")
    await today.wire.killed()
    today.slack_repeats_itself()
    await today.wakes()
    await today.acme.see(TO_ANN, "You said: and the roses?", thread=root.ts)


# --- afternoon ----------------------------------------------------------------------------------


async def it_dies_before_a_reason_is_given(today: Day) -> None:
    """The form is open when it dies; what is written there afterwards is the reason."""
    await today.ann_commands(f"/shell {command_of('lamp')}")
    card = await today.card(command_of("lamp"))
    await today.wire.all_sent()
    await today.press(card, "Deny with reason")
    form = await today.acme.see_modal(ANN, "Why not?")
    await today.wire.kill()
    await today.wakes()
    await today.taken(today.acme, today.acme.submit(form, {"reason": "yes, run it"}))
    await today.acme.until(lambda: not card.buttons)
    assert "ann denied" in card.text
    assert "yes, run it" in card.text
    await today.acme.see(TO_ANN, "denied")


async def it_dies_while_a_sub_session_waits(today: Day) -> None:
    """Begun from the thread; what it asks for is allowed in another life, and the thread is told what came of it."""
    today.in_thread("/spawn fetch the moon")
    await today.press(await today.card("sessions_spawn"), "Once")
    card = await today.card("Sub-session: fetch the moon")
    await today.wire.all_sent()
    await today.wire.kill()
    await today.wakes()
    await today.press(card, "Once")
    await today.told_in_thread("So much about the moon.")


async def the_other_workspace_asks_for_something(today: Day) -> None:
    """The owner is asked where she spoke last. A button of one workspace does nothing in another."""
    garden, text = today.garden, f"/shell {command_of('shed')}"
    asked = garden.mention(ANN_TOO, text, channel=SHED)
    today.said[f"chat:slack/garden/{SHED}/{asked.ts}"] = [text]
    card = await today.card(command_of("shed"))
    forged = replace(card, channel=TO_ANN_TOO)
    await today.taken(garden, garden.press(ANN_TOO, forged, "Once"))
    assert "valid" in (await garden.see_note(ANN_TOO)).text
    assert card.buttons
    await today.press(card, "Once")
    assert (await garden.see(SHED, "exit 0")).thread == asked.ts


# --- files --------------------------------------------------------------------------------------


async def it_dies_while_a_file_comes(today: Day) -> None:
    """Killed with half of a document in the workspace: nobody has asked the model yet."""
    before = len(today.wire.model.requests)
    async with half_given(today.acme, PDF) as given:
        today.bob_shares(RECIPE, PDF, "Rye bread.pdf", "application/pdf")
        await given.wait()
        await until(lambda: any(inboxes(today.wire.daemon).values()))
        await today.wire.kill()
    assert not any(content == PDF for content in inboxes(today.wire.daemon).values())
    assert len(today.wire.model.requests) == before


async def it_dies_while_a_file_goes(today: Day) -> None:
    """The answer is so long that it is a file: killed when that stood there and Slack had not said so yet."""
    acme = today.acme
    acme.script(lambda call: faults.slow(hold_s=STANDS_S) if call.method == "files.completeUploadExternal" else None)
    await today.wakes()
    await acme.until(lambda: acme.uploads(TO_BOB) != [])
    await today.wire.kill()
    acme.script(lambda call: None)
    await today.wakes()
    await today.wire.all_sent()


async def a_picture_is_shown_around(today: Day) -> None:
    """In the thread, where nobody has to name the bot."""
    today.bob_shares(OVEN, PNG, "oven.png", "image/png", thread=today.thread)
    await today.told_in_thread("It looks done.")


# --- the evening --------------------------------------------------------------------------------


async def evening(today: Day) -> None:
    """The daemon stops in peace; what Slack saw is compared with what the store says."""
    await today.wire.settled()
    assert await today.wire.daemon.stop() == 0
    rows = await everything(today.wire.daemon.state)
    lost, twice = lost_and_twice(rows, today.said)
    said = sum(map(len, today.said.values()))
    figure("F02", LOST, lost.total(), 0, of=said)
    figure("F02", TWICE, twice.total(), 0, of=said)
    ran = {name: len(lines_of(today.wire.daemon.state, name)) for name in RAN}
    figure("F02", RAN_TWICE, sum(count > 1 for count in ran.values()), 0, of=len(ran))
    wrong = sum(ran[name] != times for name, times in RAN.items())
    figure("F02", "commands that ran otherwise than decided", wrong, 0, of=len(ran))
    slowest_s = max(pressed.delivery.tries[-1].took_s for pressed in today.pressed)
    figure("F02", "until Slack was told that a press or a command was taken", slowest_s, PRESS_WITHIN_S, "s")
    slots = slots_of(rows, "slack")
    surplus = [one.text for one in judge_places(today.wire.rig.workspaces, slots)]
    again = [text for text in surplus if not text.startswith(REFUSAL)]
    figure("F02", "shown twice, or elsewhere than it was asked", len(again), 0, of=len(slots))
    assert len(surplus) - len(again) == 1, "one line for a stranger who wrote twice"
    workspaces = (today.acme, today.garden)
    shown = [one for slack in workspaces for place in slack.world.channels for one in slack.shown(place)]
    cards = sum(len(cards_as_made(slack)) for slack in workspaces)
    figure("F02", "cards that can still be pressed", sum(bool(one.buttons) for one in shown), 0, of=cards)
    judge_files(today)
    by_command = {command_of(name): times for name, times in RAN.items()}
    judge_sessions(plain(rows), as_stored(rows, today.said), by_command, today.wire)


def judge_files(today: Day) -> None:
    """Check shared files: whole in a workspace, given to the model once; and made files: sent once."""
    kept = inboxes(today.wire.daemon)
    came, found = Counter(today.shared.values()), Counter(kept.values())
    odd = (came - found).total() + (found - came).total()
    figure("F02", "files that lie in a workspace otherwise than they were sent", odd, 0, of=came.total())
    told = {words: paths_told(today.wire.model, words) for words in today.shared}
    wrong = [words for words, paths in told.items() if [kept.get(path) for path in paths] != [today.shared[words]]]
    figure("F02", "files that the model was told of otherwise than once", len(wrong), 0, of=len(told))
    uploads = [file for slack in (today.acme, today.garden) for file in slack.uploads()]
    went = Counter(str(file.content, "utf-8") for file in uploads for _ in file.shares if file.content is not None)
    due = Counter([STEPS])
    odd = (due - went).total() + (went - due).total()
    figure("F02", "files that went out otherwise than once", odd, 0, of=due.total())


def lost_and_twice(
    rows: Mapping[str, Sequence[Item]], said: Mapping[str, Sequence[str]]
) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Return the messages that were lost, and those that are stored more often than sent."""
    wanted = Counter((session, text) for session, texts in said.items() for text in texts)
    got = Counter(
        (session, item.message.text)
        for session, items in rows.items()
        for item in items
        if isinstance(item, Received) and not session.startswith("child:") and item.message.text != CONTROL
    )
    return wanted - got, got - wanted


def plain(rows: Mapping[str, Sequence[Item]]) -> dict[str, list[Item]]:
    """The rows without the command that has no turn, and the calls that begin sub-sessions and leave no line."""
    spawns = {
        (item.turn, item.n)
        for items in rows.values()
        for item in items
        if isinstance(item, Step) and item.call is not None and item.call.tool == "sessions_spawn"
    }

    def is_plain(item: Item) -> bool:
        if isinstance(item, Received):
            return item.message.text != CONTROL
        return not isinstance(item, Step | Wait) or (item.turn, item.n) not in spawns

    return {session: list(filter(is_plain, items)) for session, items in rows.items()}
