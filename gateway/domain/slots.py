"""Slot types: messages to be shown in a conversation, and their cards. The table of slots is the outbox."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from gateway.domain.ids import Handle, SessionId, SlotId, TurnId, WaitId
from gateway.domain.messages import Conversation
from gateway.domain.posts import Post
from gateway.domain.tools import Artifact
from gateway.domain.waits import Verb, Wait, WaitState


class SlotKind(StrEnum):
    """Content of a slot."""

    ANSWER = "answer"
    """Text of the model or of a command's result, or the reason for its absence."""
    CARD = "card"
    """Approvals that one model answer asked for, or the questions of one call."""
    CHECKLIST = "checklist"
    """List of a session's tasks. One message, edited as they are done."""
    NOTE = "note"
    """Line about a card that is shown elsewhere."""
    REPLY = "reply"
    """Text of the gateway itself: control commands, refusals, acknowledgements."""
    REFUSAL = "refusal"
    """One line to a stranger. Everything else due is sent first."""
    STATUS = "status"
    """Status line of a turn: its current activity, at its end a summary. Not made where the page shows the steps
    themselves."""
    FILE = "file"
    """Picture or other file of a call, or a spoken answer. The page shows steps itself, so no files of calls there."""
    POST = "post"
    """Message, poll, reaction or pin that a tool of a channel asked for. Its text can be changed by a later call."""
    COPY = "copy"
    """Repetition of an answer in another conversation of the same owner."""


REFUSALS_AT_ONCE = 8
"""Maximum refusals of a channel in SENDING at any time, so that a crowd of strangers does not delay others."""
EDIT_IN_DOUBT = timedelta(minutes=1)
"""Time after which a requested edit can no longer take effect on any platform. Longer than the timeout for its
response."""


class SlotState(StrEnum):
    """Delivery state of a slot."""

    DUE = "due"
    """The desired version is not sent yet. Not claimed before `due_at`."""
    SENDING = "sending"
    """A sender has claimed it; the outcome is unknown if that sender dies."""
    SENT = "sent"
    DEAD = "dead"
    """The platform refused it permanently, or all attempts failed."""


def shown_when_stored(conversation: Conversation) -> bool:
    """Return whether a slot here counts as sent when it is stored: the web page reads the rows themselves."""
    return conversation.on_page


def spoken_file(turn: TurnId | None, n: int | None) -> str:
    """Return the name of the artifact that is the spoken answer of a step."""
    return f"{turn}-{n}-spoken.ogg"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSlot:
    """Slot to be stored by a transition."""

    conversation: Conversation
    kind: SlotKind
    text: str = ""
    """Markdown. Empty for a card, which is rendered from its waits when it is sent."""
    waits: tuple[WaitId, ...] = ()
    """For a card: its approvals, in row order, at most 8."""
    n: int | None = None
    """Number of the step whose text or file it shows."""
    file: Artifact | None = None
    """For a FILE: artifact in the output folder of the turn's session; `text` is its caption."""
    id: SlotId | None = None
    """Chosen by the caller when button handles must be made before it is stored."""
    post: Post | None = None
    """For a POST that is more than a text: the poll, the reaction or the pin, without its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Slot as stored: content, version and delivery state."""

    id: SlotId
    conversation: Conversation
    session: SessionId | None
    """None for a slot without a session, such as a stranger's refusal."""
    turn: TurnId | None
    n: int | None
    kind: SlotKind
    text: str
    waits: tuple[WaitId, ...]
    file: Artifact | None
    """For a FILE: artifact in the session's output folder."""
    version: int
    """Desired version; grows with each change."""
    sent_version: int
    """Version shown now, 0 before the first send."""
    message_ids: tuple[str, ...]
    """Ids of the messages that show it, in their order, as the channel names them. Empty before the first send."""
    state: SlotState
    attempts: int
    """Send attempts of this version."""
    uncertain: bool
    """True when an earlier create may have been shown already: the next one is marked as a repetition."""
    due_at: datetime
    created_at: datetime
    once_more: bool = False
    """True when this version repeats the previous one, because an older edit may have overwritten that."""
    fence: int = 0
    """Number that grows with each claim, so that the result of a stale claim changes nothing."""
    post: Post | None = None
    """For a POST that is more than a text: as in `NewSlot`."""

    @property
    def stands(self) -> bool:
        """True when this content was shown already. If it is refused now, or gone, nothing is lost."""
        return self.once_more and self.sent_version == self.version - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """Button of a card."""

    verb: Verb
    label: str
    handle: Handle


