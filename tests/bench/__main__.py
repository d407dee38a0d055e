"""`./run bench`: measure the budgets of gateway/ARCHITECTURE.md, each beside a floor in the same run.

Rows run one after the other, each with daemons and floors of its own as child processes, SQLite on a real disk. Rows
that miss their budget are named, those that a decision allows apart. The exit code is 0; with `--strict` it is 1
after a miss that no decision allows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from gateway.system.clock import SystemClock
from tests.bench.figures import HEAD, Figure, table
from tests.bench.rows import ROWS
from tests.bench.world import TINY, Counts, open_bench
from tests.prove import commit, machine
from tests.support.bytecode import have_bytecode


async def run_rows(
    names: Sequence[str], counts: Counts, folder: Path | None, against: Path | None = None
) -> AsyncGenerator[tuple[str, list[Figure]]]:
    """Yield each row's figures when it is done. A row that breaks raises: a bench that cannot measure is an error."""
    async with open_bench(counts, folder, against) as bench:
        for name in names:
            yield name, list(await ROWS[name](bench))


def chosen(options: argparse.Namespace) -> list[str]:
    """The rows that were asked for, in the table's order."""
    if options.only:
        return [name for name in ROWS if name in options.only]
    asked = {"install": options.install, "against": options.against is not None}
    return [name for name in ROWS if asked.get(name, True)]


async def bench(options: argparse.Namespace) -> list[Figure]:
    """Measure, saying on standard error how far it is."""
    found: list[Figure] = []
    began = time.perf_counter()
    counts = TINY if options.tiny else Counts()
    async for name, figures in run_rows(chosen(options), counts, options.folder, options.against):
        print(f"{time.perf_counter() - began:6.1f} s  {name}", file=sys.stderr, flush=True)
        found += figures
    return found


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(ROWS), help="this row; may be repeated")
    parser.add_argument("--json", type=Path, help="write the figures to a file too")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 when a budget is missed that no decision allows to miss"
    )
    parser.add_argument("--install", action="store_true", help="measure a fresh installation too (slow)")
    parser.add_argument("--against", type=_checkout, help="measure the daemon of another checkout beside this one's")
    parser.add_argument("--tiny", action="store_true", help="a few of each: only to see that the rows run")
    parser.add_argument("--folder", type=Path, help="a folder on the disk to be measured (default: the temporary one)")
    options = parser.parse_args()
    if "against" in (options.only or ()) and options.against is None:
        parser.error("the row `against` needs another checkout: --against FOLDER")
    return options


def _checkout(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / "gateway" / "__main__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text} is no checkout of Dragoman: it has no gateway/__main__.py")
    return path


def as_json(figures: Sequence[Figure]) -> dict[str, Any]:
    """Return the measurements with their place and subject, for `--json`."""
    return {
        "date": SystemClock().now().date().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "figures": [figure.as_json() for figure in figures],
    }


def main() -> int:
    """Measure and print; return the exit code."""
    options = parsed()
    have_bytecode()
    figures = asyncio.run(bench(options))
    print("\n".join(table([HEAD, *(figure.cells() for figure in figures)])))
    missed = [figure.what for figure in figures if figure.holds == "NO"]
    cores, load = os.cpu_count(), os.getloadavg()[0]
    print(f"\n{cores} cores, load {load:.1f}. Missed: {'; '.join(missed) or 'none'}.")
    if decided := [f"{figure.what} {figure.holds}" for figure in figures if figure.holds.startswith("decided")]:
        print(f"Missed as far as a decision allows: {'; '.join(decided)}.")
    if options.json:
        options.json.write_text(json.dumps(as_json(figures), indent=1) + "\n")
    return 1 if missed and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
