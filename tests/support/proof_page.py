"""The page that `./run proof` writes, from what tests stated. No part of the path of a message."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.proof import KILLS, LOST, RAN_TWICE, TWICE
from tests.support.proof_reports import (
    NO,
    Json,
    fuzz_misses,
    mutants_misses,
    of_bench,
    of_fuzz,
    of_mutants,
    of_soak,
    short,
    table,
)

TITLE = "# What was tried against the daemon"
DECIDED = "Missed no further than a decision in `gateway/decisions` allows:"
UNTRIED = "## Not tried yet"
DID_NOT_HOLD = "did not hold:**"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of trouble, and the tests that make it."""

    id: str
    trouble: str
    """Description of the fault, in a sentence for people."""
    tests: tuple[str, ...] = ()
    """As pytest takes them; none: not tried yet."""
    missing: str = ""
    """Part that is not tried yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All figures of one name: from several tests, or several cases of one."""

    fault: str
    what: str
    runs: int
    """Tests, or cases of one, that stated it."""
    value: float
    """A count is summed up; of anything else it is the worst."""
    bar: float
    unit: str
    least: bool
    of: int | None
    held: bool

    def cells(self) -> tuple[str, ...]:
        """The row as cells of a table."""
        value = short(self.value) + ("" if self.of is None else f" of {self.of:,}")
        bar = f"{'≥' if self.least else '≤'} {short(self.bar)}" if self.bar or self.least else "0"
        unit = f" {self.unit}" if self.unit else ""
        return (self.what, f"{self.runs} ×", value + unit, bar + unit, "yes" if self.held else NO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Everything that one run of the command found."""

    date: str
    commit: str
    seed: int
    command: str
    machine: str
    faults: Sequence[Fault]
    """In the order of the page."""
    lines: Sequence[Json]
    """Statements of tests, in any order."""
    passed: int
    failed: Sequence[str] = ()
    """Tests that failed."""
    twins: Sequence[tuple[str, str, bool]] = ()
    """Invariant, what a twin breaks, and whether a test noticed."""
    bench: Json | None = None
    """Output of `./run bench --json`."""
    soak: Json | None = None
    """Output of `./run soak --json`."""
    fuzz: Json | None = None
    """Output of `./run fuzz --json`."""
    mutants: Json | None = None
    """Output of `./run mutants --json`."""
    larger: Sequence[Json] = ()
    """Output of this command's other runs with `--json`: `as_json` of each."""
    partial: bool = False
    """Only some faults were wanted."""
    trouble: list[str] = field(default_factory=list[str])
    """Anything else that went wrong."""

    @property
    def budgets(self) -> Sequence[Json]:
        """The figures of the bench."""
        return self.bench["figures"] if self.bench else ()

    def rows(self) -> list[Row]:
        """The figures, merged, in the order of the faults and by name."""
        return merged(self.stated(), [fault.id for fault in self.faults])

    def stated(self) -> list[Json]:
        """Return the statements of tests here and in larger runs, and of the soak, in any order."""
        larger = [{**line, "test": f"{run['command']}: {line['test']}"} for run in self.larger for line in run["lines"]]
        return [*self.lines, *larger, *(self.soak["lines"] if self.soak else ())]

    def misses(self) -> list[str]:
        """Return the misses; empty when everything holds."""
        rows = self.rows()
        with_rows = {row.fault for row in rows}
        return [
            *(f"{row.fault} {row.what}: {row.cells()[2]}, allowed {row.cells()[3]}" for row in rows if not row.held),
            *(
                f"{fault.id}: its tests stated no figure"
                for fault in self.faults
                if fault.tests and fault.id not in with_rows
            ),
            *(f"the test {test} failed" for test in self.failed),
            *(f"the test {test} failed in {run['command']}" for run in self.larger for test in run["failed"]),
            *(f"{invariant}: no test noticed that {breaks}" for invariant, breaks, red in self.twins if not red),
            *(f"over its budget: {line['what']}" for line in self.budgets if line["holds"] == "NO"),
            *fuzz_misses(self.fuzz),
            *mutants_misses(self.mutants),
            *self.trouble,
        ]

    def as_json(self) -> Json:
        """Return the statements of this run's tests, for `larger` of another one, or to renew a page."""
        known = {name: getattr(self, name) for name in ("date", "commit", "seed", "command", "machine", "passed")}
        about = {"faults": [fault.id for fault in self.faults], "failed": list(self.failed)}
        return {**known, **about, "lines": list(self.lines)}

    def decided(self) -> list[str]:
        """Budgets that are missed as far as a decision allows."""
        return [f"{line['what']}: {line['holds']}" for line in self.budgets if str(line["holds"]).startswith("decided")]


def merged(lines: Iterable[Json], order: Sequence[str]) -> list[Row]:
    """Put figures of one fault, name and bar together. Those of other faults are left out."""
    groups: dict[tuple[int, str, float, str, bool], list[Json]] = {}
    for line in lines:
        if "value" in line and line["fault"] in order:
            key = (order.index(line["fault"]), line["what"], line["bar"], line["unit"], line["least"])
            groups.setdefault(key, []).append(line)
    return [_merge(order[key[0]], groups[key]) for key in sorted(groups)]


def _merge(fault: str, group: Sequence[Json]) -> Row:
    one = group[0]
    values = [line["value"] for line in group]
    is_count = one["of"] is not None
    worst = min(values) if one["least"] else max(values)
    return Row(
        fault=fault,
        what=one["what"],
        runs=len({line["test"] for line in group}),
        value=sum(values) if is_count else worst,
        bar=one["bar"],
        unit=one["unit"],
        least=one["least"],
        of=sum(line["of"] or 0 for line in group) if is_count else None,
        held=all(line["held"] for line in group),
    )


def read_lines(text: str) -> list[Json]:
    """Parse what tests appended. A last line that was cut off by a death of the test is left out."""
    found: list[Json] = []
    for line in text.splitlines():
        if line.endswith("}"):
            found.append(json.loads(line))
    return found


def page(proof: Proof) -> str:
    """The whole page, as Markdown."""
    found = [of_soak(proof.soak), of_fuzz(proof.fuzz), of_mutants(proof.mutants), of_bench(proof.bench)]
    return "\n".join([*_head(proof), *_faults(proof), *of_twins(proof), *(line for part in found for line in part), ""])


def _head(proof: Proof) -> list[str]:
    misses, decided = proof.misses(), proof.decided()
    return [
        *beginning(_words(proof), misses, decided, " This is a part of the whole only." if proof.partial else ""),
        "",
        f"Made by `{proof.command}` on {proof.date}, commit {proof.commit}, seed {proof.seed}, {proof.machine}; "
        f"{_tests(proof.passed)} passed, {len(proof.failed)} failed.",
        *map(_taken_over, proof.larger),
    ]


def beginning(words: str, misses: Sequence[str], decided: Sequence[str], more: str = "") -> list[str]:
    """The title, what was seen in sum, and what does not hold."""
    held = "Every bar held, or is missed no further than a decision allows." if decided else "Every bar held."
    verdict = f"**{len(misses)} {DID_NOT_HOLD}" if misses else held
    lines = [f"{verdict}{more}", *(f"- {miss}" for miss in misses), *_decided(decided)]
    return [TITLE, "", words, "", *lines]


def _taken_over(run: Json) -> str:
    return (
        f"The figures of `{run['command']}` are among those below; {run['date']}, commit {run['commit']}, "
        f"{run['machine']}; {_tests(run['passed'])} passed, {len(run['failed'])} failed."
    )


def _tests(count: int) -> str:
    return f"{count} test{'' if count == 1 else 's'}"


def _decided(budgets: Sequence[str]) -> list[str]:
    if not budgets:
        return []
    return ["", DECIDED, *(f"- {one}" for one in budgets)]


def _words(proof: Proof) -> str:
    kills = sum(line["count"] for line in proof.stated() if line["what"] == KILLS and "count" in line)
    return in_sum(kills, *(_sum(proof.stated(), what) for what in (LOST, TWICE, RAN_TWICE)))


def in_sum(kills: int, lost: tuple[int, int], twice: tuple[int, int], again: tuple[int, int]) -> str:
    """The first paragraph: what was seen in all. Each pair is a count, and of how many."""
    return (
        "This page is made by a command that tries to break the daemon, and writes down what was seen from outside: "
        "what people wrote, what their chats showed, which commands left a trace. "
        f"The daemon was killed {kills:,} times. Of {lost[1]:,} messages {lost[0]:,} were lost and {twice[0]:,} taken "
        f"or answered twice; of {again[1]:,} commands {again[0]:,} ran twice. A message that was being sent in the "
        "moment of a death may be shown once more, marked as such; that is counted apart. Each table below names a "
        "kind of trouble, what was counted, in how many runs, how much is allowed (the bar), and whether that held."
    )


def _sum(lines: Iterable[Json], what: str) -> tuple[int, int]:
    mine = [line for line in lines if line["what"] == what and "value" in line]
    return int(sum(line["value"] for line in mine)), sum(line["of"] or 0 for line in mine)


def _faults(proof: Proof) -> list[str]:
    text = [line for fault in proof.faults if fault.tests for line in ("", *section(proof, fault))]
    untried = [f"- {fault.id}: {fault.trouble}. {fault.missing}".rstrip() for fault in proof.faults if not fault.tests]
    return [*text, *(["", UNTRIED, "", *untried] if untried else [])]


def section(proof: Proof, fault: Fault, seen: str = "") -> list[str]:
    """The heading and the table of one fault. `seen`: when that was not when the page was made."""
    mine = [row.cells() for row in proof.rows() if row.fault == fault.id]
    kills = sum(line["count"] for line in proof.stated() if line["what"] == KILLS and line["fault"] == fault.id)
    killed = f"{kills:,} kills." if kills else ""
    missing = f"Not tried yet: {fault.missing}" if fault.missing else ""
    said = " ".join(filter(None, (killed, missing, seen)))
    figures = table(("what", "runs", "figure", "bar", "held"), mine) if mine else ["No figure was stated."]
    return [f"## {fault.id}: {fault.trouble}", "", *([said, ""] if said else []), *figures]


def of_twins(proof: Proof) -> list[str]:
    """The red twins that were tried."""
    if not proof.twins:
        return []
    red = sum(one for _, _, one in proof.twins)
    lines = [(invariant, breaks, "yes" if one else NO) for invariant, breaks, one in sorted(proof.twins)]
    return [
        "",
        "## Red twins",
        "",
        f"Each breaks one invariant on a copy; a test must notice. {red} of {len(lines)} were noticed.",
        "",
        *table(("invariant", "what was broken", "noticed"), lines),
    ]
