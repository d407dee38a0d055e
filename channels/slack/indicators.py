"""Best-effort indicators in Slack: reactions, ephemeral notes, prompts, status. Used by `updates` and `account`.

Never fails, and never waits for long. A reaction marks an accepted message until it is answered; a note for one person
shows the result of a press. A direct conversation shows prompts, and a thread in it a status.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

from channels.slack.request import SlackClient, SlackDeclined, SlackFailure
from gateway.domain.text import one_line
from gateway.ports import Clock

AT_ONCE = 8
"""Concurrent requests, at most."""
WITHIN_S = 10.0
"""Timeout in seconds for a request, its wait for a free place included."""
SEEN = "eyes"
TITLE_CHARS = 60
"""Characters of a thread's title."""
STATUS = "is working on it…"
STATUS_AGAIN_S = 30.0
"""Interval in seconds between status updates. Slack removes a status after two minutes; an answer ends it at once."""
STATUSES_KEPT = 500
"""Statuses remembered before old ones are dropped."""
MISSING_FOR_S = 600.0
"""Pause in seconds before a method without its scope is called again."""
MARKS_KEPT = 500
"""Marked messages remembered, and marks that wait to be removed, before old ones are dropped."""
REMOVALS = 3
"""Attempts to remove a mark."""
LONGEST_WAIT_S = 120.0
"""Longest pause in seconds after which marks are still removed. A longer one means a missing scope."""
HARMLESS = frozenset({"already_reacted", "no_reaction", "message_not_found", "user_not_in_channel"})


