"""Rig of the fault tests of Slack: a daemon with its workspaces and its model, and the judge of the shown messages.

`oracle` judges the rows of a session. Here those rows are compared with the conversations themselves: a
message there that belongs to no slot was shown twice, since Slack can be asked for the fate of a message.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from aiohttp import web

from channels.slack.settings import Mode
from gateway.domain.messages import Conversation, Received
from gateway.domain.slots import Slot, SlotKind, SlotState
from gateway.domain.views import Item
from gateway.system.failpoints import ENVIRONMENT
from tests.fault.rig import unsent, until, until_quiet
from tests.fault.telegram_rig import ON_ITS_WAY_S, words
from tests.support.daemon import Daemon
from tests.support.model_server import Question, Rule, ScriptedModel
from tests.support.patience import PATIENCE_S
from tests.support.slack import Call, FakeSlack, Shown
from tests.support.slack.rig import ONE, SlackRig, slack_rig

ANN, JOE, BOB, EVE = "U0ANN", "U0JOE", "U0BOB", "U0EVE"
"""Two owners, a friend who may write, and a colleague whom nobody allowed."""
ANN_TOO = "U1ANN"
"""The first owner in the second workspace."""
TO_ANN, TO_JOE, TO_BOB, TO_ANN_TOO = "D0ANN", "D0JOE", "D0BOB", "D1ANN"
KITCHEN, SHED = "C0CC", "C1CC"
"""A channel of the first workspace, and one of the second."""
CREATES = ("chat.postMessage", "files.completeUploadExternal")
SHOWING = (*CREATES, "chat.update", "chat.delete")
NO_LIMITS = "per_channel_per_s = 0\noverall_per_min = 0"
AGAIN_S = (0.0, 0.5, *[1.0] * 40)
"""Pauses between Slack's deliveries of one event. Shorter and more than the real ones, so that several lives fit in."""
CONFIG = """
[owners]
ann = ["slack:T0AA/U0ANN", "slack:T0BB/U1ANN"]
joe = ["slack:T0AA/U0JOE"]
[limits]
messages_per_minute = 0
[people]
allow = [{friends}]
[chats]
allow = ["slack:T0AA/C0CC", "slack:T0BB/C1CC"]
[model]
name = "openai:scripted"
base_url = "{model}"
[tools.shell]
permission = "always"
"""


@dataclass(slots=True, kw_only=True)
class Wire:
    """A daemon, its bots on Slack and its model."""

    rig: SlackRig
    model: ScriptedModel
    deaths: list[float] = field(default_factory=list[float])
    """When it died by `kill -9`, in seconds of `time.monotonic()`."""

    @property
    def daemon(self) -> Daemon:
        """The daemon."""
        return self.rig.daemon

    @property
    def slack(self) -> FakeSlack:
        """The first workspace."""
        return self.rig.slack

    async def start(self, armed: str = "", *, ready: bool = True) -> None:
        """Begin a life, with fail points armed."""
        await self.rig.start({ENVIRONMENT: armed}, ready=ready)

    async def kill(self) -> None:
        """End this life as by `kill -9`."""
        await self.daemon.kill()
        self.deaths.append(time.monotonic())

    async def killed(self) -> None:
        """Wait until a fail point ends this life."""
        try:
            assert await self.daemon.died() == -signal.SIGKILL
        except TimeoutError:
            raise AssertionError(f"it lives on; {self.slack.picture()}\n{self.daemon.log[-3000:]}") from None
        self.deaths.append(time.monotonic())

    async def settled(self, within_s: float = PATIENCE_S) -> None:
        """Wait until all that happened was taken, and nothing is queued, running, parked, due or being sent."""
        for slack in self.rig.workspaces.values():
            await slack.heard(within_s=within_s)
        await until_quiet(self.daemon, within_s)
        await self.all_sent(within_s)

    async def all_sent(self, within_s: float = PATIENCE_S) -> None:
        """Wait until no slot is due or being sent."""
        await until(lambda: not unsent(self.daemon), within_s)


@asynccontextmanager
async def wire(
    folder: Path,
    *,
    mode: Mode = "socket",
    friends: Sequence[str] = (BOB,),
    rules: Sequence[Rule] = (),
    limits: str = NO_LIMITS,
    workspaces: Sequence[tuple[str, str]] = ((ONE, "T0AA"),),
) -> AsyncGenerator[Wire]:
    """Everything but the daemon's first life; see `slack_rig` for what is asserted in the end."""
    allowed = ", ".join(f'"slack:T0AA/{friend}"' for friend in friends)
    async with ScriptedModel(rules=rules) as model:
        config = CONFIG.format(friends=allowed, model=model.base_url)
        async with slack_rig(folder, mode=mode, config=config, limits=limits, workspaces=workspaces, warm=True) as rig:
            for slack in rig.workspaces.values():
                slack.app.pauses_s = AGAIN_S
            for who in (ANN, JOE, *friends):
                rig.slack.person(who, who.removeprefix("U0").lower())
            rig.slack.channel(KITCHEN, "kitchen", members=[ANN, JOE, *friends])
            yield Wire(rig=rig, model=model)


def direct(user: str) -> str:
    """The bot's own conversation with somebody."""
    return f"D{user[1:]}"


async def press(slack: FakeSlack, who: str, card: Shown, label: str, within_s: float = PATIENCE_S) -> int:
    """Press a button, again when Slack shows that it was not taken, until it was or is gone; return how often."""
    times = 0
    async with asyncio.timeout(within_s):
        while label in card.labels:
            pressed = slack.press(who, card, label)
            times += 1
            await slack.until(lambda pressed=pressed: pressed.done)
            if pressed.acknowledged:
                break
            await asyncio.sleep(0.2)
    return times


