"""The page that `./run proof` wrote, with some of its parts seen anew. No part of the path of a message.

A run of some faults, written with `--json`, takes the place of their sections, and each of those names the runs that
saw it. So do what other commands found, and the twins. All other sections stay as they are, and are of the commit at
the top. What the page adds up is added up anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.support.proof import LOST, RAN_TWICE, TWICE
from tests.support.proof_page import DECIDED, UNTRIED, Fault, Proof, beginning, in_sum, of_twins, section
from tests.support.proof_reports import Json, of_bench, of_fuzz, of_mutants

TWINS = "## Red twins"
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
    rest: Mapping[str, Sequence[str]]
    """Sections after the faults and the open parts, by heading: twins, and findings of other commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Reports that are renewed besides faults."""

    bench: Json | None = None
    fuzz: Json | None = None
    mutants: Json | None = None
    twins: Sequence[tuple[str, str, bool]] = ()
    tried: str = ""
    """When, and at which commit, the twins were."""

    def sections(self, proof: Proof) -> dict[str, list[str]]:
        """By heading. `proof`: with the same in it."""
        parts = (of_twins(proof), of_bench(self.bench), of_fuzz(self.fuzz), of_mutants(self.mutants))
        found = {part[1]: part[1:] for part in parts if part}
        if TWINS in found:
            found[TWINS][2] += f" {self.tried}"
        return found

    def replaces(self, miss: str) -> bool:
        """Return True for a miss of a renewed part."""
        beginnings = (
            ("over its budget: ", self.bench is not None),
            ("fuzzing ", self.fuzz is not None),
            ("mutants of ", self.mutants is not None),
        )
        is_of_a_twin = bool(self.twins) and ": no test noticed that " in miss
        return is_of_a_twin or any(known and miss.startswith(begins) for begins, known in beginnings)


def parsed(text: str) -> Page:
    """Cut a page. Raises `ValueError` for a text that is none."""
    parts = re.split(r"^(?=## )", text.rstrip("\n"), flags=re.MULTILINE)
    faults: dict[str, list[str]] = {}
    rest: dict[str, list[str]] = {}
    for part in parts[1:]:
        lines = part.rstrip("\n").split("\n")
        found = _HEADING.match(part)
        if found is not None:
            faults[found[1]] = lines
        elif lines[0] != UNTRIED:
            rest[lines[0]] = lines
    if not faults:
        raise ValueError("the page has no fault: write it with ./run proof first")
    return Page(head=parts[0].rstrip("\n").split("\n"), faults=faults, rest=rest)


def renewed(text: str, runs: Sequence[Json], faults: Sequence[Fault], reports: Reports = Reports()) -> str:
    """The page with what these runs found. Raises `ValueError` for a text that is no page."""
    old = parsed(text)
    named = [fault for fault in faults if any(fault.id in run["faults"] for run in runs)]
    proof = Proof(
        date="",
        commit="",
        seed=0,
        command="",
        machine="",
        faults=named,
        lines=(),
        passed=0,
        larger=runs,
        bench=reports.bench,
        fuzz=reports.fuzz,
        mutants=reports.mutants,
        twins=reports.twins,
    )
    known = {**old.faults, **{fault.id: section(proof, fault, _seen(fault, runs)) for fault in named}}
    shown = [line for fault in faults if fault.id in known for line in ("", *known[fault.id])]
    left = [f"- {one.id}: {one.trouble}. {_why(one)}".rstrip() for one in faults if one.id not in known]
    untried = ["", UNTRIED, "", *left] if left else []
    rest = {**old.rest, **reports.sections(proof)}
    head = _head(old.head, shown, proof, reports)
    return "\n".join([*head, *shown, *untried, *(line for part in rest.values() for line in ("", *part)), ""])


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


def _head(old: Sequence[str], shown: Sequence[str], proof: Proof, reports: Reports) -> list[str]:
    """The head, with sums of the sections as they are now."""
    cut, anew = old.index(DECIDED) if DECIDED in old else len(old), {fault.id for fault in proof.faults}
    misses = [line[2:] for line in old[:cut] if line.startswith("- ")]
    kept = [miss for miss in misses if not _is_of(miss, anew) and not reports.replaces(miss)]
    decided = proof.decided() if proof.bench else [line[2:] for line in old[cut:] if line.startswith("- ")]
    made = [line for line in old if line.startswith("Made by ") or _stays(line, anew)]
    kills = sum(_number(found[1]) for line in shown if (found := _KILLS.match(line)))
    words = in_sum(kills, *(_count(shown, what) for what in (LOST, TWICE, RAN_TWICE)))
    return [*beginning(words, [*kept, *proof.misses()], decided), "", *made, OTHERS]


def _is_of(miss: str, anew: set[str]) -> bool:
    if (run := re.search(r" failed in .*--only (?P<faults>(?:[A-Z]\w+ ?)+)", miss)) is not None:
        return set(run["faults"].split()) <= anew
    return re.split(r"[ :]", miss, maxsplit=1)[0] in anew


def _stays(line: str, anew: set[str]) -> bool:
    """Return True for a line of a larger run that still has a section."""
    found = _TAKEN_OVER.match(line)
    return found is not None and not set(re.findall(r"[A-Z]\w+", found["command"])) <= anew


def _count(lines: Sequence[str], what: str) -> tuple[int, int]:
    row = re.compile(rf"\| {re.escape(what)} \| [^|]* \| ([\d,]+) of ([\d,]+) \|")
    found = [match for line in lines if (match := row.match(line))]
    return sum(_number(one[1]) for one in found), sum(_number(one[2]) for one in found)


def _number(text: str) -> int:
    return int(text.replace(",", ""))
