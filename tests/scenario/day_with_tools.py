"""Three sentences of a day for scenario 15: what a person says, what the model does, and a chat on each channel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gateway.domain.ids import OwnerName, main_session, mint
from gateway.system.failpoints import ENVIRONMENT
from gateway.toolcalls.workspaces import Workspaces
from tests.support.daemon import Daemon, Page, page_of
from tests.support.model_server import Call, Reply, Rule
from tests.support.pages import Pages
from tests.support.slack import FakeSlack
from tests.support.slack import Shown as SlackMessage
from tests.support.slack.rig import SlackRig
from tests.support.telegram import TOKEN, FakeTelegram, Shown

OWNER = OwnerName("ann")
ANN, SLACK_ANN, TO_ANN = 1001, "U0ANN", "D0ANN"
CONFIG = """
[owners]
ann = [{principals}]
[model]
name = "openai:scripted"
base_url = "{model}"
[tools]
folder = "tools"
[tools.webfetch]
hosts = ["{host}"]
"""
TELEGRAM = """
[channels.telegram]
token = "env:TELEGRAM_BOT_TOKEN"
api_root = "{api_root}"
"""
SETTINGS = 'name = "oven"\nport = 8470\n\n[client]\nretries = 3\ntimeout = 30\n\n[log]\nlevel = "info"\n'
CHANGED = SETTINGS.replace("timeout = 30", "timeout = 60")
DRAW = """python3 - <<'END'
import struct, zlib
sales, colours = [3, 5, 4, 8, 9, 12], [(66, 133, 244), (52, 168, 83)]
rows = []
for y in range(240):
    row = bytearray(b"\\xff" * 1200)
    for n, sold in enumerate(sales):
        if y >= 230 - sold * 18 and y < 230:
            row[(20 + n * 62) * 3 : (62 + n * 62) * 3] = bytes(colours[n % 2]) * 42
    rows.append(b"\\0" + bytes(row))
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
head = struct.pack(">IIBBBBB", 400, 240, 8, 2, 0, 0, 0)
png = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")
open("chart.png", "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + png)
END"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One sentence, and what comes of it."""

    words: str
    steps: Sequence[Call]
    """Calls of the model, each in an answer of its own."""
    card: str
    """Text of the card that has to be pressed."""
    answer: str

    def rules(self) -> list[Rule]:
        """Return the model's script, which holds however often it is asked."""
        said = [Rule(text=self.words[:20], results=n, reply=Reply(calls=(one,))) for n, one in enumerate(self.steps)]
        return [*said, Rule(text=self.words[:20], results=len(self.steps), reply=Reply(text=self.answer))]


def call(tool: str, **arguments: Any) -> Call:
    """Return a call as a model writes it."""
    return Call(name=tool, arguments=json.dumps(arguments))


CHANGE = Sentence(
    words="Find where the timeout is set and change it to 60.",
    steps=(
        call("grep", pattern="timeout"),
        call("read", path="conf/settings.toml"),
        call("edit", path="conf/settings.toml", old="timeout = 30", new="timeout = 60"),
    ),
    card="+timeout = 60",
    answer="The timeout is 60 s now: line 6 of conf/settings.toml.",
)
CHART = Sentence(
    words="Draw a chart of the sales and send it to me.",
    steps=(
        call("shell", command=DRAW),
        call("tools", call={"name": "send_file", "arguments": {"path": "chart.png"}}),
    ),
    card="python3",
    answer="Here are the sales of six months.",
)


OWN = """from agent_tools.own import tool


@tool
def dough(loaves: int, flour: str = "rye") -> str:
    \"\"\"Return the weights for a number of loaves.\"\"\"
    return f"{loaves * 400} g of {flour} flour and {loaves * 300} g of water"
"""
WEIGH = Sentence(
    words="How much flour do seven loaves need?",
    steps=(call("dough", loaves=7),),
    card="dough",
    answer="Seven loaves need 2.8 kg of flour.",
)


def prices(pages: Pages) -> Sentence:
    """Return the sentence about a page."""
    return Sentence(
        words=f"What does this page say about prices? {pages.here}/prices",
        steps=(call("webfetch", url=f"{pages.here}/prices"),),
        card=pages.scope,
        answer="Rye bread costs **4.20 €**, spelt bread 5.10 € and a roll 0.45 €.",
    )


def config(principals: str, model: str, pages: Pages) -> str:
    """Return the configuration of a day, without its channel."""
    return CONFIG.format(principals=principals, model=model, host=pages.scope)


def workspace(daemon: Daemon) -> Path:
    """Return the workspace of the owner's main session, with the file to be changed; put a tool into the folder."""
    (daemon.folder / "tools").mkdir(exist_ok=True)
    (daemon.folder / "tools/dough.py").write_text(OWN)
    daemon.state.mkdir(mode=0o700)
    found = Workspaces(daemon.state).workspace(main_session(OWNER))
    (found / "conf").mkdir(exist_ok=True)
    (found / "conf/settings.toml").write_text(SETTINGS)
    return found


class Chat(Protocol):
    """A chat of the owner on one channel, with a daemon that can be killed."""

    @property
    def daemon(self) -> Daemon:
        """The daemon."""
        ...

    async def start(self, armed: str = "") -> None:
        """Begin a life, with a fail point armed."""
        ...

    async def say(self, words: str) -> None:
        """Say something."""
        ...

    async def see_card(self, contains: str) -> object:
        """Wait for the card that is to be pressed."""
        ...

    async def press(self, contains: str) -> None:
        """Allow what a card shows."""
        ...

    async def see(self, text: str) -> None:
        """Wait for an answer."""
        ...

    def answers(self, text: str) -> int:
        """Count the messages with an answer."""
        ...

    def pictures(self) -> list[bytes]:
        """Return the pictures that were sent into the chat."""
        ...


@dataclass(slots=True, kw_only=True)
class TelegramChat:
    """The owner's chat on Telegram."""

    daemon: Daemon
    telegram: FakeTelegram

    async def start(self, armed: str = "") -> None:
        """Begin a life."""
        await self.daemon.start({"TELEGRAM_BOT_TOKEN": TOKEN, ENVIRONMENT: armed})

    async def say(self, words: str) -> None:
        """Say something."""
        self.telegram.say(ANN, words)

    async def see_card(self, contains: str) -> Shown:
        """Wait for the card."""
        await self.telegram.until(lambda: any(contains in one.text and one.labels for one in self.telegram.shown(ANN)))
        return [one for one in self.telegram.shown(ANN) if contains in one.text and one.labels][-1]

    async def press(self, contains: str) -> None:
        """Press its first button."""
        card = await self.see_card(contains)
        self.telegram.press(ANN, card, card.labels[0])

    async def see(self, text: str) -> None:
        """Wait for the answer."""
        await self.telegram.see(ANN, plain(text))

    def answers(self, text: str) -> int:
        """Count its messages."""
        return sum(plain(text) in one.text for one in self.telegram.shown(ANN))

    def pictures(self) -> list[bytes]:
        """Return what the documents and photos hold."""
        return [one.document.content for one in self.telegram.shown(ANN) if one.document and one.document.photo]


@dataclass(slots=True, kw_only=True)
class SlackChat:
    """The owner's direct messages in Slack."""

    rig: SlackRig

    @property
    def daemon(self) -> Daemon:
        """The daemon."""
        return self.rig.daemon

    @property
    def slack(self) -> FakeSlack:
        """The workspace of people."""
        return self.rig.slack

    async def start(self, armed: str = "") -> None:
        """Begin a life."""
        await self.rig.start({ENVIRONMENT: armed})

    async def say(self, words: str) -> None:
        """Say something."""
        self.slack.say(SLACK_ANN, words)

    async def see_card(self, contains: str) -> SlackMessage:
        """Wait for the card."""
        await self.slack.until(lambda: any(contains in one.text and one.labels for one in self.slack.shown(TO_ANN)))
        return [one for one in self.slack.shown(TO_ANN) if contains in one.text and one.labels][-1]

    async def press(self, contains: str) -> None:
        """Press its first button."""
        card = await self.see_card(contains)
        self.slack.press(SLACK_ANN, card, card.labels[0])

    async def see(self, text: str) -> None:
        """Wait for the answer."""
        await self.slack.see(TO_ANN, text[:20])

    def answers(self, text: str) -> int:
        """Count its messages."""
        return sum(text[:20] in one.text for one in self.slack.shown(TO_ANN))

    def pictures(self) -> list[bytes]:
        """Return what the uploads hold."""
        return [file.content or b"" for file in self.slack.uploads(TO_ANN) if file.name.endswith(".png")]


@dataclass(slots=True, kw_only=True)
class PageChat:
    """The owner's page, without a browser."""

    daemon: Daemon
    page: Page | None = None
    line: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self, armed: str = "") -> None:
        """Begin a life, and open the page anew."""
        await self.line.aclose()
        await self.daemon.start({ENVIRONMENT: armed})
        self.page = await self.line.enter_async_context(page_of(self.daemon, OWNER))

    @property
    def open_page(self) -> Page:
        """The page that is open."""
        assert self.page is not None
        return self.page

    async def say(self, words: str) -> None:
        """Say something."""
        await self.open_page.say(words, id=mint("say-"))

    async def see_card(self, contains: str) -> dict[str, Any]:
        """Wait for the card."""
        return await self.open_page.until_row("approval", lambda row: row["state"] == "open" and contains in str(row))

    async def press(self, contains: str) -> None:
        """Press its button."""
        card = await self.see_card(contains)
        await self.open_page.press(self.open_page.button(card, "once"), id=mint("press-"))

    async def see(self, text: str) -> None:
        """Wait for the answer."""
        await self.open_page.until_row("slot", lambda row: text in row["text"])

    def answers(self, text: str) -> int:
        """Count its rows."""
        return sum(row["type"] == "slot" and text in row["text"] for row in self.open_page.rows.values())

    def pictures(self) -> list[bytes]:
        """Return a mark for each picture of a call."""
        steps = [row for row in self.open_page.rows.values() if row["type"] == "step" and row["kind"] == "tool"]
        results: list[dict[str, Any]] = [step["result"] for step in steps if step["result"]]
        return [json.dumps(file).encode() for result in results for file in result["files"] if file["picture"]]


def plain(text: str) -> str:
    """Return the text as people see it."""
    return text.replace("**", "")
