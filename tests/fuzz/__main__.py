"""`python -m tests.fuzz [PARSER …] --seconds N --seed S`: fuzzes, and keeps every input that breaks a parser."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz import corpus
from tests.fuzz.engine import Failure, Parser, Report, fuzz
from tests.fuzz.parsers import PARSERS


def main() -> int:
    """Return 1 when something broke."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument("parser", nargs="*", choices=[[], *PARSERS], help="which; all when none is named")
    options.add_argument("--seconds", type=float, default=60, help="for each parser")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", action="store_true", help="also keep what reaches new lines, up to 40 files")
    given = options.parse_args()
    broken = 0
    for name in given.parser or PARSERS:
        parser = PARSERS[name]
        report = fuzz(parser, given.seconds, given.seed, lambda one, parser=parser: say(told(parser, one)))
        say(line(name, report))
        broken += len(report.failures)
        if given.keep:
            keep(name, report)
    return 1 if broken else 0


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def told(parser: Parser, found: Failure) -> str:
    """Keep an input that broke a parser, and say what it did."""
    file = corpus.keep(parser.name, found.data)
    return (
        f"{parser.name}: {found.what}\n{found.trace}\n"
        f"The input is kept as {file.relative_to(corpus.FOLDER.parents[2])} ({len(found.data)} bytes): "
        f"{found.data[:200]!r}\nTry it again: pytest tests/fuzz/test_corpus.py -k {parser.name}"
    )


def line(name: str, report: Report) -> str:
    """One line of the table at the end."""
    rate = report.runs / report.seconds if report.seconds else 0
    return (
        f"{name:20} {report.runs:9,} inputs {rate:8,.0f}/s  {report.reached:4} of {report.of:4} lines"
        f"  {len(report.failures)} faults"
    )


def keep(name: str, report: Report) -> None:
    """Keep inputs that reached lines first, as long as there is room and they are short."""
    room = corpus.KEPT_AT_MOST - len(corpus.read(name))
    short = [one for one in report.useful if 0 < len(one) <= corpus.KEPT_BYTES and one not in corpus.read(name)]
    for one in short[: max(room, 0)]:
        corpus.keep(name, one)


if __name__ == "__main__":
    sys.exit(main())
