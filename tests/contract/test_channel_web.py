"""Channel contract on the web page: one page for each owner, over its own socket and in its script's protocol."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, cast

import aiohttp

from gateway.domain.ids import OwnerName, Principal, main_session
from gateway.domain.messages import Conversation
from gateway.ports import COOKIE
from gateway.server.http import HttpServer
from gateway.server.page import ids
from gateway.server.request_guard import KEY_HEADER, Address
from tests.contract.channel import ChannelContract
from tests.contract.channel_rig import Can, Push, Rig, Seen, Who
from tests.support.engine import Served
from tests.support.fakes import in_background

OWNERS = (Who.ANN, Who.CLEO)
ONE_EACH = "a page has one reader: its owner"


class Page:
    """One owner's open page: what it was sent, put together as its script does."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.rows: dict[int, dict[str, Any]] = {}
        self.answers: dict[str, dict[str, Any]] = {}
        """By the id of what was said or pressed."""
        self.errors: list[str] = []

    async def read(self) -> None:
        """Take frames until the socket ends."""
        async for message in self.socket:
            frame: dict[str, Any] = json.loads(cast("str", message.data))
            match frame["op"]:
                case "rows":
                    self.rows |= {row["ord"]: row for row in frame["rows"]}
                case "said" | "pressed":
                    self.answers[frame["id"]] = frame
                case "error":
                    self.errors.append(frame["text"])
                case _:
                    pass

    @property
    def seen(self) -> list[Seen]:
        """Return the bot's messages on the page: texts, and approvals with their buttons."""
        shown = (self.rows[ord] for ord in sorted(self.rows))
        return [_seen(row) for row in shown if row["type"] in {"slot", "approval"}]


