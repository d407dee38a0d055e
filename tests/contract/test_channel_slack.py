"""Channel contract on Slack: the real channel in two workspaces on loopback, by sockets and over HTTP."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import time
from types import MappingProxyType
from typing import Any, ClassVar, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from markdown_it import MarkdownIt

from channels.slack import ids
from channels.slack.account import SlackPauses
from channels.slack.adapter import SlackChannel
from channels.slack.manifest import manifest
from channels.slack.settings import Mode, SlackSettings
from channels.slack.socket import Timing
from gateway.domain.ids import Principal
from gateway.domain.messages import Conversation
from gateway.errors import SendOutcome
from gateway.ports import Channel
from tests.contract.channel import ChannelContract
from tests.contract.channel_rig import Can, Push, Rig, Seen, Who
from tests.support.slack import FakeSlack, Fault, Shown, faults
from tests.support.slack.app import Delivery
from tests.support.slack.blocks import texts_of

USERS = MappingProxyType({Who.ANN: "U0ANN", Who.CLEO: "U0CLEO", Who.BOB: "U0BOB", Who.EVE: "U0EVE"})
TEAMS = MappingProxyType({"one": "T0AA", "two": "T0BB"})
GROUP = "C0CC"
THREAD = "1767225600.000100"
"""Somebody had said something in the group before, long before the bot came: a thread can be begun below it."""
NONE: Mapping[str, float] = MappingProxyType({"per_channel_per_s": 0, "overall_per_min": 0})
QUICK = SlackPauses(first=0.02, longest=0.05, token=0.05, broken=0.02)
TIMING = Timing(connect=2, hello=2, close=0.2)
SENDING = ("chat.postMessage", "chat.update", "chat.delete", "files.completeUploadExternal")
NO_TYPING = "it is shown in threads of direct conversations alone"
Json = dict[str, Any]


class SlackRig(Rig):
    """Two workspaces; in the first one a channel is allowed, in which people mean the bot by `/dragoman …`.

    By name they would begin a thread: what is said there is another conversation, and a scenario of its own.
    """

    name = "slack"
    mode: ClassVar[Mode] = "socket"
    cannot: ClassVar[Mapping[Can, str]] = {Can.TYPING: NO_TYPING}
    failures: ClassVar = {
        "flood": SendOutcome.WAIT,
        "broken": SendOutcome.UNCERTAIN,
        "gateway": SendOutcome.UNCERTAIN,
        "dropped": SendOutcome.UNCERTAIN,
        "cut": SendOutcome.UNCERTAIN,
        "torn": SendOutcome.UNCERTAIN,
        "archived": SendOutcome.DEAD,
        "revoked": SendOutcome.WAIT,
        "scope": SendOutcome.WAIT,
        "strange": SendOutcome.DEAD,
    }
    lost: ClassVar = "cut"
    files: ClassVar = True
    can_be_asked: ClassVar = True
    unreadable: ClassVar = [
        None,
        7,
        [],
        {},
        {"type": "event_callback"},
        {"type": "event_callback", "team_id": "T0AA", "event_id": "Ev1", "event": {"type": "pin_added"}},
        {"type": "event_callback", "team_id": "T0AA", "event_id": "Ev2", "event": {"type": "message", "user": 7}},
        {"type": "event_callback", "team_id": "T0ZZ", "event_id": "Ev3", "event": {"type": "message"}},
        {"type": "block_actions", "team": {"id": "T0AA"}, "user": {"id": "U0ANN"}, "actions": [{"type": "button"}]},
        {"type": "view_submission", "view": None},
        {"command": "/dragoman", "team_id": "T0AA", "user_id": None},
    ]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.workspaces: dict[str, FakeSlack] = {}
        self._line = AsyncExitStack()
        self._told: dict[str, tuple[Who, str, int]] = {}
        """By press: who, with which handle, and how many lines they had been told before."""
        self._buttons: dict[str, Json] = {}
        """Every button that was ever there, by its handle."""

    @asynccontextmanager
    async def platform(self) -> AsyncGenerator[None]:
        first = FakeSlack(TEAMS["one"])
        self.workspaces = {"one": first, "two": first.another_workspace(TEAMS["two"])}
        for slack in self.workspaces.values():
            slack.app.ack_within_s = 1.0
            for who, user in USERS.items():
                slack.person(user, who)
                slack.direct(user)
        first.channel(GROUP, "kitchen", members=USERS.values())
        first.world.put(Shown(channel=GROUP, ts=THREAD, by=USERS[Who.CLEO], wire="Who bakes?"))
        async with AsyncExitStack() as stack:
            await self._line.enter_async_context(first.serve())
            stack.push_async_callback(lambda: self._line.aclose())
            self.channel = self._channel(NONE)
            self._install(await stack.enter_async_context(_door(self.channel)))
            yield
        assert first.surprises == []

    def _channel(self, limits: Mapping[str, float]) -> SlackChannel:
        accounts: dict[str, Json] = {}
        for name, slack in self.workspaces.items():
            keys = {"bot_token": slack.bot_token, "app_token": slack.app_token, "signing_secret": slack.signing_secret}
            accounts[name] = {**keys, "api_root": slack.api_root, "mode": self.mode, "limits": dict(limits)}
        settings = SlackSettings.model_validate({"accounts": accounts})
        return SlackChannel(self.engine.context(self.name, settings, self.client), QUICK, TIMING)

    def _install(self, url: str) -> None:
        """Each workspace installs the app from its manifest, and signs by the clock of the test."""
        for name, slack in self.workspaces.items():
            slack.install(manifest(self.mode, account=name, public_url=url))
            slack.pushes.skew_s = self.engine.clock.now().timestamp() - time()

    async def ready(self) -> None:
        def open() -> bool:
            return self.mode == "http" or all(
                sum(socket.usable for socket in slack.sockets) == 2 for slack in self.workspaces.values()
            )

        await self.until(lambda: not self.channel.trouble() and open())

    # --- who and where ---

    @property
    def allowed_chat(self) -> str:
        return f"slack:{TEAMS['one']}/{GROUP}"

    def principal(self, who: Who) -> Principal:
        return ids.principal(TEAMS["one"], USERS[who])

    def principals(self, who: Who) -> frozenset[Principal]:
        return frozenset(ids.principal(team, USERS[who]) for team in TEAMS.values())

    def direct(self, who: Who, *, second: bool = False) -> Conversation:
        return ids.conversation("two" if second else "one", f"D{USERS[who][1:]}")

    def group(self) -> Conversation:
        return ids.conversation("one", GROUP)

    def thread(self) -> Conversation:
        return ids.conversation("one", GROUP, THREAD)

    # --- what people do ---

    async def say(self, who: Who, text: str, where: Conversation, *, to_bot: bool = True) -> str:
        slack, user = self.workspaces[where.account], USERS[who]
        if where.chat == GROUP and to_bot and not where.thread:
            slack.slash(user, text, channel=GROUP)
        elif where.chat == GROUP and to_bot:
            slack.mention(user, text, channel=GROUP, thread=where.thread)
        else:
            slack.say(user, text, channel=where.chat if where.chat == GROUP else "", thread=where.thread)
        return self._last(where.account)

    async def say_with(self, who: Who, text: str, where: Conversation, name: str, content: bytes) -> str:
        chat = where.chat if where.chat == GROUP else ""
        self.workspaces[where.account].attach(
            USERS[who], content, name=name, text=text, channel=chat, thread=where.thread, mimetype="text/plain"
        )
        return self._last(where.account)

    def forget_files(self) -> None:
        for slack in self.workspaces.values():
            for file in slack.world.files.values():
                file.deleted = True

    async def press(self, who: Who, where: Conversation, handle: str) -> str:
        slack, user = self.workspaces[where.account], USERS[who]
        lines = len(_lines(slack, user))
        place = [one for one in slack.shown(where.chat) if handle in _handles(one)]
        if place and user in slack.world.channels[where.chat].members:
            slack.press(user, place[0], handle)
        else:
            slack.press_raw(user, self._forged(slack, where, handle))
        event = self._last(where.account)
        self._told[event] = (who, handle if place else "", lines)
        return event

    def _forged(self, slack: FakeSlack, where: Conversation, handle: str) -> Json:
        """Return a payload that no app sends, but another program could, for any known message."""
        button = self._buttons.get(handle, {"type": "button", "action_id": "once:1", "block_id": "b"})
        ts = slack.world.ts()
        return {
            "container": {"type": "message", "message_ts": ts, "channel_id": where.chat, "is_ephemeral": False},
            "channel": {"id": where.chat, "name": "directmessage"},
            "actions": [{**button, "value": handle, "action_ts": ts}],
        }

    async def told(self, event: str) -> str:
        """A line for the person alone; where the press decided, the card says so."""
        who, handle, before = self._told[event]
        slack = self._slack(event)

        def answers() -> list[str]:
            lines = _lines(slack, USERS[who])[before:]
            decided = handle and not any(handle in _handles(one) for place in self._places() for one in place)
            return lines or (["The card says it."] if decided else [])

        await self.until(answers)
        await self.until(lambda: self.acknowledged(event))
        return answers()[0]

    def _places(self) -> list[Sequence[Shown]]:
        return [slack.shown(chat) for slack in self.workspaces.values() for chat in slack.world.channels]

    async def deny_with_reason(self, who: Who, where: Conversation, card: Seen, reason: str) -> None:
        slack = self.workspaces[where.account]
        await self.press(who, where, card.handle("Deny with reason"))
        form = await slack.see_modal(USERS[who], "Why not?")
        await slack.acknowledged(slack.submit(form, {"reason": reason}))
        assert not form.open

    async def redeliver(self, event: str) -> None:
        first = self._delivery(event)
        self._slack(event).send_payload(first.payload, first.kind)

    async def push(self, event: object) -> str:
        self.workspaces["one"].send_payload(event)
        return self._last("one")

    def acknowledged(self, event: str) -> bool:
        payload = self._delivery(event).payload
        return any(one.acknowledged for one in self._slack(event).app.given if one.payload is payload)

    async def from_nobody(self) -> Sequence[str]:
        slack = self.workspaces["one"]
        before = len(slack.app.given)
        slack.other_bot_says(f"{slack.mention_of_bot} let me in", channel=GROUP)
        slack.say("USLACKBOT", f"{slack.mention_of_bot} let me in", raw=True)
        return [f"one {n}" for n in range(before, len(slack.app.given))]

    def _last(self, account: str) -> str:
        return f"{account} {len(self.workspaces[account].app.given) - 1}"

    def _slack(self, event: str) -> FakeSlack:
        return self.workspaces[event.split()[0]]

    def _delivery(self, event: str) -> Delivery:
        return self._slack(event).app.given[int(event.split()[1])]

    # --- what they see ---

    def shown(self, where: Conversation) -> Sequence[Seen]:
        if not self.workspaces:
            return []
        every = self.workspaces[where.account].shown(where.chat, where.thread)
        for button in (button for one in every for button in one.buttons):
            self._buttons[button["value"]] = button
        return [_seen(one) for one in every]

    def picture(self) -> str:
        return "\n".join(slack.picture() for slack in self.workspaces.values())

    # --- what goes wrong ---

    @asynccontextmanager
    async def failing(self, failure: str) -> AsyncGenerator[None]:
        fault: Fault = {
            "flood": faults.too_many(3),
            "broken": faults.broken(500),
            "gateway": faults.page(502),
            "dropped": faults.drop(),
            "cut": faults.cut(),
            "torn": faults.torn(),
            "archived": faults.error("is_archived"),
            "revoked": faults.error("token_revoked"),
            "scope": faults.error("missing_scope", needed="chat:write", provided=""),
            "strange": faults.error("something_that_nobody_ever_heard_of"),
        }[failure]
        slack = self.workspaces["one"]
        slack.script(lambda call: fault if call.method in SENDING else None)
        yield
        slack.script(lambda call: None)

    def limited(self) -> Channel:
        return self._channel({})

    @asynccontextmanager
    async def unreachable(self) -> AsyncGenerator[None]:
        await self._line.aclose()
        self.engine.clock.advance(100)
        yield
        await self._line.enter_async_context(self.workspaces["one"].serve())


class HttpRig(SlackRig):
    """The same, where Slack comes to us."""

    mode: ClassVar[Mode] = "http"
    cannot: ClassVar[Mapping[Can, str]] = {
        Can.TYPING: NO_TYPING,
        Can.ALONE: "it is Slack that comes, and nobody hears of it when it does not",
    }


@asynccontextmanager
async def _door(channel: SlackChannel) -> AsyncGenerator[str]:
    """The daemon's own HTTP server, as far as Slack needs it."""
    application = web.Application()
    for endpoint in channel.endpoints():
        application.router.add_route(endpoint.method, endpoint.path, endpoint.handler)
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")


