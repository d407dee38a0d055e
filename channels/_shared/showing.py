"""The way out: makes the messages of a place equal to the parts of a slot. How a message is made is the platform's.

A slot's `platform_id` is the ids of its messages, in order, with commas.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from gateway.errors import SendFailed, SendOutcome
from gateway.ports import Progress

DIGESTS_KEPT = 500
"""Of one channel, a third of a kilobyte each. An edit of an older message is sent, and the platform says that it is the
same."""


class Digests:
    """What was last shown in which message, as far as it is remembered: an edit that changes nothing is not sent."""

    def __init__(self) -> None:
        """Remember nothing."""
        self._kept: OrderedDict[str, str] = OrderedDict()

    def get(self, key: str) -> str:
        """Return a message's digest; empty when it is not known."""
        return self._kept.get(key, "")

    def put(self, key: str, digest: str) -> None:
        """Remember one; the oldest are forgotten."""
        self._kept[key] = digest
        self._kept.move_to_end(key)
        while len(self._kept) > DIGESTS_KEPT:
            self._kept.popitem(last=False)

    def drop(self, key: str) -> None:
        """Forget one."""
        self._kept.pop(key, None)


def shown_by(platform_id: str) -> list[str]:
    """Return the messages that show a slot, in order."""
    return [one for one in platform_id.split(",") if one]


class HasDigest(Protocol):
    """What one message is to show."""

    @property
    def digest(self) -> str:
        """The same for the same content, in every process."""
        ...


P = TypeVar("P", bound=HasDigest)


@dataclass(slots=True, kw_only=True)
class MessageSync(ABC, Generic[P]):
    """One place to show one slot in. Every method raises `SendFailed`."""

    digests: Digests
    once_more: bool = False
    """It was shown, and an older edit may stand over it: it is changed whatever is known, and never made anew."""
    _stale: list[str] = field(default_factory=list[str])
    """Messages whose content was shown anew in another one."""

    async def show(self, parts: Sequence[P], shown: str, progress: Progress) -> str:
        """Change what is shown, add what is missing, take away what is too much; return what shows the slot now.

        Goes on where an earlier, interrupted showing ended, because `progress` was told of every message but the last.
        """
        messages = shown_by(shown)
        for at, part in enumerate(parts):
            before = messages[at] if at < len(messages) else ""
            now = await self._refresh(before, at, part) if before else await self._create(at, part)
            messages[at : at + 1] = [now]
            if now != before and (at + 1 < len(parts) or len(messages) > len(parts) or self._stale):
                await progress(",".join(messages))
        for surplus in messages[len(parts) :]:
            await self._delete(surplus)
        await self._tidy()
        return ",".join(messages[: len(parts)])

    async def grow(self, parts: Sequence[P], shown: str) -> str:
        """Change what is shown to a beginning that grew; a beginning makes no message and takes none away.

        What it made would be kept nowhere, and made again with the next word. Fails for good where it would have to;
        the last words do that.
        """
        messages = shown_by(shown)
        can = len(messages) == len(parts)
        for message, part in zip(messages, parts, strict=False):
            can = can and await self._shows(message, part)
        if not can:
            raise SendFailed("A beginning cannot grow here.", outcome=SendOutcome.DEAD, creating=False)
        return shown

    async def _refresh(self, message: str, at: int, part: P) -> str:
        """Make a message show a part, in a new message when it must be; return the one that shows it."""
        if await self._shows(message, part):
            return message
        self._stale.append(message)
        return await self._create(at, part)

    async def _shows(self, message: str, part: P) -> bool:
        """Make a message show a part; False when that is not possible."""
        if self.once_more:
            await self._change(message, part, known=False)
            return True
        known = self.digests.get(self._key(message))
        return known == part.digest or await self._change(message, part, known=bool(known))

    async def _tidy(self) -> None:
        """Take away what was shown anew, if it can be: most of it is gone, which is why it was shown anew."""
        for message in self._stale:
            try:
                await self._delete(message)
            except SendFailed:
                continue

    # --- what a platform does -----------------------------------------------------------------------

    @abstractmethod
    def _key(self, message: str) -> str:
        """Return what the digest of a message is kept by."""

    @abstractmethod
    async def _create(self, at: int, part: P) -> str:
        """Show the part with this number in a new message, remember its digest, and return the message."""

    @abstractmethod
    async def _change(self, message: str, part: P, *, known: bool) -> bool:
        """Change a message to a part; False when that is not possible. `known`: it shows something else for certain."""

    @abstractmethod
    async def _delete(self, message: str) -> None:
        """Take a message away, and forget its digest."""
