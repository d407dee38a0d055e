"""Redaction of secrets: configured ones, and text with the form of one. Used wherever text is shown or logged.

The command on a card is the exception: only configured secrets are hidden there (`toolcalls.decide`), since approvers
must see what will run.
"""

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
    # of addresses, as `git remote -v` prints them: a password, or a token in place of a name
    r"(?<=://)(?a:[\w.~%!*'+-]{0,256}:[\w.~%!*'+-]{8,1024}|[\w.~%+-]{20,1024})(?=@)",
)
"""Forms of secrets from any source. The forms of a platform's tokens come from its channel."""
_LAST_WORDS_REVERSED = re.compile(r"[!-~]*(?:\s+[!-~]+)?")
"""Last word or two, matched on reversed text. Matched forwards, every word would be tried as the last but one."""
_FIRST_WORD = re.compile(r"[!-~]{1,2048}(?![!-~])")
_IN_WORD = re.compile(r"[!-~]*")
_UNESCAPED = ("", "/", "!'()*")
"""Characters that stay unescaped in URLs: by the strict rule, by Python, and by browsers."""
_ESCAPED = re.compile("%..")
_SURELY_SECRET = 16
"""Minimum characters from which any configured value is redacted."""
_MAYBE_SECRET = 8
"""Minimum characters from which a value is redacted when it does not look like a word, number, name or path."""
_IN_WORDS = frozenset(" -_./:")
_URL_SAFE = str.maketrans("+/", "-_")
HELD_BACK_AT_MOST = 4_096
"""Maximum characters without a break that are held back as a possible secret; no secret is longer."""
HIDDEN_AS_ONE = 2 * HELD_BACK_AT_MOST
"""Maximum length of a match that is kept in one piece. Cut after so many characters, its beginning still has the
form."""


def looks_secret(value: str) -> bool:
    """Return whether a configured value is redacted. Redacting a word such as `ollama` would mutilate every command
    with it.

    True from 16 characters on, or from 8 when letters and digits mix or a character is unusual in words.
    """
    if len(value) >= _SURELY_SECRET:
        return True
    letters, digits = any(c.isalpha() for c in value), any(c.isdigit() for c in value)
    unusual = any(not c.isalnum() and c not in _IN_WORDS for c in value)
    return len(value) >= _MAYBE_SECRET and (unusual or (letters and digits))


class Redactor:
    """Redactor of configured secrets, and of text with the form of one."""

    def __init__(self, secrets: Iterable[str] = (), forms: Iterable[str] = ()) -> None:
        """Compile the configured secrets, in all forms of `_encodings`, without ordinary words (see `looks_secret`).

        `forms`: regular expressions of further forms of secrets.
        """
        self._forms = re.compile("|".join([*forms, *_FORMS]))
        self._secrets = sorted(
            {one for s in secrets if looks_secret(s) for one in _encodings(s)}, key=len, reverse=True
        )
        self._known = re.compile("|".join(re.escape(s) for s in self._secrets)) if self._secrets else None

    def text(self, value: str) -> str:
        """Return the text with secrets redacted."""
        if self._known is not None:
            value = self._known.sub(HIDDEN, value)
        return self._forms.sub(HIDDEN, value)

    def pending(self, text: str, *, by_lines: bool = False) -> int:
        """Return how many characters at the end of an unfinished text must not be shown yet.

        Models write a secret in pieces, none of which reveals it alone. Three ends are held back. The first is a
        possible beginning of a configured secret. The second is the last two words, a token and its prefix, as only the
        form of a token is known. The third is any match that a cut would split. `by_lines`: a match of a form ends with
        its line.
        """
        end = text[-HELD_BACK_AT_MOST:]
        words = _LAST_WORDS_REVERSED.match(end[end.rfind("\n") + 1 :][::-1] if by_lines else end[::-1])
        cut = len(text) - max(words.end() if words else 0, self._prefix_length(text))
        looks = self._forms.finditer(text, max(0, cut - HIDDEN_AS_ONE))
        short = [one for one in looks if one.end() - one.start() <= HIDDEN_AS_ONE]
        return len(text) - _safe_cut([*self._known_in(text), *short], cut)

    def pending_known(self, text: str) -> int:
        """Return the same as `pending`, for configured secrets only."""
        cut = len(text) - self._prefix_length(text)
        return len(text) - (_safe_cut(self._known_in(text), cut) if cut < len(text) else cut)

    def may_wait(self, held: str, more: str) -> bool:
        """Return whether `held` plus `more` shows nothing before the word ends or becomes long.

        Lets the caller skip a check after each letter, which costs 0.2 ms.
        """
        return len(held) < HIDDEN_AS_ONE and _IN_WORD.fullmatch(more) is not None

    def begins_inside(self, text: str, *, in_line: bool = True) -> int:
        """Return how many characters at the beginning of a text may be the end of a secret that was cut there.

        These are its first word, whose form would no longer match, and the end of any configured secret.
        """
        word = _FIRST_WORD.match(text) if in_line else None
        ends = [_suffix_length(text, secret) for secret in self._secrets]
        return max([word.end() if word else 0, *ends])

    def _prefix_length(self, text: str) -> int:
        """Return how many characters at the end of a text may be the beginning of a configured secret."""
        return max((_prefix_length(text, secret) for secret in self._secrets), default=0)

    def _known_in(self, text: str) -> list[re.Match[str]]:
        return list(self._known.finditer(text)) if self._known is not None else []

    def known(self, value: str) -> tuple[str, int]:
        """Return the text with configured secrets redacted, and their number.

        Text with the form of a secret stays: a person who decides by this text must see all that others chose.
        """
        return self._known.subn(HIDDEN, value) if self._known is not None else (value, 0)

    def known_in(self, value: Any) -> tuple[Any, int]:
        """Return a JSON value with configured secrets redacted at any depth, and their number.

        Keys stay: two of them must not become one.
        """
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
        """Return the value with secrets redacted at any depth."""
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
        """Redact a log event, as the last structlog processor before rendering."""
        return {key: self.value(value) for key, value in event.items()}