def cards_as_made(slack: FakeSlack) -> list[Shown]:
    """Every message with buttons, as it was when it was made."""
    made = [
        (call, list(call.parameters["blocks"]))
        for call in slack.calls("chat.postMessage")
        if call.acted and any(block["type"] == "actions" for block in call.parameters.get("blocks", []))
    ]
    return [
        replace(slack.world.channels[call.channel].messages[str(call.answer["ts"])], blocks=blocks)
        for call, blocks in made
    ]


# --- files --------------------------------------------------------------------------------------


@asynccontextmanager
async def half_given(slack: FakeSlack, content: bytes) -> AsyncGenerator[asyncio.Event]:
    """Meanwhile whoever asks for a file is given half of this, and then nothing more; the event says that it was."""
    given, over = asyncio.Event(), asyncio.Event()

    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(content))})
        await response.prepare(request)
        await response.write(content[: len(content) // 2])
        given.set()
        await over.wait()
        return response

    slack.hub.give = half
    try:
        yield given
    finally:
        slack.hub.give = None
        over.set()


def inboxes(daemon: Daemon) -> dict[str, bytes]:
    """All that came, of every session, by path in its workspace; half files too."""
    found = (daemon.state / "workspaces").glob("*/inbox/*")
    return {f"inbox/{path.name}": path.read_bytes() for path in found}


def paths_told(model: ScriptedModel, words: str) -> list[str]:
    """Return the paths of the files that came with these words, from the model's requests about them. A path comes
    again for each repeated request.
    """
    asked = [Question.of(one.body).text for one in model.requests]
    blocks = [
        re.search(r"Files that came .*?\]\n([0-9a-f]{16})\n(.*?)\n\1", text, re.DOTALL)
        for text in asked
        if words in text
    ]
    return [path for block in blocks for path in re.findall(r"inbox/[\w.-]+", block[2] if block else "")]


# --- the judge ----------------------------------------------------------------------------------


def judge_places(workspaces: Mapping[str, FakeSlack], slots: Sequence[Slot]) -> list[Shown]:
    """Each slot is shown whole, in its thread, in order, by messages that carry its name; return what else is there."""
    owned: set[tuple[str, str, str]] = set()
    for slot in slots:
        slack = workspaces[slot.conversation.account]
        assert slot.state is SlotState.SENT, slot
        assert slot.sent_version == slot.version, slot
        messages = messages_of(slack, slot)
        assert messages, slot
        assert [one.thread for one in messages] == [slot.conversation.thread] * len(messages), slot
        mine = {(slack.team, one.channel, one.ts) for one in messages}
        assert not owned & mine, "two slots in one message"
        owned |= mine
        _is_whole(slot, messages)
    _in_order(workspaces, slots)
    everywhere = [(slack, channel) for slack in workspaces.values() for channel in slack.world.channels]
    return [
        one
        for slack, channel in everywhere
        for one in slack.shown(channel)
        if (slack.team, one.channel, one.ts) not in owned
    ]


def as_stored(rows: Mapping[str, Sequence[Item]], said: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the sent texts in the order of the store: a redelivered one may follow a later one. Texts that are not
    stored are at the end.
    """
    found: dict[str, list[str]] = {}
    for session, texts in said.items():
        stored = [item.message.text for item in rows.get(session, ()) if isinstance(item, Received)]
        found[session] = sorted(
            texts, key=lambda text, stored=stored: (text not in stored, [*stored, text].index(text))
        )
    return found


def messages_of(slack: FakeSlack, slot: Slot) -> list[Shown]:
    """The messages that show a slot, in order; a file's id stands for the message with it."""
    place = slack.world.channels[slot.conversation.chat]
    stamps = [slack.world.files[one].shares[0][1] if one.startswith("F") else one for one in slot.message_ids]
    found = [place.messages[ts] for ts in stamps]
    assert not any(one.deleted for one in found), slot
    return found


def _is_whole(slot: Slot, messages: Sequence[Shown]) -> None:
    texts = [one for one in messages if not one.files]
    for one in texts:
        assert one.metadata is not None
        assert one.metadata["event_payload"]["slot"] == slot.id, slot
    if slot.kind is not SlotKind.CARD and "`" not in slot.text and len(texts) == len(messages):
        assert words("".join(one.text for one in texts)) == words(slot.text), slot


def _in_order(workspaces: Mapping[str, FakeSlack], slots: Sequence[Slot]) -> None:
    """In a conversation the slots of one session stand in the order in which they were stored."""
    of_session: dict[tuple[str | None, Conversation], list[Slot]] = {}
    for slot in slots:
        of_session.setdefault((slot.session, slot.conversation), []).append(slot)
    for (_, place), mine in of_session.items():
        slack = workspaces[place.account]
        firsts = [float(messages_of(slack, slot)[0].ts) for slot in mine]
        assert firsts == sorted(firsts), slack.picture(place.chat)


def retry_after_s(call: Call) -> float:
    """For how long a call was refused."""
    assert call.fault is not None
    return float(dict(call.fault.headers)["Retry-After"])


def calls_in_bans(log: Sequence[Call]) -> list[Call]:
    """Calls of a method in a conversation while a ban of both held that the app had been told of."""
    refused = [call for call in log if call.status == 429]

    def banned(call: Call) -> bool:
        return any(
            (call.team, call.channel, call.method) == (ban.team, ban.channel, ban.method)
            and ban.answered_s + ON_ITS_WAY_S < call.at_s < ban.answered_s + retry_after_s(ban) - ON_ITS_WAY_S
            for ban in refused
        )

    return [call for call in log if call.method in SHOWING and banned(call)]
