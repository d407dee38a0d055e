"""Long queues of a session on Redis: sections of its unended turns are values of their own, which never change.

So one more turn behind ten thousand writes a short row. In the row, the name of a section stands in the place of its
turns. A section that is in no row any more stays for a while: who read the row before that may still read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from gateway.domain.ids import TurnId, mint
from gateway.errors import StoreDamaged
from gateway.store.codec import dump_plain, load_json
from gateway.store.kernel.rows import SessionRow, changed
from gateway.store.redis.rows import NAME, SESSION, TURNS_OF_SESSION

SECTION = "section"
AT_ONCE = 100
"""Turns of a section."""
LONG = 2 * AT_ONCE
"""Turns that stand in a row itself, before, behind or between sections at most."""
STAYS = timedelta(minutes=10)
"""Lifetime of a section after the last row named it."""


@dataclass(frozen=True, slots=True)
class Section:
    """Some turns that stand one behind the other in a queue."""

    name: str
    turns: tuple[TurnId, ...]


def section_key(name: str) -> str:
    """Return the key of a section."""
    return f"{SECTION}:{name}"


def laid_out(turns: tuple[TurnId, ...], before: Sequence[Section]) -> tuple[tuple[TurnId, ...], tuple[Section, ...]]:
    """Return the turns as they stand in a row, and all sections of them: as many as possible are those of before."""
    if len(turns) <= LONG:
        return turns, ()
    words, sections, at = list[TurnId](), list[Section](), 0
    for section in before:
        first = _place(turns, section, at)
        if first is not None:
            _lay(turns[at:first], words, sections)
            _add(section, words, sections)
            at = first + len(section.turns)
    _lay(turns[at:], words, sections)
    return tuple(words), tuple(sections)


def _place(turns: tuple[TurnId, ...], section: Section, at: int) -> int | None:
    """Return the index of a whole section, at this place or later."""
    try:
        first = turns.index(section.turns[0], at)
    except ValueError:
        return None
    return first if turns[first : first + len(section.turns)] == section.turns else None


def _lay(turns: tuple[TurnId, ...], words: list[TurnId], sections: list[Section]) -> None:
    while len(turns) > LONG:
        _add(Section(mint(""), turns[:AT_ONCE]), words, sections)
        turns = turns[AT_ONCE:]
    words += turns


def _add(section: Section, words: list[TurnId], sections: list[Section]) -> None:
    words.append(TurnId(f"{NAME}{section.name}"))
    sections.append(section)


def dumped(row: SessionRow, words: tuple[TurnId, ...]) -> str:
    """Return the stored form of a session with sections, without its stamp."""
    return f"{NAME}{SESSION.dump(changed(row, turns=words))}"


# --- reading --------------------------------------------------------------------------------


def with_sections(
    values: Sequence[str | None], get: Callable[[Sequence[str]], Sequence[str | None]]
) -> list[str | None]:
    """Return stored values; those of sessions with the turns of each section behind its name.

    `get` reads sections, by their keys. Raises `StoreDamaged` when one is missing.
    """
    whole = list(values)
    for place, value in enumerate(values):
        stamp, _, text = (value or "").partition(" ")
        if not text.startswith(NAME):
            continue
        row = load_json(text.removeprefix(NAME))
        names = [word.removeprefix(NAME) for word in row[TURNS_OF_SESSION].split() if word.startswith(NAME)]
        turns = dict(zip(names, get([section_key(name) for name in names]), strict=True))
        if missing := [name for name in names if turns[name] is None]:
            raise StoreDamaged(f"Turns of a queue in Redis are missing: {section_key(missing[0])}.")
        words = [f"{word} {turns.get(word.removeprefix(NAME)) or ''}" for word in row[TURNS_OF_SESSION].split()]
        row[TURNS_OF_SESSION] = " ".join(words)
        whole[place] = f"{stamp} {dump_plain(row)}"
    return whole


def sections_in(text: str) -> tuple[Section, ...]:
    """Return the sections of a session whose turns were read."""
    if NAME not in text:
        return ()
    _, *parts = str(load_json(text)[TURNS_OF_SESSION]).split(NAME)
    read = (part.split() for part in parts)
    return tuple(Section(name, tuple(map(TurnId, turns[:AT_ONCE]))) for name, *turns in read)
