"""Layout of a card's rows: risk labels, folded facts, outcome, buttons. The facts come from `gateway.approvals.cards`.

Used by each channel's `cards`, which adds the platform's form.
A row too long for a message, or with more than 40 lines, goes as a file before the card. An action can be allowed only
if it is shown whole and exactly as rendered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from channels._shared.files import FilePart
from gateway.domain.slots import ANSWER_BY, DETAILS, VOTES, Button, CardRow
from gateway.domain.tools import ACTION_BYTES, Risk
from gateway.domain.waits import GRANTS, Verb, WaitState

RISKS = MappingProxyType(
    {
        Risk.NONE: "○ this session only",
        Risk.READ: "👁 reads",
        Risk.WRITE: "✏️ writes",
        Risk.EXECUTE: "▶️ executes",
        Risk.NETWORK: "🌐 network",
    }
)
"""Label of a risk. The page has the same words in `views/card.js`."""
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
LINES = 40
"""Lines of an action that a card shows, such as those of a diff. All of a longer one is in a file."""
TALL_CHARS = 2_000
"""Characters shown of such lines in a card of one row."""
COMMON_CHARS = 600
"""Characters of the facts that a card of several rows shows once. When there are more, each row shows its own."""
_OWN = frozenset({"Risk", VOTES, ANSWER_BY})
"""Labels of the facts that are never shown for several rows at once: they stand elsewhere, or change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedRow:
    """Row of a card as it is shown."""

    row: CardRow
    index: int
    """Row number, from 1."""
    several: bool
    """True when the card has more than one row."""
    common: Sequence[tuple[str, str]] = ()
    """Facts that all rows of the card have, which are shown once below them."""
    file: FilePart | None = None
    """The full text, when the card shows only the beginning."""

    @property
    def number(self) -> str:
        """Return `2. ` in a card of several rows, else an empty text."""
        return f"{self.index}. " if self.several else ""

    @property
    def risk(self) -> str:
        """Return the risk label; empty when the risk is unknown."""
        approval = self.row.wait.approval
        return RISKS.get(approval.risk, "") if approval else ""

    @property
    def rendered(self) -> str:
        """Return the rendered action."""
        approval = self.row.wait.approval
        return approval.rendered if approval else ""

    @property
    def parts(self) -> Sequence[str]:
        """Return a line for each part of a shell command, with its verdict."""
        approval = self.row.wait.approval
        return [f"• {line}" for line in approval.parts] if approval else []

    @property
    def facts(self) -> Sequence[tuple[str, str]]:
        """Return the row's own facts without the details; the risk is in the title."""
        return [fact for fact in self.row.open_facts if fact[0] != "Risk" and fact not in self.common]

    @property
    def details(self) -> Sequence[tuple[str, str]]:
        """Return the row's own facts that are collapsed where the platform supports it."""
        return [fact for fact in self.row.folded_facts if fact not in self.common]

    @property
    def outcome(self) -> str:
        """Return the outcome, or the second question; empty while the row asks the first one."""
        if self.row.question:
            return f"❓ {self.row.question}"
        return f"{OUTCOMES.get(self.row.wait.state, '')} {self.row.outcome}" if self.row.outcome else ""

    @property
    def beginning(self) -> str:
        """Return the note that only the beginning is shown and where the rest is; empty when all is shown."""
        if self.file is None:
            return ""
        sha = hashlib.sha256(self.file.data).hexdigest()[:16]
        many, lines = f"{len(self.rendered):,}", self.rendered.count("\n") + 1
        said = f"first {self.head.count(chr(10)) + 1} of {lines:,} lines" if self.head else "beginning"
        return f"⚠️ Only its {said}. All {many} characters are in {self.file.name} above (SHA-256 {sha}…)."

    @property
    def is_tall(self) -> bool:
        """Return True if the action has too many lines for a card."""
        return self.rendered.count("\n") >= LINES

    @property
    def head(self) -> str:
        """Return the first lines of a tall action that a card of one row shows; empty where its beginning is cut."""
        if not self.is_tall or self.several or self.parts:
            return ""
        lines, left = list[str](), TALL_CHARS
        for line in self.rendered.split("\n", LINES)[:LINES]:
            left -= len(line) + 1
            if left < 0:
                break
            lines.append(line)
        return "\n".join(lines)

    def whole(self, clean: Callable[[str], str]) -> bool:
        """Return True if the action is shown exactly, so that it may be allowed. `clean`: the platform's cleaning."""
        text = self.rendered
        return self.row.wait.approval is not None and clean(text) == text and len(text.encode()) <= ACTION_BYTES

    def buttons(self, clean: Callable[[str], str]) -> list[Button]:
        """Return the buttons of an open row, in order. An action that is not shown whole cannot be allowed.

        One that is only in a file is never granted for longer than this call.
        """
        if self.row.wait.state is not WaitState.OPEN:
            return []
        order = list(Verb)
        whole = self.whole(clean)
        shown = [button for button in self.row.buttons if self._may_show(button.verb, whole=whole)]
        return sorted(shown, key=lambda button: order.index(button.verb))

    def _may_show(self, verb: Verb, *, whole: bool) -> bool:
        if verb is Verb.ALWAYS or verb in GRANTS:
            return whole and self.file is None
        return whole or verb is not Verb.ONCE

    def filed(self) -> RenderedRow:
        """Return the row with its full text in a file."""
        facts = [f"{label}: {value}" for label, value in self.row.facts]
        approval = self.row.wait.approval
        note = [approval.note] if approval and approval.note else []
        text = "\n".join([self.row.title, *facts, *note, *self.parts, "", self.rendered, ""])
        name = f"command-{self.index}.txt" if self.several else "command.txt"
        caption = f"{self.number}What is asked, whole"
        return replace(self, file=FilePart(name=name, data=text.encode(errors="replace"), caption=caption))


def answer_by(plan: Sequence[RenderedRow]) -> str:
    """Return one deadline line for all rows; empty when none is open."""
    is_open = any(row.row.wait.state is WaitState.OPEN for row in plan)
    times = [value for row in plan for label, value in row.row.facts if label == ANSWER_BY]
    return f"{ANSWER_BY}: {', '.join(dict.fromkeys(times))}" if is_open and times else ""


def in_common(plan: Sequence[RenderedRow], *, folded: bool | None = None) -> str:
    """Return the facts that all rows have in one line; empty when there are none.

    `folded`: only those that collapse, or only the others.
    """
    common = plan[0].common if plan else ()
    facts = [f"{label}: {value}" for label, value in common if folded in (None, label in DETAILS)]
    return f"For all {len(plan)}: {' · '.join(facts)}" if facts else ""


def rows_of(rows: Sequence[CardRow]) -> list[RenderedRow]:
    """Number the rows of a card, and find what they have in common."""
    several, common = len(rows) > 1, list[tuple[str, str]]()
    if several:
        common = [one for one in rows[0].facts if one[0] not in _OWN and all(one in row.facts for row in rows[1:])]
    if sum(len(label) + len(value) for label, value in common) > COMMON_CHARS:
        common = []
    return [RenderedRow(row=row, index=n, several=several, common=common) for n, row in enumerate(rows, 1)]