class WebRig(Rig):
    """The page of two owners, each with a socket of its own."""

    name = "web"
    cannot: ClassVar = {
        Can.OTHERS: "only owners sign in",
        Can.GROUPS: ONE_EACH,
        Can.THREADS: ONE_EACH,
        Can.NOBODY: ONE_EACH,
        Can.ELSEWHERE: ONE_EACH,
        Can.SENDS: "it shows rows as they are stored; nothing is sent",
        Can.RENDERS: "its script makes the text, in the browser: scenario 6 attacks that",
        Can.TYPING: "it sees by itself that a turn runs",
        Can.LIMITS: "it is served by the daemon itself",
        Can.ALONE: "it is served by the daemon itself",
        Can.ACCOUNTS: "there is one page",
    }
    files: ClassVar = True
    failures: ClassVar = {}
    unreadable: ClassVar = [
        "no JSON",
        None,
        [],
        {"op": "dance"},
        {"op": "say", "id": "x", "text": "too short an id"},
        {"op": "say", "id": "malformed-1", "text": 7},
        {"op": "press", "id": "malformed-2"},
        {"op": "open", "session": "main:cleo"},
    ]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._pages: dict[Who, Page] = {}
        self._sent: dict[str, tuple[Who, dict[str, Any]]] = {}
        self._ids = (f"event-{n:05}" for n in itertools.count())

    @asynccontextmanager
    async def platform(self) -> AsyncGenerator[None]:
        """The page's own server. Not `served`, which runs the channel itself."""
        engine = self.engine
        pages, web = engine.page()
        http = HttpServer(
            address=Address(host="127.0.0.1", port=0),
            endpoints=web.endpoints(),
            sign_ins=pages,
            health=engine.store,
            metrics=engine.metrics,
            clock=engine.clock,
        )
        self.channel = web
        self._served = Served(engine=engine, web_access=pages, web=web, http=http)
        await http.start()
        async with AsyncExitStack() as stack:
            self._stack = stack
            yield
        await http.stop()

    async def ready(self) -> None:
        for who in OWNERS:
            self._pages[who] = page = Page(await self._opened(who))
            await self._stack.enter_async_context(in_background(page.read()))
            await page.socket.send_json({"op": "open", "session": main_session(OwnerName(who)), "after": 0})

    async def _opened(self, who: Who) -> aiohttp.ClientWebSocketResponse:
        cookie, _, key = (await self._served.cookie(OwnerName(who))).partition(".")
        headers = {"Origin": self._served.url, KEY_HEADER: key, "Cookie": f"{COOKIE}={cookie}"}
        opening = self.client.ws_connect(f"{self._served.url}/ws", headers=headers)
        return await self._stack.enter_async_context(opening)

    # --- who and where ---

    def principal(self, who: Who) -> Principal:
        return ids.principal(OwnerName(who))

    def direct(self, who: Who, *, second: bool = False) -> Conversation:
        return ids.conversation(OwnerName(who))

    def group(self) -> Conversation:
        return self.direct(Who.ANN)

    def thread(self) -> Conversation:
        return self.direct(Who.ANN)

    # --- what people do ---

    async def say(self, who: Who, text: str, where: Conversation, *, to_bot: bool = True) -> str:
        return await self._send(Who(where.chat), {"op": "say", "text": text})

    async def say_with(self, who: Who, text: str, where: Conversation, name: str, content: bytes) -> str:
        """Upload the file, then name it in a message."""
        key, owner = next(self._ids), OwnerName(where.chat)
        async with (
            self._served.client(await self._served.cookie(owner)) as client,
            client.put(
                f"{self._served.url}/api/uploads/{key}", data=content, headers={"X-Dragoman-Name": name}
            ) as answer,
        ):
            assert answer.status == 200
        return await self._send(Who(where.chat), {"op": "say", "text": text, "files": [key]})

    def forget_files(self) -> None:
        shutil.rmtree(self.engine.core.loaded.state / "uploads")

    async def press(self, who: Who, where: Conversation, handle: str) -> str:
        return await self._send(Who(where.chat), {"op": "press", "handle": handle})

    async def _send(self, who: Who, frame: dict[str, Any]) -> str:
        event = next(self._ids)
        self._sent[event] = (who, {**frame, "id": event})
        await self._pages[who].socket.send_json(self._sent[event][1])
        return event

    async def told(self, event: str) -> str:
        await self.until(lambda: event in self._answers(event))
        return str(self._answers(event)[event]["text"])

    def _answers(self, event: str) -> dict[str, dict[str, Any]]:
        return self._pages[self._sent[event][0]].answers

    async def deny_with_reason(self, who: Who, where: Conversation, card: Seen, reason: str) -> None:
        frame = {"op": "press", "handle": card.handle("Deny with reason"), "reason": reason}
        await self.told(await self._send(who, frame))

    async def redeliver(self, event: str) -> None:
        who, frame = self._sent[event]
        self._answers(event).pop(event, None)
        await self._pages[who].socket.send_json(frame)

    async def push(self, event: object) -> str:
        await self._pages[Who.ANN].socket.send_str(event if isinstance(event, str) else json.dumps(event))
        return ""

    def acknowledged(self, event: str) -> bool:
        answer = self._answers(event).get(event)
        return answer is not None and bool(answer.get("ok", answer.get("result") != "not_valid"))

    # --- what they see ---

    def shown(self, where: Conversation) -> Sequence[Seen]:
        page = self._pages.get(Who(where.chat)) if where.chat in OWNERS else None
        return page.seen if page is not None else []


def _seen(row: dict[str, Any]) -> Seen:
    if row["type"] == "slot":
        return Seen(id=row["id"], text=row["text"])
    facts = [f"{label}: {value}" for label, value in [*row["facts"], *row["details"]]]
    facts.append(f"{datetime.fromisoformat(row['expires_at']):%Y-%m-%d %H:%M} UTC")
    text = "\n".join([row["title"], row["rendered"], row["note"], *facts, row["outcome"]])
    return Seen(id=row["id"], text=text, buttons=tuple(Push(b["label"], b["handle"]) for b in row["buttons"]))


class TestWeb(ChannelContract):
    rig_class = WebRig