ROWS_A_CARD = 8
"""Approvals on one card."""
ANSWER_BY = "Answer by"
"""Label of the fact with an approval's deadline; all rows of a card have the same value."""
VOTES = "Allowed by"
"""Label of the fact that grows with each vote of a quorum."""
DETAILS = frozenset({"Folder", "Check"})
"""Labels of the facts that a card folds away where its platform can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """One approval as a card shows it."""

    wait: Wait
    title: str
    """Tool and its intended effect, `shell wants to run: the tests`."""
    subject: str
    """Title in the past: `shell: the tests`. Never longer than the title, by which a card is laid out."""
    facts: tuple[tuple[str, str], ...]
    """Pairs of label and value, in the same order on every card; see `DETAILS` and `ANSWER_BY`."""
    buttons: tuple[Button, ...]
    """Empty once it is decided."""
    outcome: str
    """One line about the decision; empty while it is open."""
    question: str = ""
    """Second question, before a grant is given; empty while it is not asked."""

    @property
    def heading(self) -> str:
        """First line: what the tool wants, or wanted once it is decided."""
        return self.title if self.wait.state is WaitState.OPEN else self.subject

    @property
    def open_facts(self) -> list[tuple[str, str]]:
        """Facts that are always seen, but for the deadline, which a card shows once for all its rows."""
        return [fact for fact in self.facts if fact[0] not in {ANSWER_BY, *DETAILS}]

    @property
    def folded_facts(self) -> list[tuple[str, str]]:
        """Facts that are collapsed where the platform supports it."""
        return [fact for fact in self.facts if fact[0] in DETAILS]


@dataclass(frozen=True, slots=True, kw_only=True)
class PickButton:
    """Button of a question."""

    label: str
    handle: Handle
    chosen: bool = False
    """True for an option that is ticked."""
    ends: bool = False
    """True for the button that ends a choice of several options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionCard:
    """A question as a conversation shows it, with the answers before it."""

    wait: Wait
    answered: tuple[tuple[str, str], ...]
    """Pairs of question and answer, as far as they are answered."""
    question: str
    """Question that is asked now; when the wait is over, the first one that was not answered, or empty."""
    count: str
    """`2 of 3` where there are several questions, else empty."""
    buttons: tuple[PickButton, ...]
    """Options of the current question; empty when the wait is over."""
    write: Handle | None
    """Handle for a text of the person's own; None when the wait is over."""
    asks: str
    """Title of the sub-session that asks; empty for any other session."""
    note: str
    """Line below the question: the people who may answer and the expiry, or the outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedSlot:
    """Slot with its content rendered, as a channel is asked to show it. The channel applies its own limits."""

    slot: Slot
    text: str
    rows: tuple[CardRow, ...] = ()
    question: QuestionCard | None = None
    """For a card of questions, which has no rows."""
    path: Path | None = None
    """For a FILE: its path; None when it no longer exists, and only the caption can be shown."""
    partial: bool = False
    """True while the answer still streams: the text is its beginning, and need not arrive."""


SLOWEST_BYTES_S = 128 << 10
"""Bytes per second of the slowest supported uplink, one megabit a second."""
MAY_TAKE_AT_MOST_S = 800.0
"""Maximum seconds, enough for 100 MB: no platform accepts more."""


def file_may_take_s(size: int) -> float:
    """Return the timeout in seconds for sending so many bytes, on top of the timeout for any response."""
    return min(max(size, 0) / SLOWEST_BYTES_S, MAY_TAKE_AT_MOST_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """Token bucket of a platform for one scope. A scope without a rate limit is unlimited."""

    scope: str
    """Messages counted together: `telegram/main` for a whole account, `telegram/main/1001` for a chat."""
    every_s: float
    """Average seconds between two messages."""
    burst: int
    """Messages that may be sent at once after a pause."""
    spaces_edits: bool = False
    """True when the first edit of a message also comes at least `every_s` after it."""
