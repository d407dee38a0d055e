"""In Slack's older notation only an address of the web or of mail becomes a link; any other is shown as text."""

from __future__ import annotations

import pytest

from channels.slack.markup import Markup

MARKUP = Markup()


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("[here](https://example.org/a)", "<https://example.org/a|here>"),
        ("[here](slack://channel?id=C1)", "here (slack://channel?id=C1)"),
        ("[here](ftp://example.org)", "here (ftp://example.org)"),
        ("[here](//example.org)", "here (//example.org)"),
        ("![here](tel:112)", "here (tel:112)"),
    ],
)
def test_a_link_leads_to_the_web_or_is_none(markdown: str, shown: str) -> None:
    assert MARKUP.mrkdwn(markdown) == shown


@pytest.mark.parametrize("markdown", ["[here](javascript:alert)", "[here](data:text/html,x)", "[here](file:///etc)"])
def test_what_could_run_or_read_is_no_link(markdown: str) -> None:
    assert "<" not in MARKUP.mrkdwn(markdown)
