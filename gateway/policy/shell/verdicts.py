"""Lines for people about each part of a script: what it does, or why that cannot be known."""

from __future__ import annotations

from gateway.policy.shell.places import is_outside, resolved
from gateway.policy.shell.reading import ANYWHERE, harmless
from gateway.policy.shell.script import PartKind, Script, ScriptPart, WorkingFolder

LINES_AT_MOST = 8
"""Most lines about parts; the last one then says how many more there are."""
TEXT_AT_MOST = 80
"""Most characters of a part that a line repeats."""


def part_verdicts(script: Script, place: WorkingFolder = ANYWHERE) -> tuple[tuple[str, str], ...]:
    """Return the text of each part of a script, not escaped, with its verdict; at most eight.

    An empty text: the verdict is about the whole script, or counts the parts that are left out.
    """
    found = [(_shortened(part.text), _verdict(part, script, place)) for part in script.parts]
    known = {part.why_ask for part in script.parts}
    if script.why_ask and script.why_ask not in known:
        found.insert(0, ("", script.why_ask))
    if len(found) <= LINES_AT_MOST:
        return tuple(found)
    left = len(found) - LINES_AT_MOST + 1
    return (*found[: LINES_AT_MOST - 1], ("", f"and {left} more"))


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_AT_MOST else f"{line[: TEXT_AT_MOST - 1]}…"


def _verdict(part: ScriptPart, script: Script, place: WorkingFolder) -> str:
    if part.why_ask:
        return part.why_ask[0].lower() + part.why_ask[1:].rstrip(".")
    match part.kind:
        case PartKind.WRITE:
            found = resolved(part.words[0], part.folders, place)
            outside = found is None or any(is_outside(one) for one in found)
            return "writes outside the workspace" if outside else "writes"
        case PartKind.FUNCTION:
            return "defines a function"
        case PartKind.ASSIGNMENT:
            return "sets a variable" if harmless(part, place) else "changes how programs run"
        case _ if part.expands:
            return "cannot be known before it runs"
        case PartKind.READ:
            return "reads" if harmless(part, place) else "reads what it may not read unasked"
        case _:
            known = script.plain and not script.why_ask
            return "reads only" if known and harmless(part, place) else "runs"