def _encodings(secret: str) -> Iterator[str]:
    """Yield a secret as it is, and encoded for URLs, JSON, HTML, hexadecimal, base64 and Python.

    Base64 works after any prefix: only the characters that depend on the secret alone are used, if they are many.
    Base64 split over several lines is not recognised.
    """
    data = secret.encode(errors="surrogatepass")
    yield from (secret, data.decode("latin-1"), repr(data)[2:-1], data.hex(), html.escape(secret))
    for in_json in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield from (in_json, in_json.replace("/", r"\/"))
    for address in (*(quote(data, safe=safe) for safe in _UNESCAPED), quote_plus(data)):
        yield from (address, _ESCAPED.sub(lambda one: one[0].lower(), address))
    for before, dependent in enumerate((0, 2, 3)):
        encoded = base64.b64encode(bytes(before) + data).decode()
        encoded = encoded[dependent : 8 * (before + len(data)) // 6]
        yield encoded
        yield encoded.translate(_URL_SAFE)


def _safe_cut(secrets: list[re.Match[str]], cut: int) -> int:
    """Return the last position, up to `cut`, at which a text can be cut without splitting one of the secrets."""
    for found in sorted(secrets, key=lambda one: one.start(), reverse=True):
        if found.start() < cut < found.end():
            cut = found.start()
    return cut


def _suffix_length(text: str, secret: str) -> int:
    """Return how many characters at the beginning of the text are a proper suffix of the secret."""
    return next((n for n in range(len(secret) - 1, 0, -1) if text.startswith(secret[-n:])), 0)


def _prefix_length(text: str, secret: str) -> int:
    """Return how many characters at the end of the text are a proper prefix of the secret."""
    at = text.find(secret[0], max(0, len(text) - len(secret) + 1))
    while at >= 0 and not secret.startswith(text[at:]):
        at = text.find(secret[0], at + 1)
    return len(text) - at if at >= 0 else 0


READ_CHARS = 5_000
"""Characters read of a longer text; more than a redactor holds back."""


def redacted_line(text: str, limit: int, redactor: Redactor) -> str:
    """Return any text as one plain line without secrets, of at most `limit` characters."""
    if not text:
        return ""
    if len(text) > READ_CHARS:
        text = text[:READ_CHARS]
        text = text[: len(text) - redactor.pending(text)] or HIDDEN  # drop a secret that the cut has split
    hidden = redactor.text(text)
    # `plain` leaves spaces, and redaction runs again: removed characters must not join their neighbours to a secret.
    return cut(redactor.text(plain(hidden)), limit)
