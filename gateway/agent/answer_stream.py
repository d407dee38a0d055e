"""Stream of one model answer to page and chats, while the model writes it. Used by `turn` and `compaction`."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.agent.turn_texts import text_slot
from gateway.domain.events import TextDelta, session_topic
from gateway.domain.turns import Lease
from gateway.domain.views import TurnView
from gateway.ports import Clock, EventBus, TurnJournal
from gateway.system.redaction import HIDDEN, Redactor

SHOWN_AFTER_S = 1.0
"""Delay in seconds before a partial answer gets a message of its own; a quicker answer is sent whole."""


@dataclass(slots=True, kw_only=True)
class AnswerStream:
    """Stream of one answer: published to the page at once, and to streaming chats through a slot."""

    journal: TurnJournal
    events: EventBus
    redactor: Redactor
    clock: Clock
    view: TurnView
    lease: Lease
    streams: bool
    """True when the conversation shows an answer while it is written."""
    mark: str
    """The request's mark. Taken out of the text: a reader could use it to forge marked lines."""
    _since: float = 0.0
    _held_back: str = ""
    """Text that may be the beginning of a secret or of the mark, neither of which half shows."""
    _told: list[str] = field(default_factory=list[str])
    """Text published to the page."""
    _length: int = 0
    _shown: int = 0
    """Characters of it published to chats."""

    def __post_init__(self) -> None:
        """Start the clock."""
        self._since = self.clock.monotonic()

    @property
    def so_far(self) -> str:
        """Text that may be shown by now."""
        return "".join(self._told).strip()

    def restart(self) -> None:
        """Discard the text so far. An open slot shows it until there is enough of the new text."""
        if self._told:
            self.events.publish(session_topic(self.view.session.id), self._delta(0, ""))
        if self._shown:
            self.events.publish_to_sender(self.view.turn.conversation, self._delta(0, ""))
        self._told, self._length, self._shown, self._held_back = [], 0, 0, ""
        self._since = self.clock.monotonic()

    async def add(self, text: str) -> None:
        """Append text and publish what is safe to show."""
        self._held_back += text
        if self.redactor.may_wait(self._held_back, text):
            return
        cut = _not_within(self.mark, self._held_back, len(self._held_back) - self.redactor.pending(self._held_back))
        safe = unmarked(self.redactor.text(self._held_back[:cut]), self.mark)
        self._held_back = self._held_back[cut:]
        if not safe:
            return
        self.events.publish(session_topic(self.view.session.id), self._delta(self._length, safe))
        self._told.append(safe)
        self._length += len(safe)
        if self.streams:
            await self._show(safe)

    async def _show(self, more: str) -> None:
        """Publish to chats; once `SHOWN_AFTER_S` has passed, open the slot."""
        if self._shown:
            self.events.publish_to_sender(self.view.turn.conversation, self._delta(self._shown, more))
            self._shown = self._length
        elif self.so_far and self.clock.monotonic() - self._since >= SHOWN_AFTER_S:
            self._shown = self._length
            self.events.publish_to_sender(self.view.turn.conversation, self._delta(0, "".join(self._told)))
            await self.journal.open_slot(self.lease, text_slot(self.view, self.so_far, self._n))

    @property
    def _n(self) -> int:
        return len(self.view.steps)

    def _delta(self, start: int, text: str) -> TextDelta:
        return TextDelta(session=self.view.session.id, turn=self.view.turn.id, n=self._n, start=start, text=text)


def _not_within(mark: str, text: str, cut: int) -> int:
    """Return `cut`, moved to the start of a mark that it would split: a cut may fall within a long word."""
    at = text.find(mark, max(0, cut - len(mark) + 1), cut + len(mark) - 1) if mark else -1
    return at if at >= 0 else cut


def unmarked(text: str, mark: str) -> str:
    """Remove the request's mark from text that its model wrote."""
    return text.replace(mark, HIDDEN) if mark else text
