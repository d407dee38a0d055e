"""Pushes the updates of one bot to its webhook: one at a time per chat, in order, until each is taken."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections import deque
from collections.abc import Callable
from urllib.parse import urlsplit

import aiohttp

from tests.support.telegram.checks import Json, bad
from tests.support.telegram.updates import Updates, kind_of

PAUSE_AT_MOST_S = 60.0
_NONE_YET: Json = {"url": "", "has_custom_certificate": False}


class Webhook:
    """The webhook of a bot, if it has one."""

    def __init__(self, updates: Updates, surprise: Callable[[str], None], changed: Callable[[], None]) -> None:
        self.url = ""
        self.secret = ""
        self.connections = 40
        self.pause_factor = 0.01
        """Factor on the real pauses between tries (2, 4, 8 … seconds)."""
        self.tries: list[tuple[int, int]] = []
        """Update and status of each try, in order; 0 when there was no answer."""
        self._updates = updates
        self._surprise = surprise
        self._changed = changed
        self._last_error: Json = {}
        self._lanes: dict[tuple[str, int], deque[Json]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        updates.on_added = self._added

    def set(self, p: Json) -> bool:
        """`setWebhook`; an empty url takes it away. Raises `Refusal`."""
        url: str = p.get("url", "")
        secret: str = p.get("secret_token", "")
        if not url:
            return self.delete(p)
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname == "127.0.0.1"):
            raise bad("bad webhook: An HTTPS URL must be provided for webhook")
        if len(secret) > 256:
            raise bad("secret token is too long")
        if not re.fullmatch(r"[A-Za-z0-9_-]*", secret):
            raise bad("secret token contains unallowed characters")
        self.stop()
        if p.get("drop_pending_updates"):
            self._updates.drop()
        if "allowed_updates" in p:
            self._updates.allowed = p["allowed_updates"]
        self._updates.end_poll()
        self.url, self.secret = url, secret
        self.connections = min(max(p.get("max_connections", 40), 1), 100)
        for update in self._updates.pending():
            self._added(update)
        return True

    def delete(self, p: Json) -> bool:
        """`deleteWebhook`; what was not taken waits for `getUpdates`."""
        self.stop()
        self.url, self.secret = "", ""
        if p.get("drop_pending_updates"):
            self._updates.drop()
        return True

    def info(self) -> Json:
        """`getWebhookInfo`."""
        info: Json = {**_NONE_YET, "url": self.url, "pending_update_count": len(self._updates.pending())}
        if self.url:
            info |= {"max_connections": self.connections, "ip_address": "127.0.0.1", **self._last_error}
        if self._updates.allowed:
            info["allowed_updates"] = self._updates.allowed
        return info

    def stop(self) -> None:
        """Push nothing more."""
        for task in self._tasks:
            task.cancel()
        self._lanes.clear()

    async def close(self) -> None:
        """Stop, and wait until that is so."""
        self.stop()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _added(self, update: Json) -> None:
        if not self.url:
            return
        lane = _lane(update)
        if lane in self._lanes:
            self._lanes[lane].append(update)
            return
        self._lanes[lane] = deque([update])
        task = asyncio.create_task(self._push(lane, self._lanes[lane]), name=f"webhook {lane}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _push(self, lane: tuple[str, int], queue: deque[Json]) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            while queue:
                await self._push_one(session, queue[0])
                self._updates.done(queue.popleft())
                self._changed()
            self._lanes.pop(lane, None)

    async def _push_one(self, session: aiohttp.ClientSession, update: Json) -> None:
        pause_s = 0.0
        while not await self._taken(session, update):
            await asyncio.sleep(pause_s * self.pause_factor)
            pause_s = min(pause_s * 2 or 2.0, PAUSE_AT_MOST_S)

    async def _taken(self, session: aiohttp.ClientSession, update: Json) -> bool:
        headers = {"Content-Type": "application/json"}
        if self.secret:
            headers["X-Telegram-Bot-Api-Secret-Token"] = self.secret
        status, body = 0, b""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            content = json.dumps(update).encode()
            async with session.post(self.url, data=content, headers=headers, allow_redirects=False) as answer:
                status, body = answer.status, await answer.read()
        self.tries.append((update["update_id"], status))
        if 200 <= status < 300:
            if b'"method"' in body:
                self._surprise("a webhook's answer called a method: nobody would hear what came of it")
            return True
        message = f"Wrong response from the webhook: {status}" if status else "Connection refused"
        self._last_error = {"last_error_date": int(time.time()), "last_error_message": message}
        return False


def _lane(update: Json) -> tuple[str, int]:
    """Return the name of one ordered delivery: a chat, or the presses of a person."""
    whole: Json = update.get(kind_of(update)) or {}
    if "chat" in whole:
        return ("chat", whole["chat"].get("id", 0))
    return ("user", whole["from"].get("id", 0)) if "from" in whole else ("", 0)