class _Mark:
    """Reaction on a message of a thread; `made` is set once Slack has answered."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self.made = asyncio.Event()


def _mark_of(channel: str, ts: str) -> dict[str, Any]:
    return {"channel": channel, "timestamp": ts, "name": SEEN}


class Indicators:
    """Indicators of one account."""

    def __init__(self, name: str, client: SlackClient, clock: Clock, unmark_every_s: float) -> None:
        """Take the account's name, for the log, and the client. `unmark_every_s`: time between two removed marks."""
        self._name = name
        self._client = client
        self._clock = clock
        self._unmark_every_s = unmark_every_s
        self._places = asyncio.Semaphore(AT_ONCE)
        self._not_before: dict[str, float] = {}
        """End of the pause for each limited or forbidden method."""
        self._statuses: dict[tuple[str, str], float] = {}
        """Time of the last status, by channel and thread."""
        self._marks: OrderedDict[tuple[str, str], _Mark] = OrderedDict()
        """Marks made by this process, by channel and timestamp."""
        self._unwanted: deque[tuple[str, str]] = deque(maxlen=MARKS_KEPT)
        """Marks to be removed."""
        self._removes = False
        """True while a task removes them."""

    async def seen(self, channel: str, ts: str, thread: str = "") -> None:
        """Mark a message of a channel or thread as accepted."""
        mark = self._marks[channel, ts] = _Mark(thread)
        while len(self._marks) > MARKS_KEPT:
            self._marks.popitem(last=False)
        try:
            await self._do("reactions.add", _mark_of(channel, ts))
        finally:  # also when the account ends: its marks outlive that
            mark.made.set()

    async def unmark(self, channel: str, ts: str) -> None:
        """Remove a message's mark, also one of an earlier process. Several calls take turns."""
        self._unwanted.append((channel, ts))
        if self._removes:
            return
        self._removes = True
        try:
            while self._unwanted:
                await self._remove_mark(*self._unwanted.popleft())
                await asyncio.sleep(self._unmark_every_s)
        finally:
            self._removes = False

    async def unmark_all(self, channel: str, thread: str) -> None:
        """Remove the marks that this process made in a channel or thread: all there was stopped."""
        found = [ts for (where, ts), mark in self._marks.items() if (where, mark.thread) == (channel, thread)]
        for ts in found:
            await self.unmark(channel, ts)

    async def _remove_mark(self, channel: str, ts: str) -> None:
        if (mark := self._marks.pop((channel, ts), None)) is not None:
            await mark.made.wait()  # or it would be made after its removal
        method = "reactions.remove"
        for _ in range(REMOVALS):
            pause_s = self._not_before.get(method, 0.0) - self._clock.monotonic()
            if pause_s > LONGEST_WAIT_S:
                return
            await asyncio.sleep(max(pause_s, 0.0))
            if await self._do(method, _mark_of(channel, ts)):
                return
            await asyncio.sleep(self._unmark_every_s)

    async def tell(self, channel: str, user: str, text: str, thread: str = "") -> None:
        """Send a note that only this person sees."""
        place = {"thread_ts": thread} if thread else {}
        await self._do("chat.postEphemeral", {"channel": channel, "user": user, "text": text} | place)

    async def open_view(self, trigger: str, view: dict[str, Any]) -> bool:
        """Open a form for a press at most 3 s ago; return True if it is open."""
        return await self._do("views.open", {"trigger_id": trigger, "view": view})

    async def suggest(self, channel: str, thread: str, prompts: Sequence[tuple[str, str]]) -> None:
        """Show suggested prompts, each a title and a message. `thread`: empty in the agent view, which accepts none."""
        shown = [{"title": title, "message": message} for title, message in prompts]
        place = {"channel_id": channel} | ({"thread_ts": thread} if thread else {})
        await self._do("assistant.threads.setSuggestedPrompts", place | {"prompts": shown})

    async def title(self, channel: str, thread: str, text: str) -> None:
        """Title a thread of the assistant view with its first words."""
        short = one_line(text, TITLE_CHARS)
        if short:
            place = {"channel_id": channel, "thread_ts": thread}
            await self._do("assistant.threads.setTitle", place | {"title": short})

    async def working(self, channel: str, thread: str) -> None:
        """Show the status in a thread; skip a call while the last one lasts."""
        now = self._clock.monotonic()
        if now - self._statuses.get((channel, thread), -STATUS_AGAIN_S) < STATUS_AGAIN_S:
            return
        if len(self._statuses) >= STATUSES_KEPT:
            self._statuses = {at: set_at for at, set_at in self._statuses.items() if now - set_at < STATUS_AGAIN_S}
        self._statuses[channel, thread] = now
        place = {"channel_id": channel, "thread_ts": thread}
        await self._do("assistant.threads.setStatus", place | {"status": STATUS})

    async def stopped(self, channel: str, thread: str) -> None:
        """Remove the stop button, which Slack leaves to the app. During further work, a status brings it back."""
        self._statuses.pop((channel, thread), None)
        place = {"channel_id": channel} | ({"thread_ts": thread} if thread else {})
        await self._do("agents.sessions.setStatus", place | {"status": "active"})

    def answered(self, channel: str, thread: str) -> None:
        """Record that a message ended a thread's status."""
        self._statuses.pop((channel, thread), None)

    async def _do(self, method: str, parameters: dict[str, Any]) -> bool:
        """Call a method; return True if its effect is there."""
        if self._clock.monotonic() < self._not_before.get(method, 0.0):
            return False
        try:
            async with asyncio.timeout(WITHIN_S), self._places:
                await self._client.call(method, parameters)
        except SlackDeclined as declined:
            return self._is_harmless(method, declined)
        except (SlackFailure, TimeoutError):
            pass
        except Exception:  # the loop of an account: it must not restart for this (house rule 9)
            logging.getLogger(__name__).exception("account %s: %s broke", self._name, method)
        else:
            return True
        return False

    def _is_harmless(self, method: str, declined: SlackDeclined) -> bool:
        """Return True for a refusal that leaves nothing to do; note after any other when to call the method again."""
        if declined.error in HARMLESS:
            return True
        wait_s = declined.retry_after_s
        if declined.error in ("missing_scope", "not_allowed_token_type"):
            wait_s = MISSING_FOR_S
        self._not_before[method] = self._clock.monotonic() + wait_s
        logging.getLogger(__name__).info("account %s: %s", self._name, declined)
        return False
