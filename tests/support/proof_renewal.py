"""The page that `./run proof` wrote, with some of its faults seen anew. No part of the path of a message.

A run of some faults, written with `--json`, takes the place of their sections, and each of those names the runs that
saw it. All other sections stay as they are, and are of the commit at the top. What the page adds up is added up anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.support.proof import LOST, RAN_TWICE, TWICE
from tests.support.proof_page import DECIDED, UNTRIED, Fault, Proof, beginning, in_sum, section
from tests.support.proof_reports import Json

OTHERS = "Sections that name runs were seen by those; all others at the commit above."
_HEADING = re.compile(r"## (\w+): ")
_KILLS = re.compile(r"([\d,]+) kills\.")
_TAKEN_OVER = re.compile(r"The figures of `(?P<command>[^`]*)` are among those below")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, cut at its headings."""

    head: Sequence[str]
    faults: Mapping[str, Sequence[str]]
    """Lines of each fault, by its id."""
    rest: Sequence[str]
    """Everything behind the faults and what was not tried: the twins, and what other commands found."""


def parsed(text: str) -> Page:
    """Cut a page. Raises `ValueError` for a text that is none."""
    parts = re.split(r"^(?=## )", text.rstrip("\n"), flags=re.MULTILINE)
    faults: dict[str, list[str]] = {}
    rest: list[str] = []
    for part in parts[1:]:
        lines = part.rstrip("\n").split("\n")
        found = _HEADING.match(part)
        if found is not None:
            faults[found[1]] = lines
        elif lines[0] != UNTRIED:
            rest += ["", *lines]
    if not faults:
        raise ValueError("the page has no fault: write it with ./run proof first")
    return Page(head=parts[0].rstrip("\n").split("\n"), faults=faults, rest=rest)


def renewed(text: str, runs: Sequence[Json], faults: Sequence[Fault]) -> str:
    """The page with what these runs found. Raises `ValueError` for a text that is no page."""
    old = parsed(text)
    named = [fault for fault in faults if any(fault.id in run["faults"] for run in runs)]
    proof = Proof(
        **{name: runs[0][name] for name in ("date", "commit", "seed", "command", "machine")},
        faults=named,
        lines=(),
        passed=0,
        larger=runs,
    )
    known = {**old.faults, **{fault.id: section(proof, fault, _seen(fault, runs)) for fault in named}}
    shown = [line for fault in faults if fault.id in known for line in ("", *known[fault.id])]
    left = [f"- {one.id}: {one.trouble}. {_why(one)}".rstrip() for one in faults if one.id not in known]
    untried = ["", UNTRIED, "", *left] if left else []
    head = _head(old.head, shown, proof, {fault.id for fault in named})
    return "\n".join([*head, *shown, *untried, *old.rest, ""])


def _seen(fault: Fault, runs: Sequence[Json]) -> str:
    mine = [
        f"`{run['command']}` ({run['date']}, commit {run['commit']}, {run['machine']}; {run['passed']} passed, "
        f"{len(run['failed'])} failed)"
        for run in runs
        if fault.id in run["faults"]
    ]
    return f"Seen by {' and '.join(mine)}."


def _why(fault: Fault) -> str:
    return "Its tests were not run for this page." if fault.tests else fault.missing


def _head(old: Sequence[str], shown: Sequence[str], proof: Proof, anew: set[str]) -> list[str]:
    """The head, with sums of the sections as they are now."""
    cut = old.index(DECIDED) if DECIDED in old else len(old)
    misses = [line[2:] for line in old[:cut] if line.startswith("- ") and not _is_of(line[2:], anew)]
    decided = [line[2:] for line in old[cut:] if line.startswith("- ")]
    made = [line for line in old if line.startswith("Made by ") or _stays(line, anew)]
    kills = sum(_number(found[1]) for line in shown if (found := _KILLS.match(line)))
    words = in_sum(kills, *(_count(shown, what) for what in (LOST, TWICE, RAN_TWICE)))
    return [*beginning(words, [*misses, *proof.misses()], decided), "", *made, OTHERS]


def _is_of(miss: str, anew: set[str]) -> bool:
    return re.split(r"[ :]", miss, maxsplit=1)[0] in anew


def _stays(line: str, anew: set[str]) -> bool:
    """Whether a line tells of a larger run that still has a section."""
    found = _TAKEN_OVER.match(line)
    return found is not None and not set(re.findall(r"[A-Z]\w+", found["command"])) <= anew


def _count(lines: Sequence[str], what: str) -> tuple[int, int]:
    row = re.compile(rf"\| {re.escape(what)} \| [^|]* \| ([\d,]+) of ([\d,]+) \|")
    found = [match for line in lines if (match := row.match(line))]
    return sum(_number(one[1]) for one in found), sum(_number(one[2]) for one in found)


def _number(text: str) -> int:
    return int(text.replace(",", ""))
