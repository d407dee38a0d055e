"""`./run fuzz [PARSER …]`: give odd inputs to every parser of foreign data, and keep each one that breaks it.

    ./run fuzz                       each parser for a minute
    ./run fuzz --seconds 600         for ten, as `./run test --large` does
    ./run fuzz --seed 7              the same inputs as when it said seed 7
    ./run fuzz --json FILE           the figures too; `./run proof --fuzz FILE` puts them on its page

A parser that raises an undocumented error, or takes more than a second of CPU time or half a gigabyte of memory, is
named, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.system.clock import SystemClock
from tests.fuzz import corpus
from tests.fuzz.engine import LIMIT_S, MEMORY_AT_MOST_MB, Failure, Parser, Report, fuzz
from tests.fuzz.parsers import PARSERS
from tests.prove import commit, machine


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; leave with words when it cannot be used."""
    options = argparse.ArgumentParser(
        prog="./run fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("parser", nargs="*", help=f"which; all when none is named. There are: {', '.join(PARSERS)}")
    options.add_argument("--seconds", type=float, default=60, help="for each parser (60)")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", action="store_true", help="also keep what reaches new lines, up to 40 files")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file too")
    given = options.parse_args(arguments)
    if unknown := [name for name in given.parser if name not in PARSERS]:
        options.error(f"there is no parser {', '.join(unknown)}; there are: {', '.join(PARSERS)}")
    return given


def main(arguments: Sequence[str]) -> int:
    """Fuzz what was asked for. Return the exit code."""
    given = parsed(arguments)
    reports: dict[str, Report] = {}
    for name in given.parser or PARSERS:
        parser = PARSERS[name]
        report = fuzz(parser, given.seconds, given.seed, lambda one, parser=parser: say(told(parser, one)))
        reports[name] = report
        say(line(name, report))
        if given.keep:
            keep(name, report)
        if given.json:
            found = as_json(reports, given.seed)
            given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if all(report.held for report in reports.values()) else 1


def as_json(reports: Mapping[str, Report], seed: int) -> dict[str, Any]:
    """The figures for `--json`, with their bars."""
    return {
        "date": SystemClock().now().date().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "seed": seed,
        "known": len(PARSERS),
        "limit_s": LIMIT_S,
        "memory_mb": MEMORY_AT_MOST_MB,
        "parsers": [
            {
                "parser": name,
                "seconds": report.seconds,
                "inputs": report.runs,
                "reached": report.reached,
                "of": report.of,
                "uncaught": sorted(what for what, one in report.failures.items() if not one.slow),
                "slow": sum(one.slow for one in report.failures.values()),
                "slowest_s": report.slowest_s,
                "peak_mb": report.peak_mb,
                "held": report.held,
            }
            for name, report in reports.items()
        ],
    }


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
        f"  slowest {report.slowest_s:.3f} s  {report.peak_mb:4.0f} MB  {len(report.failures)} faults"
    )


def keep(name: str, report: Report) -> None:
    """Keep inputs that reached lines first, as long as there is room and they are short."""
    room = corpus.KEPT_AT_MOST - len(corpus.read(name))
    short = [one for one in report.useful if 0 < len(one) <= corpus.KEPT_BYTES and one not in corpus.read(name)]
    for one in short[: max(room, 0)]:
        corpus.keep(name, one)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
