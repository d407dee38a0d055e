"""Rendering of an approval card as messages. Used by `outbound`.

A row can be allowed only if its action is shown whole. A row too long for a message is sent as a file before the card;
the card shows its beginning and names the file. When Slack finds a card too long, every row is sent so. The layout does
not depend on decisions: space for each outcome is reserved. `channels._shared.card_layout` limits the lines and
characters of a card.
Each row has its own buttons, directly below it.
"""

from __future__ import annotations

from collections.abc import Sequence

from channels._shared.card_layout import ESCAPED, NOTHING, TOO_LONG, RenderedRow, answer_by, in_common, rows_of
from channels.slack.blocks import Json, buttons, code, header, line, size, small
from channels.slack.limits import ACTION_CHARS, BLOCKS
from channels.slack.parts import ROOM, Part, SlackTextPart
from channels.slack.plain import clean
from gateway.domain.slots import CardRow
from gateway.domain.text import cut, plain

OUTCOME_CHARS = 300
"""Characters reserved for the outcome of an open row."""
HEAD_CHARS = 300
"""Characters shown of an action that is in a file. The next two: characters of a note and of a fact."""
NOTE_CHARS = 300
"""Characters of the warning on a card."""
FACT_CHARS = 300
"""Characters of a fact on a card."""
EXPIRY_CHARS = 60
"""Characters reserved in each message for the deadline line."""
MESSAGES = 3
"""Messages that one card should fill, at most."""
ROW_BLOCKS = 7
"""Blocks of one row, at most."""


def card(rows: Sequence[CardRow], *, filed: bool = False) -> list[Part]:
    """Return the messages of a card: the files, then the rows, each with its buttons.

    Number and order do not depend on decisions, and the files never change. `filed`: every row has a file.
    """
    plan = [row.filed() for row in rows_of(rows)] if filed else _plan(rows)
    parts: list[Part] = [row.file for row in plan if row.file is not None]
    messages, until, common = _packed(plan), answer_by(plan), plain(in_common(plan))
    for n, message in enumerate(messages, 1):
        blocks = [block for row in message for block in [*_said(row, row.row.heading), *_state(row)]]
        below = [line for line in (common, until if n == len(messages) else "") if line]
        blocks += [small(below)] if below else []
        said = "\n".join(" ".join(filter(None, (_title(row, row.row.heading), _outcome(row)))) for row in message)
        parts.append(SlackTextPart(blocks=tuple(blocks), said=said))
    return parts


def _plan(rows: Sequence[CardRow]) -> list[RenderedRow]:
    """Choose the rows that need a file: the long ones, then the longest until few messages are enough."""
    plan = rows_of(rows)
    for n in sorted(range(len(plan)), key=lambda n: -len(plan[n].rendered)):
        if plan[n].is_tall or len(plan[n].rendered) > ACTION_CHARS or len(_packed(plan)) > MESSAGES:
            plan[n] = plan[n].filed()
    return plan


def _packed(plan: Sequence[RenderedRow]) -> list[list[RenderedRow]]:
    """Spread rows over messages, in order."""
    messages: list[list[RenderedRow]] = []
    left, room = 0, ROOM - EXPIRY_CHARS - len(in_common(plan))
    for row in plan:
        needed = _size(row)
        if needed > left or len(messages[-1]) * ROW_BLOCKS + ROW_BLOCKS >= BLOCKS:
            messages.append([])
            left = room
        messages[-1].append(row)
        left -= needed
    return messages


def _size(row: RenderedRow) -> int:
    """Return a row's largest number of characters, for any decision."""
    return sum(map(size, _said(row, row.row.title))) + OUTCOME_CHARS


def _title(row: RenderedRow, title: str) -> str:
    """Return the first line: number, risk, what the tool wants or wanted."""
    risk = f"{row.risk} · " if row.risk else ""
    return f"{row.number}{risk}{plain(title)}".strip() or NOTHING


def _said(row: RenderedRow, title: str) -> list[Json]:
    """Return the blocks whose number no decision changes: title, action, notes, facts."""
    approval = row.row.wait.approval
    text = clean(row.rendered) if row.file is None else clean(row.head) or cut(clean(row.rendered), HEAD_CHARS)
    notes = [row.beginning] if row.beginning else []
    notes += [] if row.whole(clean) else [TOO_LONG]
    notes += [ESCAPED] if approval and approval.escaped else []
    notes += [f"⚠️ {cut(plain(approval.note), NOTE_CHARS)}"] if approval and approval.note else []
    facts = [f"{label}: {cut(plain(value), FACT_CHARS)}" for label, value in [*row.facts, *row.details]]
    parts = "\n".join(cut(plain(part), FACT_CHARS) for part in row.parts)
    return [
        header(_title(row, title)),
        code(text or NOTHING),
        *([small([parts])] if parts else []),
        *([small(notes)] if notes else []),
        *([small([" · ".join(facts)])] if facts else []),
    ]


def _state(row: RenderedRow) -> list[Json]:
    """Return the buttons of an open row, below its second question if that is asked, or its outcome."""
    outcome, pressable = _outcome(row), row.buttons(clean)
    if pressable:
        asked = [line(outcome)] if row.row.question else []
        return [*asked, buttons(row.index, pressable)]
    return [line(outcome)] if outcome else []


def _outcome(row: RenderedRow) -> str:
    """Return the outcome on one line."""
    return cut(plain(row.outcome), OUTCOME_CHARS)
