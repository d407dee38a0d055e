"""F19: Slack tells things again, late, in any order, over lines that break; what was said is one turn all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from channels.slack.settings import Mode
from tests.fault.day import command_of
from tests.fault.rig import everything, lines_of
from tests.fault.slack_rig import ANN, BOB, KITCHEN, TO_ANN, TO_BOB, Wire, as_stored, judge_places, wire
from tests.fault.telegram_rig import judge_sessions, slots_of, tell_sessions
from tests.support.proof import KILLS, counted, dice, figure, times
from tests.support.slack import Shown
from tests.support.slack.app import Delivery
from tests.support.slack.rig import MODES

ROUNDS = times(3, 13, small=1)
"""So often everybody speaks before each break of the line."""
BREAKS = ("politely", "cut", "dead")
ACK_WITHIN_S = 3.0
REASONS = {"socket": "timeout", "http": "http_timeout"}


class Talk:
    """Messages by session, and Slack's events for them."""

    def __init__(self, one: Wire) -> None:
        """Begin with nothing said."""
        self.one = one
        self.said: dict[str, list[str]] = {"main:ann": [], f"dm:slack/main/{TO_BOB}": []}

    def ann(self, text: str) -> Shown:
        """The owner writes."""
        self.said["main:ann"].append(text)
        return self.one.slack.say(ANN, text)

    def bob(self, text: str) -> Shown:
        """Her friend writes."""
        self.said[f"dm:slack/main/{TO_BOB}"].append(text)
        return self.one.slack.say(BOB, text)

    def in_kitchen(self, text: str) -> Shown:
        """He names the bot in the channel: Slack tells of a message, and of a mention."""
        shown = self.one.slack.mention(BOB, text, channel=KITCHEN)
        self.said[f"chat:slack/main/{KITCHEN}/{shown.ts}"] = [text]
        return shown

    def all_of(self, n: int) -> None:
        """One round."""
        self.ann(f"hello {n}.")
        self.bob(f"good morning {n}.")
        self.in_kitchen(f"what is new, {n}.")

    @property
    def events(self) -> list[Delivery]:
        """Every message and mention of people that Slack told of."""
        return [one for one in self.one.slack.app.given if one.retried and is_of(one, (ANN, BOB))]

    def tell_again_with_other_ids(self) -> None:
        """The same messages in other envelopes, as two events of one post are."""
        for one in self.events:
            self.one.slack.send_raw(one.payload["event"])


def is_of(delivery: Delivery, people: tuple[str, ...]) -> bool:
    """Return True for an event of one of these messages."""
    event: dict[str, Any] = delivery.payload["event"]
    return event.get("user") in people


async def break_the_line(one: Wire, how: str) -> None:
    """End what Slack tells things over, while it does. Over HTTP that is the daemon alone."""
    if how == "dead":
        await one.kill()
        await one.start()
        return
    for socket in list(one.slack.sockets):
        if how == "politely":
            await socket.disconnect()
        else:
            socket.cut()


async def judged(one: Wire, talk: Talk, *commands: str) -> None:
    """The daemon stops in peace: nothing lost, nothing doubled, every acknowledgement in time."""
    await one.settled()
    assert await one.daemon.stop() == 0
    rows = await everything(one.daemon.state)
    ran = {command_of(name): len(lines_of(one.daemon.state, name)) for name in commands}
    counted(KILLS, len(one.deaths), "F19")
    tell_sessions("F19", rows, talk.said, ran)
    words = [text for texts in talk.said.values() for text in texts if not text.startswith("/")]
    read = [words_of_people(request.body["messages"]) for request in one.model.requests]
    odd = [text for text in words if max(asked.count(text) for asked in read) != 1]
    figure("F19", "messages that the model read otherwise than once", len(odd), 0, of=len(words))
    app, slots = one.slack.app, slots_of(rows, "slack")
    acknowledged = [t.took_s for delivery in talk.events for t in delivery.tries if not t.reason]
    late = sum(took_s > ACK_WITHIN_S for took_s in acknowledged)
    figure("F19", "events acknowledged too late", late, 0, of=len(acknowledged))
    figure("F19", "slowest acknowledgement of an event", max(acknowledged), ACK_WITHIN_S, "s")
    figure("F19", "events that Slack gave up", len(app.lost), 0, of=len(app.given))
    judge_sessions(rows, as_stored(rows, talk.said), ran, one)
    figure("F19", "shown twice, of messages", len(judge_places(one.rig.workspaces, slots)), 0, of=len(slots))


def words_of_people(messages: list[dict[str, Any]]) -> str:
    """All that people said, as a question to the model has it."""
    return "\n".join(str(one["content"]) for one in messages if one["role"] == "user")


@pytest.mark.sampled(1)
@pytest.mark.timeout(times(60, 300))
@pytest.mark.parametrize("mode", MODES)
async def test_told_again_and_again(mode: Mode, tmp_path: Path) -> None:
    """Three copies of each, some acknowledgements unheard, all shuffled, and the line breaks; then all of it again."""
    async with wire(tmp_path, mode=mode) as one:
        app, talk = one.slack.app, Talk(one)
        app.copies, app.shuffle = 3, dice(f"F19 {mode}")
        app.pauses_s = (0.0, 0.1, 0.2, *app.pauses_s)
        await one.start()
        for part, how in enumerate(BREAKS):
            app.unheard += 3 * ROUNDS
            for n in range(ROUNDS):
                talk.all_of(ROUNDS * part + n)
            await break_the_line(one, how)
        await one.settled(40)
        await one.kill()
        app.copies, app.unheard = 1, 0
        await one.start()
        one.slack.replay(10 * len(talk.events), attempt=3, reason=REASONS[mode])
        talk.tell_again_with_other_ids()
        talk.all_of(ROUNDS * len(BREAKS))
        await judged(one, talk)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.whole("told again and again stays, and the kills of Slack")
async def test_told_again_after_a_death(mode: Mode, tmp_path: Path) -> None:
    """The first one was not stored; or it was, and Slack was not told so. A command that was allowed runs once."""
    async with wire(tmp_path, mode=mode) as one:
        talk = Talk(one)
        for n, point in enumerate(("J1", "J2")):
            await one.start(f"{point}:kill:2", ready=False)
            talk.all_of(n)
            await one.killed()
        await one.start()
        one.slack.say(ANN, f"@dragoman /shell {command_of('once')}")
        talk.said["main:ann"].append(f"/shell {command_of('once')}")
        card = await one.slack.see(TO_ANN, command_of("once"), button="Once")
        pressed = await one.slack.acknowledged(one.slack.press(ANN, card, "Once"))
        await one.slack.see(TO_ANN, "exit 0")
        for _ in range(3):  # the same press, as a proxy in between might repeat it
            one.slack.send_payload(pressed.delivery.payload, "interactive")
        one.slack.replay(10 * len(talk.events), attempt=1, reason=REASONS[mode])
        await one.settled()
        assert lines_of(one.daemon.state, "once") == ["x"]
        await judged(one, talk, "once")
