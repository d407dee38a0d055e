"""On the way out: a card becomes messages. What a person allows is shown whole, and exactly as it was rendered.

A row that is too long for a message goes as a file before the card, and the card shows its beginning and says where
the rest is. Which rows do so, and how rows are spread over messages, follows only from what stays the same when a row
is decided: the room for its outcome is always kept free.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from channels._shared.cards import ESCAPED, NOTHING, TOO_LONG, RenderedRow, answer_by, rows_of
from channels.telegram.formatted_text import Draft, Json, clean, shorten, units
from channels.telegram.limits import CALLBACK_BYTES, TEXT_PARTS
from channels.telegram.parts import ROOM, Part, TelegramTextPart
from gateway.domain.slots import CardRow
from gateway.domain.text import plain

OUTCOME_UNITS = 300
"""Room for the outcome of a row, kept free while it is open."""
TITLE_UNITS = 120
HEAD_UNITS = 300
NOTE_UNITS = 300
FACT_UNITS = 120
EXPIRY_UNITS = 60
"""Room in each message for the line that says until when the card can be decided."""
"""What a row shows of each when all of it is in a file."""
BETWEEN = "\n\n"


def card(rows: Sequence[CardRow], *, quiet: bool = False) -> list[Part]:
    """Return the messages of a card: the files, then the rows; each message has the buttons of its own rows.

    Their number and order are the same whatever was decided, and the files never change. With `quiet`, names in what
    people wrote ring nobody.
    """
    plan = _plan(rows)
    files = [row.file for row in plan if row.file is not None]
    messages = _packed(plan)
    parts: list[Part] = [*files]
    for n, message in enumerate(messages, 1):
        draft = Draft()
        for row in message:
            draft.line(2)
            _write(draft, row, _outcome(row))
        _fold(draft, message, answer_by(plan) if n == len(messages) else "")
        parts.append(
            TelegramTextPart.of(draft.rich(quiet=quiet), tuple(line for row in message if (line := _buttons(row))))
        )
    return parts


def _plan(rows: Sequence[CardRow]) -> list[RenderedRow]:
    """Say which rows need a file: those that fill a message, then the longest until few messages are enough."""
    plan = rows_of(rows)
    sizes = [_size(row) for row in plan]
    for n in sorted(range(len(plan)), key=lambda n: -sizes[n]):
        if sizes[n] <= ROOM - EXPIRY_UNITS and len(_packed(plan)) <= TEXT_PARTS:
            break
        filed = plan[n].filed()
        if _size(filed) < sizes[n]:
            plan[n] = filed
    return plan


def _packed(plan: Sequence[RenderedRow]) -> list[list[RenderedRow]]:
    """Spread rows over messages, in order."""
    messages: list[list[RenderedRow]] = []
    left = 0
    for row in plan:
        size = _size(row) + len(BETWEEN)
        if size > left:
            messages.append([])
            left = ROOM + len(BETWEEN) - EXPIRY_UNITS
        messages[-1].append(row)
        left -= size
    return messages


def _size(row: RenderedRow) -> int:
    """UTF-16 units at most, decided or not."""
    draft = Draft()
    _write(draft, row, "@x " * (OUTCOME_UNITS // 3))
    _fold(draft, [row], "")
    return units(draft.rich(quiet=True).text)


def _write(draft: Draft, row: RenderedRow, outcome: str) -> None:
    """Write one row: what, the action itself, what to know about it, what became of it."""
    approval = row.row.wait.approval
    draft.line(2)
    draft.add(f"{row.number}{row.risk} · {_short(row, row.row.title, TITLE_UNITS)}", "bold")
    draft.block(_short(row, row.rendered, HEAD_UNITS) or NOTHING)
    if row.beginning:
        _line(draft, row.beginning)
    if not row.whole(clean):
        _line(draft, TOO_LONG)
    if approval and approval.escaped:
        _line(draft, ESCAPED)
    if approval and approval.note:
        _line(draft, f"⚠️ {_short(row, approval.note, NOTE_UNITS)}")
    facts = [f"{label}: {_short(row, value, FACT_UNITS)}" for label, value in row.facts]
    for pair in zip_longest(facts[::2], facts[1::2]):
        _line(draft, " · ".join(fact for fact in pair if fact))
    if outcome:
        draft.line()
        draft.add(outcome, "bold")


def _fold(draft: Draft, message: Sequence[RenderedRow], until: str) -> None:
    """Write the details of a message's rows below them, and until when the card can be decided; folded by Telegram."""
    details = [
        (row.number, [f"{label}: {_short(row, value, FACT_UNITS)}" for label, value in row.details]) for row in message
    ]
    lines = [number + " · ".join(said) for number, said in details if said]
    lines += [until] if until else []
    if lines:
        draft.line()
        draft.add("\n".join(lines), "expandable_blockquote")


def _line(draft: Draft, text: str) -> None:
    draft.line()
    draft.add(text)


def _short(row: RenderedRow, text: str, limit: int) -> str:
    """All of it, but for a row that has its file."""
    return text if row.file is None else shorten(clean(text), limit)


def _outcome(row: RenderedRow) -> str:
    """What became of it, on one line."""
    return shorten(plain(row.outcome), OUTCOME_UNITS)


def _buttons(row: RenderedRow) -> tuple[Json, ...]:
    """What can be pressed, on one line of the keyboard."""
    pressable = row.buttons(clean)
    assert all(0 < len(button.handle.encode()) <= CALLBACK_BYTES for button in pressable)
    number = f"{row.index} · " if row.several else ""
    return tuple({"text": f"{number}{one.label}", "callback_data": str(one.handle)} for one in pressable)
