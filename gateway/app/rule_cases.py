"""Comparison of an owner's expected decisions with those that the decider makes. For `dragoman rules test`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from config.rule_cases import RuleCase
from gateway.domain.text import one_line
from gateway.toolcalls.explanation import Explanation

SHOWN_CHARS = 200
"""Characters of a case's text in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCase:
    """Case whose decision or reason is another one than expected."""

    case: RuleCase
    found: Explanation

    def lines(self) -> Iterator[str]:
        """Yield expectation and result, for people."""
        case, found = self.case, self.found
        shown = f"{case.tool} {one_line(case.text, SHOWN_CHARS)}".strip()
        place = f"in {case.session or case.kind.value}{f' with preset {case.preset}' if case.preset else ''}"
        yield f"{case.where}: {shown} {place}"
        yield f"  expected: {case.decision}{f', because: {case.because}' if case.because else ''}"
        yield f"  actual:   {found.decision}, because: {one_line(found.because, SHOWN_CHARS)}"
        for n, step in enumerate(found.order, 1):
            yield f"    {n}. {one_line(step, SHOWN_CHARS)}"


def failed(cases: Iterable[RuleCase], explain: Callable[[RuleCase], Explanation]) -> Iterator[FailedCase]:
    """Yield each case that is not decided as expected."""
    for case in cases:
        found = explain(case)
        if found.decision != case.decision or case.because not in f"{found.because} {found.rule}":
            yield FailedCase(case=case, found=found)
