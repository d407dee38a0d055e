"""Folded turns: all rows of an ended turn in one compressed value, and in the place of each row a pointer to it.

A pointer is compared and replaced like a row, so that nothing but loading rows knows of it: a row that changes is
written in full again. The value is never changed; it goes with the row of its turn.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from importlib.resources import files

from gateway.domain.ids import TurnId
from gateway.domain.turns import ENDED
from gateway.errors import StoreDamaged
from gateway.store.codec import to_us
from gateway.store.constants import UNDECIDED
from gateway.store.kernel.part import Part
from gateway.store.kernel.retention import is_settled
from gateway.store.kernel.rows import TurnRow
from gateway.store.redis import indexes
from gateway.store.redis.queries import source_of
from gateway.store.redis.rows import CARDS, MESSAGE, SLOT, STEP, TURN, WAIT, kind_of
from gateway.store.redis.source import RedisSource

FOLD = "fold"
POINTER = ">"
"""Begins a pointer, in the place of a row's text; the turn follows."""
VERSION = "1"
"""Begins a folded value: the words with which it was compressed."""
AT_ONCE = 20
"""Turns that one commit folds."""
LATER = timedelta(hours=1)
"""When to look again at a turn of which something is not settled yet."""
_ROW, _TEXT = "\x1e", "\x1f"
"""Separators: no JSON text has them."""


def words() -> bytes:
    """Return text that most turns have, for the compression. Never changed: values of all times need it."""
    return files("gateway.store.redis").joinpath(f"fold_words_{VERSION}.txt").read_bytes()


def fold_key(turn: str) -> str:
    """Return the key of a folded turn."""
    return f"{FOLD}:{turn}"


def packed(rows: Mapping[str, str]) -> str:
    """Return rows, as texts by key, as one value."""
    text = _ROW.join(f"{key}{_TEXT}{row}" for key, row in rows.items())
    compressor = zlib.compressobj(level=9, wbits=-15, zdict=words())
    data = compressor.compress(text.encode()) + compressor.flush()
    return VERSION + base64.b85encode(data).decode()


def unpacked(value: str) -> dict[str, str]:
    """Return the texts of rows by key. Raises `StoreDamaged`."""
    try:
        data = base64.b85decode(value.removeprefix(VERSION))
        text = zlib.decompressobj(wbits=-15, zdict=words()).decompress(data).decode()
    except (ValueError, zlib.error) as error:
        raise StoreDamaged(f"A folded turn in Redis cannot be read: {error}.") from error
    return dict(_pair(row) for row in text.split(_ROW))


def _pair(row: str) -> tuple[str, str]:
    key, _, text = row.partition(_TEXT)
    return key, text


def expanded(
    keys: Sequence[str], values: Sequence[str | None], get: Callable[[Sequence[str]], Sequence[str | None]]
) -> list[str | None]:
    """Return stored values with rows in the place of pointers. `get` reads folded turns, by their keys.

    None for a row whose turn was removed since its pointer was read.
    """
    turns = {value: turn for value in values if value is not None and (turn := _pointed_at(value))}
    if not turns:
        return list(values)
    named = list(dict.fromkeys(turns.values()))
    folds = zip(named, get([fold_key(turn) for turn in named]), strict=True)
    rows = {turn: {} if fold is None else unpacked(fold) for turn, fold in folds}
    return [_expanded(key, value, rows, turns) for key, value in zip(keys, values, strict=True)]


def _pointed_at(value: str) -> str:
    """Return the turn to which a stored value points; empty for a row."""
    text = value.partition(" ")[2]
    return text.removeprefix(POINTER) if text.startswith(POINTER) else ""


def _expanded(
    key: str, value: str | None, rows: Mapping[str, Mapping[str, str]], turns: Mapping[str, str]
) -> str | None:
    if value is None or value not in turns:
        return value
    text = rows[turns[value]].get(key)
    return None if text is None else f"{value.partition(' ')[0]} {text}"


# --- folding --------------------------------------------------------------------------------


def fold(part: Part, before: datetime) -> int:
    """Fold turns that ended before a time and whose slots and waits are settled. Return how many were looked at."""
    source = source_of(part)
    turns = source.until(indexes.UNFOLDED, to_us(before), AT_ONCE)
    rows = {row.turn.id: row for row in source.rows(TURN, [TurnId(one) for one in turns])}
    settled = {id_: _texts(source, row) for id_, row in rows.items() if _is_settled(source, row)}
    for turn in turns:  # all rows are read: from here on nothing is asked again
        if (texts := settled.get(TurnId(turn))) is not None:
            source.batch.folded.update(dict.fromkeys(texts, f"{POINTER}{turn}"))
            source.batch.commands.append(("SET", fold_key(turn), packed(texts)))
        if turn in rows and texts is None:
            source.batch.commands.append(("ZADD", indexes.UNFOLDED, to_us(part.now + LATER), turn))
        else:
            source.batch.commands.append(("ZREM", indexes.UNFOLDED, turn))
    return len(turns)


def _is_settled(source: RedisSource, row: TurnRow) -> bool:
    waits, slots = source.rows(WAIT, row.waits), source.rows(SLOT, row.slots)
    settled = all(one.wait.state not in UNDECIDED for one in waits) and all(map(is_settled, slots))
    return row.turn.state in ENDED and settled


def _texts(source: RedisSource, row: TurnRow) -> dict[str, str]:
    """Return the rows of a turn as texts, by key."""
    keys = [TURN.key(row.turn.id), *_keys_of(row)]
    found = zip(keys, source.named(keys), strict=True)
    return {key: kind_of(key).dump(one) for key, one in found if one is not None}


def _keys_of(row: TurnRow) -> Iterable[str]:
    yield from (MESSAGE.key(one) for one in row.inputs)
    yield from (STEP.key((row.turn.id, n)) for n in range(row.steps))
    yield from (key for one in row.waits for key in (WAIT.key(one), CARDS.key(one)))
    yield from (SLOT.key(one) for one in row.slots)
