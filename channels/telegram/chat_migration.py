"""Migrations of groups to supergroups. The gateway keeps a group's first id; Telegram is called with its last.

So the session continues. Routing receives every id of the group, so any of them may be allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from gateway.domain.messages import Conversation
from gateway.errors import StoreError
from gateway.ports import ChannelKeyValue

HOPS_AT_MOST = 10
"""Migrations followed per group, at most. A group migrates once; more is an error that must not loop for ever."""


class ChatMigrations:
    """Known migrations, stored in the channel's key-value namespace: old id to new."""

    def __init__(self, key_value: ChannelKeyValue) -> None:
        """Take the key-value store; read nothing yet."""
        self._key_value = key_value
        self._new: dict[str, str] | None = None
        self._old: dict[str, str] = {}
        self._kept: set[str] = set()

    async def now(self, chat: str) -> str:
        """Return the current id of a chat. Raises `StoreError`."""
        return _follow(await self._known(), chat)

    async def first(self, conversation: Conversation) -> Conversation:
        """Return the conversation under its first id. Raises `StoreError`."""
        await self._known()
        chat = _follow(self._old, conversation.chat)
        return conversation if chat == conversation.chat else replace(conversation, chat=chat)

    async def later(self, chat: str) -> tuple[str, ...]:
        """Return the later ids of a chat, in order. Raises `StoreError`."""
        known = await self._known()
        found = [chat]
        while len(found) <= HOPS_AT_MOST and known.get(found[-1], chat) not in found:
            found.append(known[found[-1]])
        return tuple(found[1:])

    async def learn(self, old: str, new: str) -> None:
        """Store a migration; it takes effect even when `StoreError` is raised. Idempotent."""
        known = await self._known()
        if old == new or (known.get(old) == new and old in self._kept):
            return
        known[old] = new
        self._old[new] = old
        await self._key_value.keep(old, new)
        self._kept.add(old)

    async def learn_if_possible(self, old: str, new: str) -> None:
        """Store a migration, or log the failure: a full disk must not stop a message, and Telegram reports it again."""
        try:
            await self.learn(old, new)
        except StoreError as error:
            logging.getLogger(__name__).warning("a chat migration was not stored: %s", error)

    async def _known(self) -> dict[str, str]:
        if self._new is None:
            self._new = dict(await self._key_value.read())
            self._old = {new: old for old, new in self._new.items()}
            self._kept = set(self._new)
        return self._new


def _follow(migrations: Mapping[str, str], chat: str) -> str:
    for _ in range(HOPS_AT_MOST):
        if chat not in migrations:
            break
        chat = migrations[chat]
    return chat
