"""Cache of Slack's data about people in one workspace. Used by `updates` to distinguish members from outsiders.

Guests, and people of another organisation in a shared channel, write in channels that were allowed for members.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, cast

from channels._shared.fields import object_of
from channels.slack.failures import passes
from channels.slack.fields import Malformed, SlackFields
from channels.slack.request import SlackClient, SlackDeclined, SlackFailure
from gateway.ports import Clock

KNOWN_AT_MOST = 2_000
"""People cached per workspace, at most."""
GOOD_FOR_S = 3_600.0
"""Lifetime in seconds of a cached answer."""
ASK_AGAIN_S = 30.0
"""Pause in seconds after a failed request: one person's many messages must not cause as many requests."""
ANSWER_WITHIN_S = 1.5
"""Timeout in seconds for `users.info`; Slack waits 3 s for our acknowledgement."""
DIRECT_WITHIN_S = 1.0
"""Timeout in seconds for `conversations.open`."""
_OUTSIDE = ("is_restricted", "is_ultra_restricted", "is_stranger", "is_bot", "deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """Membership of a person in the workspace."""

    member: bool
    """False for guests, people of other organisations, and unknown people."""
    name: str = ""
    """Name in the workspace; empty when unknown."""
    certain: bool = True
    """False while Slack gives no answer."""


NOBODY = MemberStatus(member=False)
UNKNOWN = MemberStatus(member=False, certain=False)


class SlackDirectory:
    """Directory of one workspace's people, with a cache."""

    def __init__(self, client: SlackClient, clock: Clock, *, known_at_most: int = KNOWN_AT_MOST) -> None:
        """Take the client. No request is sent before `standing`."""
        self._known_at_most = known_at_most
        self._client = client
        self._clock = clock
        self._known: OrderedDict[str, tuple[MemberStatus, float]] = OrderedDict()
        """Cached standing and its expiry, by user."""
        self._direct: OrderedDict[str, str] = OrderedDict()

    async def standing(self, team: str, user: str) -> MemberStatus:
        """Return a user's standing in the workspace `team`; the last known one while Slack is silent. Never fails."""
        found, until = self._known.get(user, (UNKNOWN, 0.0))
        if self._clock.monotonic() < until:
            return found
        again_s = ASK_AGAIN_S
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                answer = await self._client.call("users.info", {"user": user})
        except SlackDeclined as declined:
            again_s = max(again_s, declined.retry_after_s)
            found = found if passes(declined) else NOBODY
        except (SlackFailure, TimeoutError):
            pass
        else:
            found, again_s = _standing(answer.get("user"), team), GOOD_FOR_S
        return self._keep(user, found, again_s)

    def ask_anew(self, user: str) -> None:
        """Drop a cached failure, so that the next `standing` asks Slack at once: a message waits for it."""
        if self._known.get(user, (UNKNOWN, 0.0))[0] == UNKNOWN:
            self._known.pop(user, None)

    async def direct(self, user: str) -> str:
        """Return the bot's direct conversation with a user; empty while Slack gives none. Never fails."""
        if user not in self._direct:
            try:
                async with asyncio.timeout(DIRECT_WITHIN_S):
                    answer = await self._client.call("conversations.open", {"users": user})
            except (SlackFailure, TimeoutError):
                return ""
            try:
                self._direct[user] = SlackFields(answer).object("channel").id("id", "DCG")
            except Malformed:
                return ""
            while len(self._direct) > self._known_at_most:
                self._direct.popitem(last=False)
        return self._direct[user]

    def _keep(self, user: str, standing: MemberStatus, good_for_s: float) -> MemberStatus:
        self._known[user] = (standing, self._clock.monotonic() + good_for_s)
        self._known.move_to_end(user)
        while len(self._known) > self._known_at_most:
            self._known.popitem(last=False)
        return standing


def _standing(user: object, team: str) -> MemberStatus:
    """Return the standing in an answer of `users.info`. Only a certain member counts as one."""
    if not isinstance(user, dict):
        return NOBODY
    info = cast("dict[str, Any]", user)
    names = object_of(info.get("profile"))
    name = next((n for n in (names.get("display_name"), info.get("real_name"), info.get("name")) if n), "")
    outside = any(info.get(flag, False) is not False for flag in _OUTSIDE)
    return MemberStatus(member=info.get("team_id") == team and not outside, name=name if isinstance(name, str) else "")
