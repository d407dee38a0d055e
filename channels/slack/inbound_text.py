"""Conversion of Slack's mrkdwn to plain text and Markdown. Used by `inbound`; linear in the text, never fails.

Slack sends typed `&`, `<` and `>` as `&amp;`, `&lt;` and `&gt;`; every other `<…>` is a name, a channel or a link:
`<@U0BB>`, `<#C0CC|general>`, `<!here>`, `<https://a.example|text>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_MARK = re.compile(r"<([^<>\n]{1,4000})>")
_ESCAPES = re.compile(r"&(amp|lt|gt);")
_ESCAPED = {"amp": "&", "lt": "<", "gt": ">"}
_AFTER_A_NAME = " \t\n,:;–—-\u00a0"
_SCHEMES = ("http://", "https://", "mailto:", "tel:")


def names(text: str, user: str) -> bool:
    """Return True if the message mentions this account."""
    return bool(user) and (f"<@{user}>" in text or f"<@{user}|" in text)


def plain(text: str) -> str:
    """Return a text as people read it: names with `@`, channels with `#`, links as Markdown, escapes decoded."""
    return _read(text, _link)


def said_to(text: str, user: str, name: str) -> str:
    """Return the text without mentions of the account.

    In a command, a link becomes its label: added markup would change what runs. A text that is only the mention stays.
    """
    rest = _without(text, user) if names(text, user) else text
    if not rest.strip():
        return f"@{name}" if names(text, user) else ""
    if rest.lstrip().startswith("/"):
        return _read(rest, _label).strip()
    return _read(rest, _link).strip()


def _without(text: str, user: str) -> str:
    """Remove the mention: at the start with all separators after it, elsewhere with one blank before it."""
    named = re.compile(rf"<@{re.escape(user)}(?:\|[^<>\n]{{0,200}})?>")
    begin = named.match(text.lstrip())
    if begin is not None:
        text = text.lstrip()[begin.end() :].lstrip(_AFTER_A_NAME)
    return re.sub(rf" ?{named.pattern}", "", text)


def _read(text: str, link: Callable[[str, str], str]) -> str:
    """Convert the notation, then decode escapes: decoded characters are no notation."""
    return unescaped(_MARK.sub(lambda match: _marked(match[1], link), text))


def unescaped(text: str) -> str:
    """Decode escapes in one pass: `&amp;lt;` is the text `&lt;`."""
    return _ESCAPES.sub(lambda match: _ESCAPED[match[1]], text)


def _marked(inside: str, link: Callable[[str, str], str]) -> str:
    target, bar, label = inside.partition("|")
    kind, rest = target[:1], target[1:]
    if kind == "@":
        return f"@{label.removeprefix('@') or rest}"
    if kind == "#":
        return f"#{label.removeprefix('#') or rest}"
    if kind == "!":
        return _special(rest, label)
    if target.startswith(_SCHEMES):
        return link(target, label)
    return label if bar and label else target


def _special(rest: str, label: str) -> str:
    """Return the text of `<!here>`, `<!subteam^S0AA|@cooks>` or `<!date^1392734382^{date}|Feb 18>`."""
    word, _, more = rest.partition("^")
    if word == "date":
        return label or more.partition("^")[0]
    if word == "subteam":
        return f"@{label.removeprefix('@') or more}"
    return f"@{label.removeprefix('@') or word}"


def _link(url: str, label: str) -> str:
    bare = url.removeprefix("mailto:").removeprefix("tel:")
    if not label or label == url:
        return bare
    # Links that Slack made by itself: `example.org` became `<http://example.org|example.org>`.
    if label == bare or url in (f"http://{label}", f"https://{label}"):
        return label
    return f"[{label}]({url})"


def _label(url: str, label: str) -> str:
    return label or url.removeprefix("mailto:").removeprefix("tel:")
