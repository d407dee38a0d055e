"""Conversion of Slack's notation: names, channels, links, escapes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.slack.inbound_text import names, plain, said_to, unescaped


def escaped(text: str) -> str:
    """Return typed text as Slack escapes it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("a &lt;b&gt; &amp; c", "a <b> & c"),
        ("&amp;lt;", "&lt;"),
        ("<@U0ANN>", "@U0ANN"),
        ("<@U0ANN|ann>", "@ann"),
        ("<#C0HALL|hall> <#C0HALL|> <#C0HALL>", "#hall #C0HALL #C0HALL"),
        ("<!here> <!channel> <!everyone|everyone>", "@here @channel @everyone"),
        ("<!subteam^S0COOKS|@cooks> <!subteam^S0COOKS>", "@cooks @S0COOKS"),
        ("<!date^1392734382^{date}|Feb 18, 2014>", "Feb 18, 2014"),
        ("<!date^1392734382^{date}>", "1392734382"),
        ("<https://example.org/a?b=1&amp;c=2>", "https://example.org/a?b=1&c=2"),
        ("<https://example.org|the page>", "[the page](https://example.org)"),
        ("<http://example.org|example.org>", "example.org"),
        ("<mailto:bob@example.org|bob@example.org>", "bob@example.org"),
        ("<tel:+123|call>", "[call](tel:+123)"),
        ("<whatever|is this>", "is this"),
        ("*bold* `code` ~no~", "*bold* `code` ~no~"),
        ("<>", "<>"),
        ("a < b", "a < b"),
    ],
)
def test_notation_is_read(sent: str, meant: str) -> None:
    assert plain(sent) == meant


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_typed_text_arrives_unchanged(text: str) -> None:
    assert plain(escaped(text)) == text
    assert unescaped(escaped(text)) == text


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("<@U0ME> hello", "hello"),
        ("  <@U0ME|drago>: hello <@U0ME>!", "hello!"),
        ("hello <@U0ME>", "hello"),
        ("<@U0ME>", "@drago"),
        ("<@U0ME>   ", "@drago"),
        ("<@U0ME> /status", "/status"),
        ("<@U0ME> /shell ping <http://example.org|example.org>", "/shell ping example.org"),
        ("<@U0ME> /shell curl <https://example.org/a|here>", "/shell curl here"),
        ("<@U0ME> see <https://example.org/a|here>", "see [here](https://example.org/a)"),
        ("<@U0MEX> hello", "@U0MEX hello"),
        ("hello", "hello"),
        ("", ""),
        ("&lt;@U0ME&gt; hello", "<@U0ME> hello"),
    ],
)
def test_the_own_name_is_left_out(sent: str, meant: str) -> None:
    assert said_to(sent, "U0ME", "drago") == meant


@given(st.text())
def test_nothing_that_is_typed_becomes_a_command_or_a_mention(text: str) -> None:
    assert not names(escaped(text), "U0ME")
    said = said_to(escaped(text), "U0ME", "drago")
    assert said.startswith("/") == text.strip().startswith("/")


@pytest.mark.parametrize("unit", ["<", "<@U0ME>", "<a|", "&amp;", "<!date^", "<<", " <@U0ME"])
def test_reading_a_text_takes_linear_time(unit: str) -> None:
    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        began = time.thread_time()
        said_to(text, "U0ME", "drago")
        return time.thread_time() - began

    assert min(seconds(64_000) for _ in range(3)) < 0.2
