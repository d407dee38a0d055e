"""Markdown parser with linear running time. Shared by the channels' `markup`."""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.blockquote import blockquote
from markdown_it.rules_block.table import escapedSplit, table

# HTML is excluded: raw HTML stays text. So are underlined headings: `text` over `---` is meant as a rule. So are link
# definitions, which show nothing: `[ERROR]: timeout` is one.
_BLOCK_RULES = ("table", "code", "fence", "blockquote", "hr", "list", "heading", "paragraph")
_TEXT_RULES = ("newline", "escape", "backticks", "strikethrough", "emphasis", "link", "image", "autolink", "entity")
CELLS = 8_000
"""Table cells per text, at most. A table beyond that stays text: 720 characters held the loop for 0.2 s."""
CELLS_MISSING = 1_000
"""Absent cells per text, at most: those of rows shorter than the head, which cost no character."""
LOOKS = 4_000
"""Checks for a block quote per text, at most. A line in a list takes three, but in some quotes as many as there are
lines: 2,000 characters took 0.4 s."""


def parser() -> MarkdownIt:
    """Return a parser: CommonMark without HTML, with tables and strikethrough. Making one costs more than using it.

    It finds only blocks; `inline.parse` reads their content. The limits are counted per text, in `env` of the call.
    """
    made = MarkdownIt("zero").enable([*_BLOCK_RULES, *_TEXT_RULES]).disable(["inline", "text_join"])
    made.block.ruler.at("table", _table, {"alt": ["paragraph"]})
    made.block.ruler.at("blockquote", _quotation, {"alt": ["paragraph", "blockquote", "list"]})
    return made


def label_key(label: str) -> str:
    """Return a link's label as the parser looks it up: case and blanks normalised."""
    return normalizeReference(label)


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a table within the limits, surplus cells included."""
    if state.env.get("too_many_cells") or not table(state, start, end, True):
        return False
    if silent:
        return True
    columns = len(_cells(state, start))
    if not _has_room(state, start, end, columns):
        state.env["too_many_cells"] = True
        return False
    before = len(state.tokens)
    table(state, start, end, False)
    _keep_surplus(state, before, columns)
    return True


def _has_room(state: StateBlock, start: int, end: int, columns: int) -> bool:
    last = start
    while last < end and not state.isEmpty(last):
        last += 1
    written = state.src[state.bMarks[start] : state.eMarks[last - 1]].count("|")
    cells = columns * (last - start)
    state.env["cells"] = state.env.get("cells", 0) + max(cells, written)
    state.env["missing"] = state.env.get("missing", 0) + max(cells - written - (last - start), 0)
    return state.env["cells"] <= CELLS and state.env["missing"] <= CELLS_MISSING


def _keep_surplus(state: StateBlock, before: int, columns: int) -> None:
    """Join cells beyond the head's columns into the row's last cell: the parser would drop them."""
    line, cell = 0, None
    for token in state.tokens[before:]:
        if token.type == "tr_open" and token.map:
            line = token.map[0]
        elif token.type == "inline":
            cell = token
        elif token.type == "tr_close" and cell is not None and _source(state, line).count("|") >= columns:
            surplus = _cells(state, line)[columns:]
            cell.content = " | ".join([cell.content, *(one.strip() for one in surplus)]) if surplus else cell.content


def _source(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _cells(state: StateBlock, line: int) -> list[str]:
    found = escapedSplit(_source(state, line).strip())
    if found and not found[0]:
        found.pop(0)
    if found and not found[-1]:
        found.pop()
    return found


def _quotation(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    state.env["looks"] = state.env.get("looks", 0) + 1
    return state.env["looks"] <= LOOKS and blockquote(state, start, end, silent)