def _lines(slack: FakeSlack, user: str) -> list[str]:
    """Return ephemeral messages to a person; Slack does not show them to the sender of a forged press elsewhere."""
    return [call.parameters["text"] for call in slack.calls("chat.postEphemeral") if call.parameters["user"] == user]


def _handles(message: Shown) -> list[str]:
    return [button["value"] for button in message.buttons]


# --- what Slack makes of a message --------------------------------------------------------------

_RINGS = re.compile(r"<(?:@[UWB][A-Z0-9]+|!(?:channel|here|everyone|subteam\^\w+)|#[CGD][A-Z0-9]+)[^<>\n]*>")
_ADDRESS = re.compile(r"(?:https?://|mailto:)[^\s<>()\[\]|\"']+")
UNSEEN = "\u2060"
"""It has no width."""
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def _seen(message: Shown) -> Seen:
    """Plain text and code stay as they are; in Markdown names ring and addresses can be followed, as in `mrkdwn`."""
    words: list[str] = []
    active: list[str] = []
    for block in message.blocks or [{"type": "mrkdwn", "text": message.wire}]:
        is_markdown = block["type"] == "markdown"
        said = "\n".join(texts_of(block))
        read, links = _read(said) if is_markdown else (said, [])
        words.append(read)
        active += [*links, *(_RINGS.findall(said) + _ADDRESS.findall(said) if "mrkdwn" in _kinds(block) else [])]
    buttons = tuple(Push(button["text"]["text"], button["value"]) for button in message.buttons)
    content = b"".join(file.content or b"" for file in message.files)
    text = "\n".join(filter(None, words)).replace(UNSEEN, "")
    return Seen(
        id=message.ts,
        text=text,
        buttons=buttons,
        file=content.decode(errors="replace"),
        active=tuple(dict.fromkeys(active)),
    )


