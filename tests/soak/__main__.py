"""`./run soak`: one daemon for an hour, with people who never stop writing and trouble that never ends.

    ./run soak                       an hour: seven kills, and one life that is long enough to see what grows
    ./run soak --minutes 1440        a day
    ./run soak --faster 4            four messages a second, and four times the trouble: four hours' worth of an hour
    ./run soak --seed 7              the same people, presses and troubles as when it said seed 7
    ./run soak --json FILE           every figure, life and sample; `./run proof --soak FILE` puts it on its page

Figures that miss their bar are named at the end, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from gateway.system.clock import SystemClock
from tests.prove import commit, machine
from tests.soak.bars import Life, Outcome
from tests.soak.samples import Slope
from tests.soak.soak import Plan, faster, soaked
from tests.support.bytecode import have_bytecode
from tests.support.proof_page import short

FASTEST = 8
"""Messages a second. At twelve an owner says more than is answered meanwhile: what waits 2 s for a press, or a second
for the model, does not become faster.
"""
HEAD = ("life", "minutes", "RSS MB/h", "PSS MB/h", "RSS", "children", "fds", "tasks", "threads", "WAL MB", "store MB")


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; leave with words when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="./run soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="how long people write (default: 60)")
    parser.add_argument("--faster", type=float, default=1.0, help=f"messages a second, at most {FASTEST} (default: 1)")
    parser.add_argument("--seed", type=int, help="of everything random (default: another one each time)")
    parser.add_argument("--json", type=Path, help="write the figures to a file too")
    parser.add_argument("--folder", type=Path, help="a folder on the disk that is used (default: the temporary one)")
    options = parser.parse_args(arguments)
    if not 0.5 <= options.minutes <= 10_080:
        parser.error("--minutes: write a number between 0.5 and 10080 (a week)")
    if not 1 <= options.faster <= FASTEST:
        parser.error(f"--faster: write a number between 1 and {FASTEST}")
    if options.seed is not None and options.seed < 0:
        parser.error("--seed: write a whole number that is not negative")
    return options


async def soak(options: argparse.Namespace, seed: int) -> Outcome:
    """Soak, say how far it is on standard error, and tell everything before the fakes are closed."""
    began = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:7.0f} s  {text}\n")
        sys.stderr.flush()

    plan = faster(Plan(minutes=options.minutes, seed=seed), options.faster)
    made = Path(mkdtemp(prefix="dragoman-soak-", dir=options.folder))
    say(f"seed {seed}, {plan.minutes:g} minutes, {plan.per_s:g} messages a second, in {made}")
    async with soaked(plan, made, say) as outcome:
        tell(outcome)
        if options.json:
            found = outcome.as_json({"date": date(), "commit": commit(), "machine": machine()})
            options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if outcome.misses():
        say(f"what it left stays in {made}: its store, its workspaces, and a log of each life")
    else:
        shutil.rmtree(made)
    return outcome


def tell(outcome: Outcome) -> None:
    """Print the lives, the counts, and every figure with its bar."""
    lines = [HEAD, *(cells(life) for life in outcome.lives)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    counts = ", ".join(f"{what} {count:,}" for what, count in outcome.counts.items())
    misses = "; ".join(bar.what for bar in outcome.misses()) or "none"
    told = [bar.told() for bar in outcome.bars]
    print(*table, "", f"kills {outcome.kills}, {counts}", "", *told, "", f"Missed: {misses}.", sep="\n", flush=True)


def cells(life: Life) -> tuple[str, ...]:
    """A life as a line of the table."""

    def of(slope: Slope) -> str:
        return f"{slope.an_hour:+.2f} ± {slope.error:.2f}" if slope.over_s else ""

    return (
        str(life.life),
        f"{life.over_s / 60:.1f}",
        of(life.rss),
        of(life.pss),
        short(life.rss_mb),
        short(life.with_children_mb),
        str(life.most_descriptors),
        str(life.most_tasks),
        str(life.most_threads),
        short(life.wal_mb),
        short(life.database_mb),
    )


def date() -> str:
    """Today."""
    return SystemClock().now().date().isoformat()


def main(arguments: Sequence[str]) -> int:
    """Soak for as long as was asked for; return the exit code."""
    options = parsed(arguments)
    have_bytecode()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    outcome = asyncio.run(soak(options, seed))
    return 1 if outcome.misses() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
