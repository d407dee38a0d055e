"""Makes odd inputs of known ones: JSON by its structure, everything else by its bytes. A seed makes the same ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeAlias, cast

from tests.fuzz.corpus import LONGEST

Place: TypeAlias = "tuple[dict[str, Any] | list[Any], str | int]"

HOLE = "<hole>"
"""Stands in JSON for what `json` cannot write: a value that is nested as deep as a parser may read."""
DEEP = (2, 30, 250, 300, 900, 940, 960, 970, 975, 980, 985, 990, 5000)
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, -(2**63) - 1, 10**30, 10**400),
    *(0.5, -0.0, 1e308, math.inf, math.nan),
    *("", " ", "0", "-1", "null", "\x00", "\ud800", "\udfff x", "\ud83d", "😀", "\u202eabc", "\u2028", "e\u0301" * 40),
    *("a" * 300, "/" * 5000, "x" * 70_000, "٣", "１", "\ufeff", "\r\n", "`" * 200, "<" * 500, "&lt;!channel>"),
    *([], {}, [[]], [None], [{}], {"": None}, [1, "a", {}], {"id": {}}, list(range(300))),
)
BYTES = (
    *(b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\xaf", b"\n", b"\r", b"\r\n", b"\n\n", b" ", b"\t"),
    *(b"[", b"]", b"{", b"}", b'"', b"'", b"\\", b"<", b">", b"&", b":", b",", b"=", b"*", b"_", b"`", b"#", b"|"),
    *(b"\\u0000", b"\\ud800", b"1e999", b"9" * 400, b"9" * 5000, b"-", b"0x", b"\xf0\x9f\x98\x80", b"\xe2\x80\xae"),
)


class Mutator:
    """Makes inputs of `known`, which may grow meanwhile; `words` are those that mean something to the parser."""

    def __init__(self, random: Random, known: list[bytes], words: Sequence[bytes], longest: int = LONGEST) -> None:
        """Take at least one known input, and how many bytes are made at most."""
        self.known = known
        self._longest = longest
        self._random = random
        self._words = (*words, *BYTES)
        self._on_bytes: tuple[Callable[[bytes], bytes], ...] = (
            *(self._flipped, self._inserted, self._inserted, self._deleted, self._copied),
            *(self._repeated, self._crossed, self._cut),
        )
        self._on_json: tuple[Callable[[Any, Sequence[Place]], None], ...] = (
            *(self._dropped, self._odd, self._odd, self._odd, self._retyped, self._doubled, self._renamed),
            *(self._swapped, self._spliced, self._spliced, self._longer, self._holed),
        )

    def made(self) -> bytes:
        """Return the next input."""
        data = self._random.choice(self.known)
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 3, 6))):
            # Cut each time: what is repeated twice would be megabytes of JSON, and the parser would be blamed for them.
            data = self._changed(data)[: self._longest]
        return data

    def nested(self, data: bytes, depth: int) -> bytes:
        """Return JSON in which one value is nested so deep; what is no JSON stays as it is."""
        begin, end, value = self._json(data)
        places = _places(value)
        if not places:
            return data
        self._holed(value, places)
        return data[:begin] + self._written(value, depth) + data[end:]

    def _changed(self, data: bytes) -> bytes:
        if self._random.random() < 0.7:
            begin, end, value = self._json(data)
            if places := _places(value):
                self._random.choice(self._on_json)(value, places)
                return data[:begin] + self._written(value, self._random.choice(DEEP)) + data[end:]
        return self._random.choice(self._on_bytes)(data)

    # --- JSON -----------------------------------------------------------------------------------

    def _json(self, data: bytes) -> tuple[int, int, Any]:
        """Find JSON: all of it, or what begins in one of its lines; where it begins and ends, and the value."""
        starts = [0] if data[:1] in (b"{", b"[") else []
        at = self._random.choice([0, *(n + 1 for n, byte in enumerate(data[:20_000]) if byte == 10)])
        found = [place for mark in (b"{", b"[") if (place := data.find(mark, at)) >= 0]
        for start in (*starts, *([min(found)] if found else [])):
            text = data[start:].decode("utf-8", "surrogateescape")
            try:
                value, length = json.JSONDecoder().raw_decode(text)
            except (ValueError, RecursionError):
                continue
            return start, start + len(text[:length].encode("utf-8", "surrogateescape")), value
        return 0, 0, None

    def _written(self, value: Any, depth: int) -> bytes:
        ascii_only = self._random.random() < 0.6
        try:
            text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        except (RecursionError, ValueError):
            return b"{}"
        opens, closes = self._random.choice(((b"[", b"]"), (b'{"a":', b"}")))
        return text.replace(f'"{HOLE}"'.encode(), opens * depth + b"1" + closes * depth)

    def _dropped(self, _: Any, places: Sequence[Place]) -> None:
        holder, key = self._random.choice(places)
        del cast("Any", holder)[key]

    def _odd(self, _: Any, places: Sequence[Place]) -> None:
        self._set(places, self._random.choice(ODD))

    def _holed(self, _: Any, places: Sequence[Place]) -> None:
        self._set(places, HOLE)

    def _retyped(self, _: Any, places: Sequence[Place]) -> None:
        holder, key = place = self._random.choice(places)
        value = cast("Any", holder)[key]
        kinds: tuple[Any, ...] = ([value], {"a": value}, str(value)[:1000], bool(value), 7, 7.5)
        self._set([place], self._random.choice(kinds))

    def _doubled(self, _: Any, places: Sequence[Place]) -> None:
        holder, key = self._random.choice(places)
        if isinstance(holder, list):
            holder += [holder[cast("int", key)]] * self._random.choice((1, 2, 30, 200))
        else:
            holder[self._key(places)] = holder[cast("str", key)]

    def _renamed(self, _: Any, places: Sequence[Place]) -> None:
        holder, key = self._random.choice(places)
        if isinstance(holder, dict):
            holder[self._key(places)] = holder.pop(cast("str", key))

    def _swapped(self, _: Any, places: Sequence[Place]) -> None:
        holder, key = self._random.choice(places)
        self._set(places, json.loads(json.dumps(cast("Any", holder)[key])))

    def _spliced(self, _: Any, places: Sequence[Place]) -> None:
        others = _places(self._json(self._random.choice(self.known))[2])
        if others:
            holder, key = self._random.choice(others)
            self._set(places, cast("Any", holder)[key])
            mine, _key = self._random.choice(places)
            if isinstance(mine, dict) and isinstance(key, str):
                mine[key] = cast("Any", holder)[key]

    def _longer(self, _: Any, places: Sequence[Place]) -> None:
        holder, key = place = self._random.choice(places)
        value = cast("Any", holder)[key]
        if isinstance(value, str):
            word = self._random.choice(self._words).decode("utf-8", "replace")
            at = self._random.randint(0, len(value))
            times = self._random.choice((1, 1, 2, 100, 10_000))
            self._set([place], value[:at] + (word or "x") * min(times, 20_000 // (len(word) or 1) + 1) + value[at:])
        elif isinstance(value, int):
            self._set([place], value + self._random.choice((-1, 1, 10**9)))

    def _key(self, places: Sequence[Place]) -> str:
        names = [key for _, key in places if isinstance(key, str)]
        return self._random.choice([*names, self._random.choice(self._words).decode("utf-8", "replace")])

    def _set(self, places: Sequence[Place], value: Any) -> None:
        holder, key = self._random.choice(places)
        if isinstance(holder, list) and cast("int", key) >= len(holder):
            return
        cast("Any", holder)[key] = value

    # --- bytes ----------------------------------------------------------------------------------

    def _span(self, data: bytes, most: int = 64) -> tuple[int, int]:
        begin = self._random.randint(0, len(data))
        return begin, min(len(data), begin + self._random.randint(1, self._random.choice((2, 8, most))))

    def _flipped(self, data: bytes) -> bytes:
        begin, _ = self._span(data)
        return (
            data[:begin] + bytes([data[begin] ^ (1 << self._random.randrange(8))]) + data[begin + 1 :]
            if (begin < len(data))
            else data
        )

    def _inserted(self, data: bytes) -> bytes:
        begin, _ = self._span(data)
        return data[:begin] + self._random.choice(self._words) + data[begin:]

    def _deleted(self, data: bytes) -> bytes:
        begin, end = self._span(data)
        return data[:begin] + data[end:]

    def _copied(self, data: bytes) -> bytes:
        begin, end = self._span(data)
        at, _ = self._span(data)
        return data[:at] + data[begin:end] + data[at:]

    def _repeated(self, data: bytes) -> bytes:
        """Say a piece again and again: what takes longer than in proportion shows here."""
        begin, end = self._span(data, 16)
        piece = data[begin:end] if self._random.random() < 0.5 else self._random.choice(self._words)
        if self._random.random() < 0.3:
            piece += self._random.choice(self._words)
        whole = self._random.choice((100, 1000, 4000, 16_000, self._longest))
        return data[:begin] + piece * (whole // (len(piece) or 1)) + data[begin:]

    def _crossed(self, data: bytes) -> bytes:
        other = self._random.choice(self.known)
        return data[: self._span(data)[0]] + other[self._span(other)[0] :]

    def _cut(self, data: bytes) -> bytes:
        return data[: self._span(data)[0]]


def _places(value: Any) -> list[Place]:
    """Every place in a JSON value where another value can be put, up to 2,000 of them."""
    found: list[Place] = []
    waiting: list[Any] = [value] if isinstance(value, dict | list) else []
    while waiting and len(found) < 2000:
        one = waiting.pop()
        keys: list[str | int] = list(cast("dict[str, Any]", one)) if isinstance(one, dict) else list(range(len(one)))
        found += [(one, key) for key in keys]
        waiting += [one[key] for key in keys if isinstance(one[key], dict | list)]
    return found
