"""On the way out: a card becomes messages. What a person allows is shown whole, and exactly as it was rendered.

A row that is too long for a message goes as a file before the card, and the card shows its beginning and says where
the rest is. Which rows do so, and how rows are spread over messages, follows only from what stays the same when a row
is decided: the room for its outcome is always kept free. Each row has its own buttons, right below it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from channels.slack.blocks import Json, buttons, code, header, line, shorten, size, small
from channels.slack.limits import ACTION_CHARS, BLOCKS, CARD_BYTES
from channels.slack.mrkdwn import clean
from channels.slack.parts import ROOM, FilePart, Part, TextPart
from gateway.model.slots import CardRow
from gateway.model.tools import Risk
from gateway.model.waits import Verb, WaitState

RISKS = MappingProxyType(
    {
        Risk.NONE: "○ no risk",
        Risk.READ: "👁 reads",
        Risk.WRITE: "✏️ writes",
        Risk.EXECUTE: "▶️ executes",
        Risk.NETWORK: "🌐 network",
    }
)
OUTCOMES = MappingProxyType(
    {
        WaitState.APPROVED: "✅",
        WaitState.CONSUMED: "✅",
        WaitState.DENIED: "⛔",
        WaitState.EXPIRED: "⌛",
        WaitState.CANCELLED: "⏹",
        WaitState.SUPERSEDED: "⏬",
    }
)
ESCAPED = "⚠️ Unusual characters are shown as \\u{…}. Read them before you allow this."
TOO_LONG = "⚠️ This cannot be shown whole, so it cannot be allowed."
NOTHING = "(no arguments)"
OUTCOME_CHARS = 300
"""Room for the outcome of a row, kept free while it is open."""
HEAD_CHARS = 300
NOTE_CHARS = 300
FACT_CHARS = 300
MESSAGES = 3
"""That one card should fill at most."""
ROW_BLOCKS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A row and how it is shown."""

    row: CardRow
    index: int
    """Counted from 1."""
    several: bool
    file: FilePart | None = None
    """With everything, when the card shows only the beginning."""

    @property
    def rendered(self) -> str:
        """The action as it is shown."""
        approval = self.row.wait.approval
        return approval.rendered if approval else ""

    @property
    def whole(self) -> bool:
        """Whether exactly this can be shown, so that somebody may allow it."""
        text = self.rendered
        return self.row.wait.approval is not None and clean(text) == text and len(text.encode()) <= CARD_BYTES

    @property
    def title(self) -> str:
        """Which row it is, how risky, and what will be done."""
        approval = self.row.wait.approval
        risk = f"{RISKS[approval.risk]} · " if approval else ""
        number = f"{self.index}. " if self.several else ""
        return f"{number}{risk}{' '.join(clean(self.row.title).split())}".strip() or NOTHING

    def size(self) -> int:
        """Characters at most, decided or not."""
        return sum(map(size, _said(self))) + OUTCOME_CHARS


def card(rows: Sequence[CardRow]) -> list[Part]:
    """Return the messages of a card: the files, then the rows, each with its buttons.

    Their number and order are the same whatever was decided, and the files never change.
    """
    plan = _plan(rows)
    parts: list[Part] = [row.file for row in plan if row.file is not None]
    for message in _packed(plan):
        blocks = [block for row in message for block in [*_said(row), *_state(row)]]
        said = "\n".join(" ".join(filter(None, (row.title, _outcome(row.row)))) for row in message)
        parts.append(TextPart(blocks=tuple(blocks), said=said))
    return parts


def _plan(rows: Sequence[CardRow]) -> list[_Row]:
    """Say which rows need a file: the long ones, then the longest until few messages are enough."""
    plan = [_Row(row=row, index=n, several=len(rows) > 1) for n, row in enumerate(rows, 1)]
    for n in sorted(range(len(plan)), key=lambda n: -len(plan[n].rendered)):
        if len(plan[n].rendered) > ACTION_CHARS or len(_packed(plan)) > MESSAGES:
            plan[n] = _filed(plan[n])
    return plan


def _packed(plan: Sequence[_Row]) -> list[list[_Row]]:
    """Spread rows over messages, in order."""
    messages: list[list[_Row]] = []
    left = 0
    for row in plan:
        needed = row.size()
        if needed > left or len(messages[-1]) * ROW_BLOCKS + ROW_BLOCKS >= BLOCKS:
            messages.append([])
            left = ROOM
        messages[-1].append(row)
        left -= needed
    return messages


def _filed(row: _Row) -> _Row:
    """The row with all of it in a file."""
    facts = [f"{label}: {value}" for label, value in row.row.facts]
    approval = row.row.wait.approval
    note = [approval.note] if approval and approval.note else []
    text = "\n".join([row.row.title, *facts, *note, "", row.rendered, ""])
    name = f"command-{row.index}.txt" if row.several else "command.txt"
    number = f"{row.index}. " if row.several else ""
    file = FilePart(name=name, data=text.encode(errors="replace"), caption=f"{number}What is asked, whole")
    return _Row(row=row.row, index=row.index, several=row.several, file=file)


def _said(row: _Row) -> list[Json]:
    """What stays the same: what, the action itself, what to know about it."""
    approval = row.row.wait.approval
    text = clean(row.rendered) if row.file is None else shorten(clean(row.rendered), HEAD_CHARS)
    notes = [_where(row, row.file)] if row.file is not None else []
    notes += [] if row.whole else [TOO_LONG]
    notes += [ESCAPED] if approval and approval.escaped else []
    notes += [f"⚠️ {shorten(_one_line(approval.note), NOTE_CHARS)}"] if approval and approval.note else []
    facts = [f"{label}: {shorten(_one_line(value), FACT_CHARS)}" for label, value in row.row.facts if label != "Risk"]
    return [
        header(row.title),
        code(text or NOTHING),
        *([small(notes)] if notes else []),
        *([small([" · ".join(facts)])] if facts else []),
    ]


def _state(row: _Row) -> list[Json]:
    """What can be done about it while it is open, or what became of it. Once only for what is shown whole."""
    outcome = _outcome(row.row)
    order = list(Verb)
    shown = [button for button in row.row.buttons if row.whole or button.verb is not Verb.ONCE]
    if row.row.wait.state is WaitState.OPEN and shown:
        return [buttons(row.index, sorted(shown, key=lambda button: order.index(button.verb)))]
    return [line(outcome)] if outcome else []


def _where(row: _Row, file: FilePart) -> str:
    sha = hashlib.sha256(file.data).hexdigest()[:16]
    return f"⚠️ Only its beginning. All {len(row.rendered):,} characters are in {file.name} above (SHA-256 {sha}…)."


def _outcome(row: CardRow) -> str:
    """What became of it, on one line."""
    icon = OUTCOMES.get(row.wait.state, "")
    return shorten(_one_line(f"{icon} {row.outcome}"), OUTCOME_CHARS) if row.outcome else ""


def _one_line(text: str) -> str:
    return " ".join(clean(text).split())
