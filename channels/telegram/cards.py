"""Rendering of an approval card as messages. Used by `outbound`.

A row can be allowed only if its action is shown whole. A row too long for a message is sent as a file before the card;
the card shows its beginning and names the file. The layout does not depend on decisions: space for each outcome is
reserved. `channels._shared.card_layout` limits the lines and characters of a card.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from channels._shared.card_layout import ESCAPED, NOTHING, TOO_LONG, RenderedRow, answer_by, in_common, rows_of
from channels.telegram.formatted_text import Draft, Json, clean, shorten, units
from channels.telegram.limits import CALLBACK_BYTES, TEXT_PARTS
from channels.telegram.parts import ROOM, Part, TelegramTextPart
from gateway.domain.slots import CardRow
from gateway.domain.text import plain

OUTCOME_UNITS = 300
"""UTF-16 units reserved for the outcome of an open row."""
TITLE_UNITS = 120
"""UTF-16 units of the title shown for a row that has a file."""
HEAD_UNITS = 300
"""UTF-16 units of the action shown for a row that has a file."""
NOTE_UNITS = 300
"""UTF-16 units of the warning on a card."""
FACT_UNITS = 120
"""UTF-16 units of a fact on a card."""
EXPIRY_UNITS = 60
"""UTF-16 units reserved in each message for the deadline line."""
BETWEEN = "\n\n"
IN_A_LINE = 2
"""Buttons on one line of the keyboard: of three, a phone cuts the label of "Deny with reason"."""


def card(rows: Sequence[CardRow], *, quiet: bool = False) -> list[Part]:
    """Return the messages of a card: the files, then the rows; each message has the buttons of its own rows.

    Number and order do not depend on decisions, and the files never change. With `quiet`, mentions notify nobody.
    """
    plan = _plan(rows)
    files = [row.file for row in plan if row.file is not None]
    messages = _packed(plan)
    parts: list[Part] = [*files]
    for n, message in enumerate(messages, 1):
        draft = Draft()
        for row in message:
            draft.line(2)
            _write(draft, row, row.row.heading, _outcome(row))
        if said := in_common(plan, folded=False):
            draft.line(2)
            draft.add(said)
        _fold(draft, message, in_common(plan, folded=True), answer_by(plan) if n == len(messages) else "")
        parts.append(
            TelegramTextPart.of(draft.formatted(quiet=quiet), tuple(line for row in message for line in _buttons(row)))
        )
    return parts


def _plan(rows: Sequence[CardRow]) -> list[RenderedRow]:
    """Choose the rows that need a file: those that fill a message, then the longest until few messages are enough."""
    plan = rows_of(rows)
    sizes, room = [_size(row) for row in plan], _room(plan)
    for n in sorted(range(len(plan)), key=lambda n: -sizes[n]):
        fits = sizes[n] <= room and len(_packed(plan)) <= TEXT_PARTS
        if fits and not plan[n].is_tall:
            continue
        filed = plan[n].filed()
        if plan[n].is_tall or _size(filed) < sizes[n]:
            plan[n] = filed
    return plan


def _packed(plan: Sequence[RenderedRow]) -> list[list[RenderedRow]]:
    """Spread rows over messages, in order."""
    messages: list[list[RenderedRow]] = []
    left, room = 0, _room(plan)
    for row in plan:
        size = _size(row) + len(BETWEEN)
        if size > left:
            messages.append([])
            left = room + len(BETWEEN)
        messages[-1].append(row)
        left -= size
    return messages


def _room(plan: Sequence[RenderedRow]) -> int:
    """Return the UTF-16 units of a message that its rows may fill."""
    common = [in_common(plan, folded=folded) for folded in (False, True)]
    return ROOM - EXPIRY_UNITS - sum(units(clean(said)) + len(BETWEEN) for said in common if said)


def _size(row: RenderedRow) -> int:
    """Return a row's largest number of UTF-16 units, for any decision."""
    draft = Draft()
    _write(draft, row, row.row.title, "@x " * (OUTCOME_UNITS // 3))
    _fold(draft, [row])
    return units(draft.formatted(quiet=True).text)


def _write(draft: Draft, row: RenderedRow, title: str, outcome: str) -> None:
    """Write one row: title, action, notes, facts, outcome."""
    approval = row.row.wait.approval
    draft.line(2)
    draft.add(f"{row.number}{row.risk} · {_short(row, title, TITLE_UNITS)}", "bold")
    head = clean(row.head) if row.file is not None else ""
    draft.block(head or _short(row, row.rendered, HEAD_UNITS) or NOTHING)
    if row.beginning:
        _line(draft, row.beginning)
    if not row.whole(clean):
        _line(draft, TOO_LONG)
    if approval and approval.escaped:
        _line(draft, ESCAPED)
    if approval and approval.note:
        _line(draft, f"⚠️ {_short(row, approval.note, NOTE_UNITS)}")
    for part in row.parts:
        _line(draft, _short(row, part, FACT_UNITS))
    facts = [f"{label}: {_short(row, value, FACT_UNITS)}" for label, value in row.facts]
    for pair in zip_longest(facts[::2], facts[1::2]):
        _line(draft, " · ".join(fact for fact in pair if fact))
    if outcome:
        draft.line()
        draft.add(outcome, "bold")


def _fold(draft: Draft, message: Sequence[RenderedRow], *more: str) -> None:
    """Write the details of a message's rows and `more` lines, such as the deadline, in a collapsed quote."""
    details = [
        (row.number, [f"{label}: {_short(row, value, FACT_UNITS)}" for label, value in row.details]) for row in message
    ]
    lines = [number + " · ".join(said) for number, said in details if said]
    lines += [line for line in more if line]
    if lines:
        draft.line()
        draft.add("\n".join(lines), "expandable_blockquote")


def _line(draft: Draft, text: str) -> None:
    draft.line()
    draft.add(text)


def _short(row: RenderedRow, text: str, limit: int) -> str:
    """Return the text; shortened for a row that has a file."""
    return text if row.file is None else shorten(clean(text), limit)


def _outcome(row: RenderedRow) -> str:
    """Return the outcome on one line."""
    return shorten(plain(row.outcome), OUTCOME_UNITS)


def _buttons(row: RenderedRow) -> list[tuple[Json, ...]]:
    """Return a row's buttons as lines of the keyboard."""
    pressable = row.buttons(clean)
    assert all(0 < len(button.handle.encode()) <= CALLBACK_BYTES for button in pressable)
    number = f"{row.index} · " if row.several else ""
    shown = [{"text": f"{number}{one.label}", "callback_data": str(one.handle)} for one in pressable]
    return [tuple(shown[at : at + IN_A_LINE]) for at in range(0, len(shown), IN_A_LINE)]