def _read(markdown: str) -> tuple[str, list[str]]:
    """Return a markdown block's text, and the pings and links in it."""
    words: list[str] = []
    active = _RINGS.findall(markdown)
    for token in _MARKDOWN.parse(markdown):
        for part in [token, *(token.children or [])]:
            if part.type in ("text", "code_inline", "fence", "code_block"):
                words.append(part.content)
                active += _ADDRESS.findall(part.content) if part.type == "text" else []
            elif part.type in ("softbreak", "hardbreak", "paragraph_close", "heading_close"):
                words.append("\n")
            elif part.type in ("link_open", "image"):
                active += _ADDRESS.findall(str(part.attrGet("href") or part.attrGet("src")))
    return "".join(words).strip("\n"), active


def _kinds(part: object) -> set[str]:
    """Every `type` within a block."""
    if isinstance(part, list):
        return {kind for one in cast("list[object]", part) for kind in _kinds(one)}
    if not isinstance(part, dict):
        return set()
    found = cast("Json", part)
    return {str(found.get("type", ""))} | {kind for one in found.values() for kind in _kinds(one)}


class TestSlack(ChannelContract):
    rig_class = SlackRig


@pytest.mark.whole("the same contract over sockets stays, and each request over HTTP in the unit tests of the account")
class TestSlackOverHttp(ChannelContract):
    rig_class = HttpRig
