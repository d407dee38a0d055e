"""Groups that became supergroups: inside they keep their first id, on the way out they are reached under their last.

So the session goes on. Routing is told every id that the group had, so it may be allowed by any of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from gateway.domain.messages import Conversation
from gateway.errors import StoreError
from gateway.ports import ChannelKeyValue

HOPS_AT_MOST = 10
"""A group moves once; more is a mistake that must not become an endless loop."""


class ChatMigrations:
    """What is known of moved groups; kept in the channel's notes, old id to new."""

    def __init__(self, key_value: ChannelKeyValue) -> None:
        """Read nothing yet."""
        self._key_value = key_value
        self._new: dict[str, str] | None = None
        self._old: dict[str, str] = {}
        self._kept: set[str] = set()

    async def now(self, chat: str) -> str:
        """Return under which id a chat is reached. Raises `StoreError`."""
        return _follow(await self._known(), chat)

    async def first(self, conversation: Conversation) -> Conversation:
        """Return the conversation as it was called first. Raises `StoreError`."""
        await self._known()
        return replace(conversation, chat=_follow(self._old, conversation.chat))

    async def later(self, chat: str) -> tuple[str, ...]:
        """Return the ids that a chat was given after this one, in order. Raises `StoreError`."""
        known = await self._known()
        found = [chat]
        while len(found) <= HOPS_AT_MOST and known.get(found[-1], chat) not in found:
            found.append(known[found[-1]])
        return tuple(found[1:])

    async def learn(self, old: str, new: str) -> None:
        """Keep that a chat moved; it holds from now on even when `StoreError` is raised. Twice is safe."""
        known = await self._known()
        if old == new or (known.get(old) == new and old in self._kept):
            return
        known[old] = new
        self._old[new] = old
        await self._key_value.keep(old, new)
        self._kept.add(old)

    async def learn_if_possible(self, old: str, new: str) -> None:
        """The same on the way out, where a full disk must not stop the message: Telegram will say it again."""
        try:
            await self.learn(old, new)
        except StoreError as error:
            logging.getLogger(__name__).warning("a moved chat was not kept: %s", error)

    async def _known(self) -> dict[str, str]:
        if self._new is None:
            self._new = dict(await self._key_value.read())
            self._old = {new: old for old, new in self._new.items()}
            self._kept = set(self._new)
        return self._new


def _follow(moves: Mapping[str, str], chat: str) -> str:
    for _ in range(HOPS_AT_MOST):
        if chat not in moves:
            break
        chat = moves[chat]
    return chat
