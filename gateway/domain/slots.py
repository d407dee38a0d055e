"""Slots: things to be shown in a conversation. The table of slots is the outbox."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from gateway.domain.ids import Handle, SessionId, SlotId, TurnId, WaitId
from gateway.domain.messages import Conversation
from gateway.domain.tools import Artifact
from gateway.domain.waits import Verb, Wait


class SlotKind(StrEnum):
    """What a slot shows."""

    ANSWER = "answer"
    """Text of the model, of a command's result, or why there is none."""
    CARD = "card"
    """The approvals that one model answer asked for."""
    NOTE = "note"
    """A line about a card that is shown elsewhere."""
    REPLY = "reply"
    """The gateway's own words: control commands, refusals, acknowledgements."""
    REFUSAL = "refusal"
    """One line to a stranger. Whatever else is due goes first."""
    STATUS = "status"
    """What a turn does now, one line; at its end what it did. Where the page shows the steps themselves there is none.
    """
    FILE = "file"
    """A picture or another file that came of a call. Where the page shows the steps themselves there is none."""
    COPY = "copy"
    """An answer shown again in another conversation of the same owner."""


REFUSALS_AT_ONCE = 8
"""Refusals of a channel on their way out at any time: a crowd of strangers must not take the places of others."""
EDIT_IN_DOUBT = timedelta(minutes=1)
"""No platform makes an edit later than so long after it was asked to: nobody waits as long for its answer."""


class SlotState(StrEnum):
    """Where the showing of a slot stands."""

    DUE = "due"
    """Its desired version was not sent yet; not before `due_at`."""
    SENDING = "sending"
    """A sender holds it; what happened is unknown if that sender dies."""
    SENT = "sent"
    DEAD = "dead"
    """The platform refused it for good, or all attempts failed."""


def shown_when_stored(conversation: Conversation) -> bool:
    """Whether a slot here counts as sent when it is stored: the web page reads the rows themselves."""
    return conversation.on_page


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSlot:
    """A slot to be stored by a transition."""

    conversation: Conversation
    kind: SlotKind
    text: str = ""
    """Markdown. For a card: empty, it is rendered from its waits when it is sent."""
    waits: tuple[WaitId, ...] = ()
    """For a card: its approvals, in row order, at most 8."""
    n: int | None = None
    """The step whose text or file it shows."""
    file: Artifact | None = None
    """For a FILE: which one, in the output folder of the turn's session; `text` is its caption."""
    id: SlotId | None = None
    """Chosen by the caller when handles must be made before it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One thing to be shown, as stored."""

    id: SlotId
    conversation: Conversation
    session: SessionId | None
    """None for what belongs to no session, such as a stranger's refusal."""
    turn: TurnId | None
    n: int | None
    kind: SlotKind
    text: str
    waits: tuple[WaitId, ...]
    file: Artifact | None
    """For a FILE: which one, in the session's output folder."""
    version: int
    """What should be shown; grows when it changes."""
    sent_version: int
    """What is shown, 0 for nothing yet."""
    platform_id: str
    """What shows it, in the channel's own words: the platform's ids of its messages. Empty before the first send."""
    state: SlotState
    attempts: int
    """Sends tried of this version."""
    uncertain: bool
    """True when an earlier create may have been shown already: the next one is marked as a repetition."""
    due_at: datetime
    created_at: datetime
    once_more: bool = False
    """True when this version says what the one before it does, over which an older edit may stand."""

    @property
    def stands(self) -> bool:
        """Whether what it says was shown already: should it be refused now, or be gone, nothing is lost."""
        return self.once_more and self.sent_version == self.version - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """One button of a card."""

    verb: Verb
    label: str
    handle: Handle


ANSWER_BY = "Answer by"
"""Label of the fact that says until when an approval can be decided; all rows of a card have the same value."""
DETAILS = frozenset({"Folder", "Check"})
"""Labels of the facts that a card folds away where its platform can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """One approval as a card shows it."""

    wait: Wait
    title: str
    """Tool and what it will do."""
    facts: tuple[tuple[str, str], ...]
    """Label and value, in the order in which every card shows them; see `DETAILS` and `ANSWER_BY`."""
    buttons: tuple[Button, ...]
    """Empty once it is decided."""
    outcome: str
    """One line about what was decided; empty while it is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedSlot:
    """What a channel is asked to show: the slot with its content rendered for that channel's limits to apply."""

    slot: Slot
    text: str
    rows: tuple[CardRow, ...] = ()
    path: Path | None = None
    """For a FILE: where it is; None when it is there no more, and the caption is all that can be shown."""
    partial: bool = False
    """True while the answer still streams: the text is its beginning, and need not arrive."""


SLOWEST_BYTES_S = 128 << 10
"""Of the slowest way out that a file is given time for: a megabit a second."""
MAY_TAKE_AT_MOST_S = 800.0
"""For 100 MB: no platform takes more."""


def file_may_take_s(size: int) -> float:
    """Seconds for which so many bytes may be under way, besides the time that any answer may take."""
    return min(max(size, 0) / SLOWEST_BYTES_S, MAY_TAKE_AT_MOST_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """How fast a platform wants messages in one scope. No pace for a scope means no limit there."""

    scope: str
    """What is counted together: `telegram/main` for a whole account, `telegram/main/1001` for a chat."""
    every_s: float
    """Seconds between two messages, on average."""
    burst: int
    """Messages that may go out at once after a pause."""
