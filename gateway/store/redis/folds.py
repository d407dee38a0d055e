"""Folded turns: all rows of an ended turn in one compressed value, and in the place of each row a pointer to it.

A pointer is compared and replaced like a row, so that nothing but loading rows knows of it: a row that changes is
written in full again. The value is never changed; it goes with the row of its turn. It is text, as every value is, with
seven bits of the compressed rows in each character.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
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
from gateway.store.redis.long_queues import with_sections
from gateway.store.redis.queries import source_of
from gateway.store.redis.rows import CARDS, MESSAGE, SLOT, STEP, TURN, WAIT, kind_of
from gateway.store.redis.source import RedisSource

FOLD = "fold"
POINTER = ">"
"""Begins a pointer, in the place of a row's text; the turn follows, unless the key of the row names it."""
VERSION, BASE85 = "2", "1"
"""Begin a folded value: seven bits in a character, and the form of before. The words are the same."""
_BYTES, _CHARACTERS = 7, 8
"""Bytes, and the characters that encode them."""
AT_ONCE = 20
"""Turns that one commit folds."""
LATER = timedelta(hours=1)
"""Delay before the next check of a turn that is not settled yet."""
_ROW, _TEXT = "\x1e", "\x1f"
"""Separators: no JSON text has them."""


@cache
def words() -> bytes:
    """Return text that most turns have, for the compression. Never changed: values of all times need it."""
    return files("gateway.store.redis").joinpath("fold_words_1.txt").read_bytes()


def fold_key(turn: str) -> str:
    """Return the key of a folded turn."""
    return f"{FOLD}:{turn}"


def packed(rows: Mapping[str, str]) -> str:
    """Return rows, as texts by key, as one value."""
    text = _ROW.join(f"{key}{_TEXT}{row}" for key, row in rows.items())
    compressor = zlib.compressobj(level=9, wbits=-15, zdict=words())
    data = compressor.compress(text.encode()) + compressor.flush()
    return VERSION + _as_text(data)


def unpacked(value: str) -> dict[str, str]:
    """Return the texts of rows by key. Raises `StoreDamaged`."""
    try:
        data = base64.b85decode(value[1:]) if value.startswith(BASE85) else _as_bytes(value[1:])
        text = zlib.decompressobj(wbits=-15, zdict=words()).decompress(data).decode()
    except (ValueError, zlib.error) as error:
        raise StoreDamaged(f"A folded turn in Redis cannot be read: {error}.") from error
    return dict(_pair(row) for row in text.split(_ROW))


def _as_text(data: bytes) -> str:
    """Return seven bits in each character. Zeros fill the last ones, which have no character of their own."""
    left, text = -len(data) % _BYTES, bytearray()
    for start in range(0, len(data), _BYTES):
        bits = int.from_bytes(data[start : start + _BYTES].ljust(_BYTES, b"\0"), "big")
        text += bytes(bits >> place & 127 for place in range(49, -1, -7))
    return text[: len(text) - left].decode()


def _as_bytes(text: str) -> bytes:
    """Return the input of `_as_text`."""
    left, data = -len(text) % _CHARACTERS, bytearray()
    for start in range(0, len(text), _CHARACTERS):
        bits = 0
        for character in text[start : start + _CHARACTERS].ljust(_CHARACTERS, "\0"):
            bits = bits << 7 | ord(character)
        data += bits.to_bytes(_BYTES, "big")
    return bytes(data[: len(data) - left])


def _pair(row: str) -> tuple[str, str]:
    key, _, text = row.partition(_TEXT)
    return key, text


def expanded(
    keys: Sequence[str], values: Sequence[str | None], get: Callable[[Sequence[str]], Sequence[str | None]]
) -> list[str | None]:
    """Return stored values with rows in the place of pointers, and queues whole. `get` reads more values by their keys.

    None for a row whose turn was removed since its pointer was read.
    """
    pairs = list(zip(keys, values, strict=True))
    turns = {key: turn for key, value in pairs if value is not None and (turn := _pointed_at(key, value))}
    if not turns:
        return with_sections(values, get)
    named = list(dict.fromkeys(turns.values()))
    folds = zip(named, get([fold_key(turn) for turn in named]), strict=True)
    rows = {turn: {} if fold is None else unpacked(fold) for turn, fold in folds}
    return with_sections([_expanded(key, value, rows, turns) for key, value in pairs], get)


def _pointer(key: str, turn: str) -> str:
    """Return a pointer to a turn, in the place of the row with this key."""
    return POINTER if _turn_in(key) == turn else f"{POINTER}{turn}"


def _pointed_at(key: str, value: str) -> str:
    """Return the turn to which a stored value points; empty for a row."""
    text = value.partition(" ")[2]
    return (text.removeprefix(POINTER) or _turn_in(key)) if text.startswith(POINTER) else ""


def _turn_in(key: str) -> str:
    """Return the turn that the key of a turn, of its step, or of the slot of its answer names."""
    kind, _, name = key.partition(":")
    return name.removeprefix("o").partition(".")[0] if kind == SLOT.name else name.partition("/")[0]


def _expanded(
    key: str, value: str | None, rows: Mapping[str, Mapping[str, str]], turns: Mapping[str, str]
) -> str | None:
    if value is None or key not in turns:
        return value
    text = rows[turns[key]].get(key)
    return None if text is None else f"{value.partition(' ')[0]} {text}"


# --- folding --------------------------------------------------------------------------------


def fold(part: Part, before: datetime) -> int:
    """Fold turns that ended before a time and whose slots and waits are settled. Return the number examined."""
    source = source_of(part)
    turns = source.until(indexes.UNFOLDED, to_us(before), AT_ONCE)
    rows = {row.turn.id: row for row in source.rows(TURN, [TurnId(one) for one in turns])}
    settled = {id_: texts for id_, row in rows.items() if _is_settled(source, row) and (texts := _texts(source, row))}
    for turn in turns:  # all rows are read: from here on nothing is asked again
        if (texts := settled.get(TurnId(turn))) is not None:
            source.batch.folded.update({key: _pointer(key, turn) for key in texts})
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
    """Return the rows of a turn as texts, by key; nothing when one is damaged."""
    keys = [TURN.key(row.turn.id), *_keys_of(row)]
    found = list(zip(keys, source.readable(keys), strict=True))
    if any(map(source.batch.damage_of, keys)):
        return {}
    return {key: kind_of(key).dump(one) for key, one in found if one is not None}


def _keys_of(row: TurnRow) -> Iterable[str]:
    yield from (MESSAGE.key(one) for one in row.inputs)
    yield from (STEP.key((row.turn.id, n)) for n in range(row.steps))
    yield from (key for one in row.waits for key in (WAIT.key(one), CARDS.key(one)))
    yield from (SLOT.key(one) for one in row.slots)
