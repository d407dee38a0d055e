"""On the way in: what is known of the people of one workspace, asked of Slack once and remembered for a while.

A guest, or somebody of another organisation in a shared channel, speaks in places that were allowed for members.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, cast

from channels.slack.failures import passes
from channels.slack.fields import Malformed, SlackFields
from channels.slack.request import SlackClient, SlackDeclined, SlackFailure
from gateway.ports import Clock

KNOWN_AT_MOST = 2_000
GOOD_FOR_S = 3_600.0
ASK_AGAIN_S = 30.0
"""After a failure: whoever writes much must not make us ask as much."""
ANSWER_WITHIN_S = 1.5
"""Slack waits 3 s for us meanwhile."""
DIRECT_WITHIN_S = 1.0
_OUTSIDE = ("is_restricted", "is_ultra_restricted", "is_stranger", "is_bot", "deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a person is in the workspace."""

    member: bool
    """False for guests, people of other organisations, and whoever nothing is known of."""
    name: str = ""
    """How the person is called there; empty when that is not known."""
    certain: bool = True
    """False: Slack does not say now."""


NOBODY = Standing(member=False)
UNKNOWN = Standing(member=False, certain=False)


class SlackDirectory:
    """The people of one workspace."""

    def __init__(self, client: SlackClient, clock: Clock, *, known_at_most: int = KNOWN_AT_MOST) -> None:
        """Take what to ask over. Nothing is asked before `standing`."""
        self._known_at_most = known_at_most
        self._client = client
        self._clock = clock
        self._known: OrderedDict[str, tuple[Standing, float]] = OrderedDict()
        """With when to ask again."""
        self._direct: OrderedDict[str, str] = OrderedDict()

    async def standing(self, team: str, user: str) -> Standing:
        """Say what a user is in the workspace `team`: what was known last while Slack does not say. Never fails."""
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
        """Ask at the next `standing`, although Slack did not say a moment ago: something waits for that."""
        if self._known.get(user, (UNKNOWN, 0.0))[0] == UNKNOWN:
            self._known.pop(user, None)

    async def direct(self, user: str) -> str:
        """Return the bot's own conversation with somebody; empty when it cannot be had now. Never fails."""
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

    def _keep(self, user: str, standing: Standing, good_for_s: float) -> Standing:
        self._known[user] = (standing, self._clock.monotonic() + good_for_s)
        self._known.move_to_end(user)
        while len(self._known) > self._known_at_most:
            self._known.popitem(last=False)
        return standing


def _standing(user: object, team: str) -> Standing:
    """Read what `users.info` says. Only who is certain to be a member is one."""
    if not isinstance(user, dict):
        return NOBODY
    told = cast("dict[str, Any]", user)
    profile = told.get("profile")
    names = cast("dict[str, Any]", profile) if isinstance(profile, dict) else {}
    name = next((n for n in (names.get("display_name"), told.get("real_name"), told.get("name")) if n), "")
    outside = any(told.get(flag, False) is not False for flag in _OUTSIDE)
    return Standing(member=told.get("team_id") == team and not outside, name=name if isinstance(name, str) else "")
