"""Markdown of models for Telegram: text and formatting that Telegram takes, in messages that are short enough."""

from __future__ import annotations

from functools import cache

from channels.telegram import formatted_text, markdown_scan, markup
from channels.telegram.formatted_text import FormattedText, clean, entities, split, units
from channels.telegram.limits import ENTITIES, TEXT_UNITS
from channels.telegram.markdown_scan import closed, output
from channels.telegram.markup import TelegramMarkup, linkable
from channels.telegram.outbound import SOURCE_CHARS, SOURCE_LINES
from gateway.domain.text import visible
from tests.fuzz import givens
from tests.fuzz.parsers.slack_markdown import WORDS as WORDS

READS = (markup, formatted_text, markdown_scan)
MESSAGES = 4


def target(data: bytes) -> None:
    text = "\n".join(givens.text(data).split("\n", SOURCE_LINES)[:SOURCE_LINES])[:SOURCE_CHARS]  # longer: a file
    for quiet in (False, True):
        found, _whole = _markup().beginning(text, messages=MESSAGES, quiet=quiet)
        _check(found)
        for n, part in enumerate(split(found, TEXT_UNITS)):
            _check(part)
            assert units(part.text) <= TEXT_UNITS
            assert len(part.spans) <= ENTITIES
            assert visible(part.text)
            if n > MESSAGES:
                break
    closed(text)
    shown = output(text)
    assert shown is None or shown[0] in text


@cache
def _markup() -> TelegramMarkup:
    return TelegramMarkup()


def _check(found: FormattedText) -> None:
    is_tidy = clean(found.text) == found.text and found.text == found.text.strip()
    assert is_tidy or found.spans or not visible(found.text), (
        "blanks around a text"
    )  # of what nobody sees, no part is sent
    size = units(found.text)
    last = (-1, 0)
    for span in found.spans:
        assert 0 <= span.start < span.end <= len(found.text), "formatting of nothing"
        assert (span.start, -span.end) >= last, "formatting out of order"
        last = (span.start, -span.end)
        assert span.kind != "text_link" or linkable(span.url), "a link that Telegram refuses"
    for entity in entities(found)[:200]:
        assert entity["length"] > 0
        assert entity["offset"] + entity["length"] <= size
