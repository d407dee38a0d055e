"""Redaction of secrets: configured ones, and text that looks like one. Used wherever text is shown or logged."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any, cast
from urllib.parse import quote, quote_plus

from gateway.domain.text import cut, plain

HIDDEN = "[hidden]"
_FORMS = (
    r"(?a:\bsk-[A-Za-z0-9_-]{16,})",  # keys of model providers
    r"(?i:bearer\s+)[A-Za-z0-9._~+/-]{16,}=*",
    r"#code=[A-Za-z0-9_-]+",  # of our own sign-in links
)
"""What looks like a secret wherever it comes from; the tokens of a platform are known to its channel."""
_LAST_WORDS_BACKWARDS = re.compile(r"[!-~]*(?:\s+[!-~]+)?")
"""In a text that is turned round: looked for from the front, every word would be tried as the last but one."""
_FIRST_WORD = re.compile(r"[!-~]{1,2048}(?![!-~])")
_IN_WORD = re.compile(r"[!-~]*")
_LEFT_AS_THEY_ARE = ("", "/", "!'()*")
"""Characters that are written in addresses as they are: by the strict, by Python, and by browsers."""
_ESCAPED = re.compile("%..")
_SURELY_SECRET = 16
"""Characters from which on any configured value is hidden."""
_MAYBE_SECRET = 8
"""Characters from which on a value is hidden when no word, number, name or path is written like it."""
_IN_WORDS = frozenset(" -_./:")
_FOR_ADDRESSES = str.maketrans("+/", "-_")
HELD_BACK_AT_MOST = 4_096
"""Characters without a break that are held back for what looks like a secret; none is longer."""
HIDDEN_AS_ONE = 2 * HELD_BACK_AT_MOST
"""Characters of what looks like a secret and goes on: cut after so many, its beginning still looks like one."""


def looks_secret(value: str) -> bool:
    """Return whether a configured value is hidden: of a word such as `ollama` every command that has it would be cut.

    It is with 16 characters, or with 8 of which some are letters and some digits, or one is unusual in words.
    """
    if len(value) >= _SURELY_SECRET:
        return True
    letters, digits = any(c.isalpha() for c in value), any(c.isdigit() for c in value)
    unusual = any(not c.isalnum() and c not in _IN_WORDS for c in value)
    return len(value) >= _MAYBE_SECRET and (unusual or (letters and digits))


class Redactor:
    """Takes secrets out of whatever is written: the configured ones, and what looks like one."""

    def __init__(self, secrets: Iterable[str] = (), forms: Iterable[str] = ()) -> None:
        """Know the configured secrets, also as addresses, JSON, base64 and the like have them; not those that are
        ordinary words (see `looks_secret`).

        `forms`: regular expressions of what else looks like one.
        """
        self._forms = re.compile("|".join([*forms, *_FORMS]))
        self._secrets = sorted({one for s in secrets if looks_secret(s) for one in _written(s)}, key=len, reverse=True)
        self._known = re.compile("|".join(re.escape(s) for s in self._secrets)) if self._secrets else None

    def text(self, value: str) -> str:
        """Return the text with secrets hidden."""
        if self._known is not None:
            value = self._known.sub(HIDDEN, value)
        return self._forms.sub(HIDDEN, value)

    def pending(self, text: str, *, by_lines: bool = False) -> int:
        """Return how many characters at the end of a text that goes on must not be shown yet.

        Models write a secret in pieces that betray none alone. So what could be the beginning of a configured one
        stays, exactly; so do the last two words (a token, and what announces it), since of those only the form is
        known; and what is hidden as a whole is not cut in two. `by_lines`: what looks like one ends with its line.
        """
        end = text[-HELD_BACK_AT_MOST:]
        words = _LAST_WORDS_BACKWARDS.match(end[end.rfind("\n") + 1 :][::-1] if by_lines else end[::-1])
        cut = len(text) - max(words.end() if words else 0, self._begun(text))
        looks = self._forms.finditer(text, max(0, cut - HIDDEN_AS_ONE))
        short = [one for one in looks if one.end() - one.start() <= HIDDEN_AS_ONE]
        return len(text) - _in_front([*self._known_in(text), *short], cut)

    def pending_known(self, text: str) -> int:
        """As `pending`, of configured secrets alone."""
        cut = len(text) - self._begun(text)
        return len(text) - (_in_front(self._known_in(text), cut) if cut < len(text) else cut)

    def may_wait(self, held: str, more: str) -> bool:
        """Whether of a text that is held, with `more` at its end, nothing is shown before the word ends, or is long.

        Looking at it with each of its letters costs 0.2 ms each.
        """
        return len(held) < HIDDEN_AS_ONE and _IN_WORD.fullmatch(more) is not None

    def begins_inside(self, text: str, *, in_line: bool = True) -> int:
        """Return how many characters at the beginning of a text may be the end of a secret, as it was cut there.

        That is its first word, of which only the form would be known, and the end of any configured one.
        """
        word = _FIRST_WORD.match(text) if in_line else None
        ends = [_ended(text, secret) for secret in self._secrets]
        return max([word.end() if word else 0, *ends])

    def _begun(self, text: str) -> int:
        """Return how many characters at the end of a text may be the beginning of a configured secret."""
        return max((_begun(text, secret) for secret in self._secrets), default=0)

    def _known_in(self, text: str) -> list[re.Match[str]]:
        return list(self._known.finditer(text)) if self._known is not None else []

    def known(self, value: str) -> tuple[str, int]:
        """Return the text with configured secrets hidden, and how many there were. What looks like one stays: whoever
        decides by this text must see all that others chose."""
        return self._known.subn(HIDDEN, value) if self._known is not None else (value, 0)

    def known_in(self, value: Any) -> tuple[Any, int]:
        """The same of what came of JSON, however deep. Keys stay: two must not become one."""
        if isinstance(value, str):
            return self.known(value)
        if isinstance(value, dict):
            of = {key: self.known_in(v) for key, v in cast("dict[str, Any]", value).items()}
            return {key: one for key, (one, _) in of.items()}, sum(count for _, count in of.values())
        if isinstance(value, list):
            found = [self.known_in(v) for v in cast("list[Any]", value)]
            return [one for one, _ in found], sum(count for _, count in found)
        return value, 0

    def value(self, value: Any) -> Any:
        """Return the value with secrets hidden, however deep they stand."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(k): self.value(v) for k, v in cast("dict[Any, Any]", value).items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.value(v) for v in cast("Iterable[Any]", value)]
        if value is None or isinstance(value, int | float):
            return value
        return self.text(str(value))

    def __call__(self, _logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Serve as the last processor before the line is written."""
        return {key: self.value(value) for key, value in event.items()}


def _written(secret: str) -> Iterator[str]:
    """A secret as it is, and as it is written in addresses, JSON, HTML, hexadecimal and base64, and by Python.

    Of base64, whatever stands before it: only those characters that nothing beside it has a part in, if they are many.
    What is base64 on several lines is not known again.
    """
    data = secret.encode(errors="surrogatepass")
    yield from (secret, data.decode("latin-1"), repr(data)[2:-1], data.hex(), html.escape(secret))
    for in_json in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield from (in_json, in_json.replace("/", r"\/"))
    for address in (*(quote(data, safe=safe) for safe in _LEFT_AS_THEY_ARE), quote_plus(data)):
        yield from (address, _ESCAPED.sub(lambda one: one[0].lower(), address))
    for before, not_its_own in enumerate((0, 2, 3)):
        encoded = base64.b64encode(bytes(before) + data).decode()
        encoded = encoded[not_its_own : 8 * (before + len(data)) // 6]
        yield encoded
        yield encoded.translate(_FOR_ADDRESSES)


def _in_front(secrets: list[re.Match[str]], cut: int) -> int:
    """The last place, not behind `cut`, at which a text can be cut without cutting one of the secrets in two."""
    for found in sorted(secrets, key=lambda one: one.start(), reverse=True):
        if found.start() < cut < found.end():
            cut = found.start()
    return cut


def _ended(text: str, secret: str) -> int:
    """How many characters at the beginning of the text are the end of the secret, but not all of it."""
    return next((n for n in range(len(secret) - 1, 0, -1) if text.startswith(secret[-n:])), 0)


def _begun(text: str, secret: str) -> int:
    """How many characters at the end of the text are the beginning of the secret, but not all of it."""
    at = text.find(secret[0], max(0, len(text) - len(secret) + 1))
    while at >= 0 and not secret.startswith(text[at:]):
        at = text.find(secret[0], at + 1)
    return len(text) - at if at >= 0 else 0


READ_CHARS = 5_000
"""Of a text that is too long; more than a redactor holds back."""


def redacted_line(text: str, limit: int, redactor: Redactor) -> str:
    """Make any text one plain line without secrets, of at most `limit` characters."""
    if len(text) > READ_CHARS:
        text = text[:READ_CHARS]
        text = text[: len(text) - redactor.pending(text)] or HIDDEN  # no half of a secret that was cut in two
    hidden = redactor.text(text)
    # By spaces, and looked at once more: what is taken out must not join what stood around it to something secret.
    return cut(redactor.text(plain(hidden)), limit)
