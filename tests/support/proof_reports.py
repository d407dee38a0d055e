"""Reports of other commands, as parts of the page that `./run proof` writes. No part of the path of a message.

Each takes what the command wrote with `--json`, and is empty without. Above them what they share: a table in Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]
NO = "**NO**"


# --- the soak -------------------------------------------------------------------------------------


def of_soak(soak: Json | None) -> list[str]:
    """The lives of the daemon of `./run soak`."""
    if soak is None:
        return []
    messages = soak["counts"]["messages"]
    lines = [
        (
            str(life["life"]),
            short(life["over_s"] / 60),
            _slope(life["rss"]),
            short(life["rss_mb"]),
            short(life["most_descriptors"]),
            short(life["most_tasks"]),
            short(life["wal_mb"]),
            short(life["database_mb"]),
        )
        for life in soak["lives"]
    ]
    head = ("life", "minutes", "memory, MB an hour", "most MB", "descriptors", "tasks", "log MB", "store MB")
    return [
        "",
        "## The soak",
        "",
        f"{short(soak['minutes'])} minutes, {messages:,} messages{_hours_worth(soak)}, {soak['kills']:,} kills, seed "
        f"{soak['seed']}; made on {soak['date']}, commit {soak['commit']}, {soak['machine']}. Its figures stand above, "
        "at F31. These are the lives of the daemon: how its memory grew once it was warm, for each hour of a message a "
        "second (the slope and its standard error; none for a life that was too short to have one), and the most that "
        "it ever held.",
        "",
        *table(head, lines),
    ]


def _hours_worth(soak: Json) -> str:
    """Return the equivalent hours at one message a second, if people wrote faster."""
    per_s = soak.get("per_s", 1)
    hours = short(soak["minutes"] * per_s / 60)
    return "" if per_s == 1 else f" at {short(per_s)} a second, as many as {hours} hours have at one a second"


def _slope(slope: Json) -> str:
    return f"{slope['an_hour']:+.2f} ± {slope['error']:.2f}" if slope["over_s"] else ""


# --- fuzzing --------------------------------------------------------------------------------------


def of_fuzz(fuzz: Json | None) -> list[str]:
    """The parsers of `./run fuzz`."""
    if fuzz is None:
        return []
    lines = [
        (
            one["parser"],
            short(one["seconds"]),
            short(one["inputs"]),
            f"{one['reached']:,} of {one['of']:,}",
            short(len(one["uncaught"])),
            short(one["slow"]),
            f"{one['slowest_s']:.3f}",
            short(round(one["peak_mb"])),
            "yes" if one["held"] else NO,
        )
        for one in fuzz["parsers"]
    ]
    limit, most = f"{fuzz['limit_s']:g}", short(fuzz["memory_mb"])
    head = ("parser", "s", "inputs", "lines reached", "faults", f"over {limit} s", "slowest, s", "peak MB", "held")
    return [
        "",
        "## Fuzzing",
        "",
        f"{len(lines)} of {fuzz['known']} parsers of what others wrote, seed {fuzz['seed']}; {_made(fuzz)}. A fault is "
        "anything raised that is not documented, or a promise that was not kept. The bars: no fault, no input that "
        f"takes more than {limit} s of processor time, and at most {most} MB of memory.",
        "",
        *table(head, lines),
    ]


def fuzz_misses(fuzz: Json | None) -> list[str]:
    """Return the misses; empty when everything holds."""
    return [
        f"fuzzing {one['parser']}: {len(one['uncaught'])} faults, {one['slow']} inputs that took too long, "
        f"{one['peak_mb']:.0f} MB of memory"
        for one in (fuzz["parsers"] if fuzz else ())
        if not one["held"]
    ]


# --- mutants --------------------------------------------------------------------------------------


def of_mutants(mutants: Json | None) -> list[str]:
    """The areas of `./run mutants`."""
    if mutants is None:
        return []
    lines = [
        (
            f"{one['area']}, chosen by chance of {one['sampled_from']:,}" if one["sampled_from"] else one["area"],
            short(one["killed"]),
            short(one["killed"] + one["survived"]),
            short(one["equivalent"]),
            f"{one['score']:.1%}",
            "yes" if one["good"] else NO,
        )
        for one in mutants["areas"]
    ]
    return [
        "",
        "## Mutants",
        "",
        f"What decides, changed one thing at a time on a copy; {_made(mutants)}. Its tests must notice "
        f"{mutants['bar']:.0%}. `tests/mutants.toml` asks more of some areas. It also lists changes that nobody can "
        "notice, with the reason; they count as neither.",
        "",
        *table(("area", "noticed", "of", "equivalent", "share", "held"), lines),
    ]


def mutants_misses(mutants: Json | None) -> list[str]:
    """Return the misses; empty when everything holds."""
    areas = mutants["areas"] if mutants else ()
    return [
        f"mutants of {one['area']}: {one['score']:.1%} of {one['killed'] + one['survived']} were noticed, and "
        f"{one['stale']} exceptions are none any more"
        for one in areas
        if not one["good"]
    ]


# --- budgets --------------------------------------------------------------------------------------


def of_bench(bench: Json | None) -> list[str]:
    """The budgets of `./run bench`."""
    if bench is None:
        return []
    lines = [
        (
            str(line["what"]),
            f"{short(line['value'])} {line['unit']}".strip(),
            "" if line["floor"] is None else short(line["floor"]),
            _budget(line),
            NO if line["holds"] == "NO" else str(line["holds"]),
        )
        for line in bench["figures"]
    ]
    made = f"Made on {bench['date']}, commit {bench['commit']}, {bench['machine']}."
    return ["", "## Budgets", "", made, "", *table(("what", "figure", "floor", "budget", "holds"), lines)]


def _budget(line: Json) -> str:
    """Return the budget: alone, as a multiple of the floor, and by a decision."""
    if line["budget"] is None:
        return ""
    decided: Json | None = line.get("decided")
    more = [
        f"{short(line['times'])} × the floor" if line.get("times") else "",
        f"decision {decided['number']}: {short(decided['times'])} × the {decided['of']}" if decided else "",
    ]
    said = f"{'≥' if line['at_least'] else '≤'} {short(line['budget'])}"
    return f"{said} ({'; '.join(filter(None, more))})" if any(more) else said


# --- what they share ------------------------------------------------------------------------------


def _made(found: Json) -> str:
    return f"made on {found['date']}, commit {found['commit']}, {found['machine']}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    rows = [head, ["---"] * len(head), *lines]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]


def short(value: float) -> str:
    """A number with as many digits as anybody reads."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) < 100 else f"{value:.0f}"
