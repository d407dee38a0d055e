"""On the way out: a card becomes messages. What a person allows is shown whole, and exactly as it was rendered.

A row that is too long for a message goes as a file before the card, and the card shows its beginning and says where
the rest is. Which rows do so, and how rows are spread over messages, follows only from what stays the same when a row
is decided: the room for its outcome is always kept free.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType

from channels.telegram.limits import CALLBACK_BYTES, CARD_BYTES, TEXT_PARTS
from channels.telegram.parts import ROOM, FilePart, Part, TextPart
from channels.telegram.rich import Draft, Json, clean, shorten, units
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
OUTCOME_UNITS = 300
"""Room for the outcome of a row, kept free while it is open."""
TITLE_UNITS = 120
HEAD_UNITS = 300
NOTE_UNITS = 300
FACT_UNITS = 120
"""What a row shows of each when all of it is in a file."""
BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A row and how it is shown."""

    row: CardRow
    number: str
    """`2. ` in a card of several rows, else empty."""
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

    def size(self) -> int:
        """UTF-16 units at most, decided or not."""
        draft = Draft()
        _write(draft, self, "@x " * (OUTCOME_UNITS // 3))
        return units(draft.rich(quiet=True).text)


def card(rows: Sequence[CardRow], *, quiet: bool = False) -> list[Part]:
    """Return the messages of a card: the files, then the rows; the last message has all buttons.

    Their number and order are the same whatever was decided, and the files never change. With `quiet`, names in what
    people wrote ring nobody.
    """
    plan = _plan(rows)
    files = [row.file for row in plan if row.file is not None]
    messages = _packed(plan)
    buttons = tuple(line for row in plan if (line := _buttons(row)))
    parts: list[Part] = [*files]
    for n, message in enumerate(messages):
        draft = Draft()
        for row in message:
            draft.line(2)
            _write(draft, row, _outcome(row.row))
        parts.append(TextPart.of(draft.rich(quiet=quiet), buttons if n == len(messages) - 1 else ()))
    return parts


def _plan(rows: Sequence[CardRow]) -> list[_Row]:
    """Say which rows need a file: those that fill a message, then the longest until few messages are enough."""
    several = len(rows) > 1
    plan = [_Row(row=row, number=f"{n}. " if several else "") for n, row in enumerate(rows, 1)]
    sizes = [row.size() for row in plan]
    for n in sorted(range(len(plan)), key=lambda n: -sizes[n]):
        if sizes[n] <= ROOM and len(_packed(plan)) <= TEXT_PARTS:
            break
        filed = _filed(plan[n], n + 1 if several else 0)
        if filed.size() < sizes[n]:
            plan[n] = filed
    return plan


def _packed(plan: Sequence[_Row]) -> list[list[_Row]]:
    """Spread rows over messages, in order."""
    messages: list[list[_Row]] = []
    left = 0
    for row in plan:
        size = row.size() + len(BETWEEN)
        if size > left:
            messages.append([])
            left = ROOM + len(BETWEEN)
        messages[-1].append(row)
        left -= size
    return messages


def _filed(row: _Row, number: int) -> _Row:
    """The row with all of it in a file."""
    facts = [f"{label}: {value}" for label, value in row.row.facts]
    approval = row.row.wait.approval
    note = [approval.note] if approval and approval.note else []
    text = "\n".join([row.row.title, *facts, *note, "", row.rendered, ""])
    name = f"command-{number}.txt" if number else "command.txt"
    caption = f"{row.number}What is asked, whole"
    return _Row(row=row.row, number=row.number, file=FilePart(name=name, data=text.encode(), caption=caption))


def _write(draft: Draft, row: _Row, outcome: str) -> None:
    """Write one row: what, the action itself, what to know about it, what became of it."""
    approval = row.row.wait.approval
    risk = RISKS.get(approval.risk, "") if approval else ""
    draft.line(2)
    draft.add(f"{row.number}{risk} · {_short(row, row.row.title, TITLE_UNITS)}", "bold")
    draft.block(_short(row, row.rendered, HEAD_UNITS) or NOTHING)
    if row.file is not None:
        _line(draft, _where(row, row.file))
    if not row.whole:
        _line(draft, TOO_LONG)
    if approval and approval.escaped:
        _line(draft, ESCAPED)
    if approval and approval.note:
        _line(draft, f"⚠️ {_short(row, approval.note, NOTE_UNITS)}")
    facts = [f"{label}: {_short(row, value, FACT_UNITS)}" for label, value in row.row.facts if label != "Risk"]
    for pair in zip_longest(facts[::2], facts[1::2]):
        _line(draft, " · ".join(fact for fact in pair if fact))
    if outcome:
        draft.line()
        draft.add(outcome, "bold")


def _line(draft: Draft, text: str) -> None:
    draft.line()
    draft.add(text)


def _short(row: _Row, text: str, limit: int) -> str:
    """All of it, but for a row that has its file."""
    return text if row.file is None else shorten(clean(text), limit)


def _where(row: _Row, file: FilePart) -> str:
    sha = hashlib.sha256(file.data).hexdigest()[:16]
    return f"⚠️ Only its beginning. All {len(row.rendered):,} characters are in {file.name} above (SHA-256 {sha}…)."


def _outcome(row: CardRow) -> str:
    """What became of it, on one line."""
    icon = OUTCOMES.get(row.wait.state, "")
    return shorten(" ".join(clean(f"{icon} {row.outcome}").split()), OUTCOME_UNITS) if row.outcome else ""


def _buttons(row: _Row) -> tuple[Json, ...]:
    """Once, Deny, Deny with reason, while the row is open; Once only for what is shown whole."""
    if row.row.wait.state is not WaitState.OPEN:
        return ()
    order = list(Verb)
    buttons = [button for button in row.row.buttons if row.whole or button.verb is not Verb.ONCE]
    assert all(0 < len(button.handle.encode()) <= CALLBACK_BYTES for button in buttons)
    number = row.number.rstrip(". ")
    return tuple(
        {"text": f"{number} · {button.label}" if number else button.label, "callback_data": str(button.handle)}
        for button in sorted(buttons, key=lambda button: order.index(button.verb))
    )
