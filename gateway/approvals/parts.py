"""Lines of a card about the parts of a shell command, each with its verdict. Made when an approval is asked."""

from __future__ import annotations

from gateway.approvals.action import render
from gateway.domain.tools import CallScope, SubjectKind
from gateway.policy.rules import place_of
from gateway.policy.shell import LINES_AT_MOST, parse, part_verdicts

_COMMAND = f"{SubjectKind.COMMAND}:"


def part_lines(call_scope: CallScope) -> tuple[str, ...]:
    """Return a line for each part, escaped as the action is; none for a command of one part that simply runs."""
    place = place_of(call_scope)
    texts = [one.removeprefix(_COMMAND) for one in call_scope.subjects if one.startswith(_COMMAND)]
    found = [pair for text in texts for pair in part_verdicts(parse(text), place)]
    if [verdict for _, verdict in found] == ["runs"]:
        return ()
    return tuple(" · ".join(filter(None, (render(text), verdict))) for text, verdict in found)[:LINES_AT_MOST]
