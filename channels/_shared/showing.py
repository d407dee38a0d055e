"""Synchronisation of a slot's messages with its parts. Each channel's `showing` adds the platform's calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from gateway.errors import SendFailed, SendOutcome
from gateway.ports import Progress

DIGESTS_KEPT = 500
"""Digests cached per channel, a third of a kilobyte each. An edit of an older message is sent, and the platform reports
that nothing changed."""


NEVER_SHOWN = "The message that it is about was never shown there. Post it again."


class Digests:
    """LRU cache of the content last shown in each message, so that an edit that changes nothing is not sent."""

    def __init__(self) -> None:
        """Start empty."""
        self._kept: OrderedDict[str, str] = OrderedDict()

    def get(self, key: str) -> str:
        """Return a message's digest; empty when it is unknown."""
        return self._kept.get(key, "")

    def put(self, key: str, digest: str) -> None:
        """Store a digest and evict the oldest."""
        self._kept[key] = digest
        self._kept.move_to_end(key)
        while len(self._kept) > DIGESTS_KEPT:
            self._kept.popitem(last=False)

    def drop(self, key: str) -> None:
        """Remove a digest."""
        self._kept.pop(key, None)


class HasDigest(Protocol):
    """Desired content of one message."""

    @property
    def digest(self) -> str:
        """Return a hash of the content, stable across processes."""
        ...


P = TypeVar("P", bound=HasDigest)


@dataclass(slots=True, kw_only=True)
class MessageSync(ABC, Generic[P]):
    """Synchroniser of one slot in one conversation. Every method raises `SendFailed`."""

    digests: Digests
    once_more: bool = False
    """True when an older edit may have overwritten the messages: edit them regardless of the cache; create none."""
    _stale: list[str] = field(default_factory=list[str])
    """Messages replaced by new ones."""

    async def show(self, parts: Sequence[P], shown: tuple[str, ...], progress: Progress) -> tuple[str, ...]:
        """Edit, create and delete messages until they show the parts; return their ids.

        Resumes an earlier, interrupted run, because `progress` received every message but the last.
        """
        messages = list(shown)
        for at, part in enumerate(parts):
            before = messages[at] if at < len(messages) else ""
            now = await self._refresh(before, at, part) if before else await self._create(at, part)
            messages[at : at + 1] = [now]
            if now != before and (at + 1 < len(parts) or len(messages) > len(parts) or self._stale):
                await progress(tuple(messages))
        for surplus in messages[len(parts) :]:
            await self._delete(surplus)
        await self._tidy()
        return tuple(messages[: len(parts)])

    async def grow(self, parts: Sequence[P], shown: tuple[str, ...]) -> tuple[str, ...]:
        """Edit the messages to a longer partial text; never create or delete one.

        A message created here would be stored nowhere, and created again with the next word. Raises a final
        `SendFailed` where one would be needed; the final text creates it.
        """
        can = len(shown) == len(parts)
        for message, part in zip(shown, parts, strict=False):
            can = can and await self._shows(message, part)
        if not can:
            raise SendFailed("A partial text needs another message.", outcome=SendOutcome.DEAD, creating=False)
        return shown

    async def _refresh(self, message: str, at: int, part: P) -> str:
        """Show a part in this message, or in a new one where an edit is impossible; return the message's id."""
        if await self._shows(message, part):
            return message
        self._stale.append(message)
        return await self._create(at, part)

    async def _shows(self, message: str, part: P) -> bool:
        """Make a message show a part; return False when it cannot be edited."""
        if self.once_more:
            await self._change(message, part, known=False)
            return True
        known = self.digests.get(self._key(message))
        return known == part.digest or await self._change(message, part, known=bool(known))

    async def _tidy(self) -> None:
        """Delete replaced messages where possible; most are gone already, which is why they were replaced."""
        for message in self._stale:
            try:
                await self._delete(message)
            except SendFailed:
                continue

    # --- the platform's calls -----------------------------------------------------------------------

    @abstractmethod
    def _key(self, message: str) -> str:
        """Return the cache key of a message's digest."""

    @abstractmethod
    async def _create(self, at: int, part: P) -> str:
        """Create a message for the part with this index, store its digest, and return its id."""

    @abstractmethod
    async def _change(self, message: str, part: P, *, known: bool) -> bool:
        """Edit a message; return False when that is not possible. `known`: it certainly shows something else."""

    @abstractmethod
    async def _delete(self, message: str) -> None:
        """Delete a message and its digest."""
