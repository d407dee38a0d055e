"""Markdown of models for Slack: pieces that are short enough and say the same, in which nobody is rung."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice

from channels.slack import markup, outbound, plain
from channels.slack.limits import TEXT_PARTS
from channels.slack.markup import SlackMarkup, safe
from channels.slack.plain import clean, escaped
from gateway.domain.text import visible
from tests.fuzz import givens

READS = (markup, plain)
WORDS = (
    *(b"```", b"```python\n", b"~~~", b"**", b"__", b"~~", b"*", b"_", b"`", b"[a](https://a.example)", b"![a](b)"),
    *(b"> ", b">> ", b"- ", b"1. ", b"  - ", b"# ", b"---\n", b"| a | b |\n|---|:-:|\n| 1 | 2 |\n", b"\\", b"&amp;"),
    *(b"<@U0ANN>", b"<!channel>", b"&lt;!here>", b"<#C0CC>", b"<https://a.example>", b"https://a.example/@x", b"@ann"),
    *(b"[", b"](", b")", b"[a]: https://a.example\n", b"- [ ] ", b"- [x] ", b"    ", b"\t", b"<b>", b"  \n", b"\\\n"),
    *(
        "👨‍👩‍👧‍👦".encode(),
        "🇩🇪".encode(),
        "é".encode(),
        "\u202e".encode(),
        b"\xef\xb8\x8f",
        b"999999999. ",
        b"&#60;&#33;channel",
    ),
)
ROOM = 3000
# No id of a person begins with another letter: `List<@NN String>` is Java.
_RINGS = re.compile(r"<(?:@[UWBS][A-Z0-9]|#[CGD][A-Z0-9]|!(?:channel|here|everyone|subteam|date|group))")


def target(data: bytes) -> None:
    text = "\n".join(givens.text(data).split("\n", outbound.LINES)[: outbound.LINES])
    text = text[: TEXT_PARTS * outbound.ROOM]  # a longer one becomes a file, and is not read
    shown = safe(text)
    assert not _RINGS.search(shown), "somebody is rung"
    at = len(text) // 3
    if "\r" not in text[: at + 1]:
        assert shown.startswith(safe(text[:at])), "a beginning becomes another"
    pieces = list(islice(_markup().split(shown, ROOM), 40))
    assert all(len(piece) <= ROOM for piece in pieces), "a message that is too long"
    if len(pieces) < 40:
        _says_the_same(shown, pieces)
    beginning = _markup().closed(clean(text))
    assert len(beginning) <= len(clean(text)) + 10
    found = _markup().output(text)
    assert found is None or len(found[1]) <= markup.BELOW_CHARS
    assert not _RINGS.search(escaped(text)), "somebody is rung"
    _markup().plain(text)


def _says_the_same(shown: str, pieces: list[str]) -> None:
    """Every word of it is in the pieces, in order; fences may be said again."""
    said = "".join("".join(pieces).split())
    at = 0
    for word in shown.split():
        bare = word.strip("`~>")
        if not bare or len(bare) > ROOM // 3:
            continue
        found = said.find(bare, at)
        assert found >= 0 or not visible(bare) or len(pieces) > 1, "a word was lost"
        at = max(at, found)


@cache
def _markup() -> SlackMarkup:
    return SlackMarkup()
