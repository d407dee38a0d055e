from __future__ import annotations

import base64
import contextlib
import html
import io
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.slack import settings as slack
from channels.telegram import settings as telegram
from gateway.system.logging_setup import OF_OURS, TOLD_AGAIN_S, TOLD_AT_MOST, LogThrottle, log, set_up_logs
from gateway.system.metrics import Metrics
from gateway.system.redaction import HELD_BACK_AT_MOST, HIDDEN, Redactor
from tests.support.proof import examples

CANARIES = {
    "telegram": "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
    "slack bot": "xoxb-17653672481-19874698323-pdFZKVeTuE8sk7oOcHrzqqgy",
    "slack app": "xapp-1-A0123456789-1234567890123-abcdef0123456789",
    "model": "sk-proj-4f9aB7cDe8FgHiJkLmNoPq",
    "bearer": "Bearer abcdef0123456789.ABCDEF/x+y==",
    "link": "http://127.0.0.1:8470/#code=Zm9vYmFyYmF6cXV4",
    "configured": "correct horse battery",
}
IN_ADDRESS = {**CANARIES, "telegram": f"bot{CANARIES['telegram']}"}
"""Form of a token in a URL: Telegram's is a part of the path."""
PLAIN = {**CANARIES, "bearer": "abcdef0123456789.ABCDEF/x+y==", "link": "Zm9vYmFyYmF6cXV4"}


FORMS = (*telegram.SECRETS, *slack.SECRETS)
"""Forms of the platforms' tokens, as passed to the daemon."""


@pytest.fixture
def redactor() -> Redactor:
    return Redactor([CANARIES["configured"], "short", ""], FORMS)


@pytest.mark.parametrize("kind", CANARIES)
@pytest.mark.parametrize("frame", ["{}", "before {} after", '{{"token": "{}"}}', "{}\nnext line", "({})", "x={}&y=1"])
def test_secret_is_redacted_in_any_frame(redactor: Redactor, kind: str, frame: str) -> None:
    hidden = redactor.text(frame.format(CANARIES[kind]))

    assert PLAIN[kind] not in hidden
    assert HIDDEN in hidden


@pytest.mark.parametrize("kind", ["telegram", "slack bot", "slack app", "configured"])
def test_token_is_redacted_inside_a_word(redactor: Redactor, kind: str) -> None:
    assert PLAIN[kind] not in redactor.text(f"https://api.example.org/bot{CANARIES[kind]}/getMe")


@pytest.mark.parametrize("before", ["密钥是", "é", "ключ", "api_key=", "/"])
def test_key_is_redacted_after_a_letter_no_key_has(redactor: Redactor, before: str) -> None:
    assert redactor.text(f"{before}{CANARIES['model']}") == f"{before}{HIDDEN}"


@pytest.mark.parametrize("kind", CANARIES)
def test_secret_is_redacted_at_any_depth(redactor: Redactor, kind: str) -> None:
    class Odd:
        def __repr__(self) -> str:
            return f"<Odd {secret}>"

    secret = CANARIES[kind]
    value: dict[Any, Any] = {
        "list": [secret, {"deeper": (secret, {secret})}],
        secret: "as a key",
        "object": Odd(),
        "error": ValueError(f"bad token {secret}"),
        "bytes": secret.encode(),
    }

    assert PLAIN[kind] not in repr(redactor.value(value))


def test_ordinary_text_is_not_redacted(redactor: Redactor) -> None:
    plain: dict[str, Any] = {
        "text": "short, 12:30, sk-1, risk-free, task-force-of-seventeen, bearer of news",
        "n": 1,
        "f": 0.5,
        "b": True,
        "none": None,
        "list": ["a"],
    }

    assert redactor.value(plain) == plain


def test_nested_secrets_are_redacted_whole() -> None:
    assert Redactor(["secret42", "secret42-and-more"]).text("secret42-and-more secret42") == f"{HIDDEN} {HIDDEN}"


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ("", False),
        ("ollama", False),
        ("llama3", False),
        ("lm-studio", False),
        ("not-needed", False),
        ("Open_Router.ai", False),
        ("12345678", False),
        ("2026-11-24", False),
        ("ключ-доступа", False),
        ("hunter2", False),
        ("hunter22", True),
        ("token-abc123", True),
        ("correct!horse", True),
        ("fifteen-letters", False),
        ("sixteen--letters", True),
        ("1234567890123456", True),
    ],
)
def test_configured_value_is_redacted_unless_a_word(value: str, hidden: bool) -> None:
    text = f"pip install {value} && {value} --serve"
    assert Redactor([value]).known(text) == ((text.replace(value, HIDDEN), 2) if hidden else (text, 0))
    assert (Redactor([value]).text(text) != text) == hidden


def test_configured_secret_is_not_a_pattern() -> None:
    assert Redactor(["a.b*c(d1"]).text("aXbbc(d1 a.b*c(d1") == f"aXbbc(d1 {HIDDEN}"


ODD = 'p√ss: "word"/+\\?'


@pytest.mark.parametrize("secret", ["correct horse battery", ODD, CANARIES["telegram"], "pass1234"])
def test_secret_is_redacted_in_any_encoding(secret: str) -> None:
    redactor = Redactor([secret])
    data = secret.encode()
    addresses = [quote(secret, safe=""), quote(secret), quote(secret, safe="!'()*"), quote_plus(secret)]
    in_json = json.dumps(secret)[1:-1]
    for written in (
        *addresses,
        *(re.sub("%..", lambda one: one[0].lower(), one) for one in addresses),
        *(in_json, in_json.replace("/", r"\/"), json.dumps(secret, ensure_ascii=False)[1:-1]),
        *(data.decode("latin-1"), repr(data)[2:-1], data.hex(), html.escape(secret)),
    ):
        assert redactor.text(f"x={written}&y") == f"x={HIDDEN}&y"


def test_secret_with_surrogates_is_redacted() -> None:
    """A variable with bytes that are not UTF-8 yields one; its reader refuses it."""
    assert Redactor(["abcdef\udcffgh"]).text("x abcdef\udcffgh y") == f"x {HIDDEN} y"


@pytest.mark.parametrize("encoded", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
@pytest.mark.parametrize("after", ["", "x", "xy", "xyz"])
@pytest.mark.parametrize("secret", ["correct horse battery", ODD, "???>>>~~~"])
def test_secret_is_redacted_in_base64_at_any_offset(
    encoded: Callable[[bytes], bytes], before: str, after: str, secret: str
) -> None:
    """Form of a password in a header. At each end, one character shared with its neighbour may stay."""
    whole = encoded(f"{before}{secret}{after}".encode()).decode()
    shown = Redactor([secret]).text(whole)
    assert HIDDEN in shown
    assert len(whole) - len(shown.replace(HIDDEN, "")) >= len(secret.encode()) * 8 // 6 - 1


# --- streamed text ----------------------------------------------------

SECRETS = [
    "correct horse battery staple",
    "密码是 开门吧！42",
    "abab-abab-abab-abab",
    "two\nlines\nof it",
    "correct horse cart",
]


@pytest.mark.parametrize(
    ("text", "pending"),
    [
        ("", 0),
        ("the", 3),
        ("it is the", 6),
        ("it is the ", 4),
        ("你好世界", 0),
        ("你好，correct horse bat", 17),
        ("so it is correct ", 8),
        ("so correct horse battery stapl", 27),
        ("so correct horse c", 15),
        ("so correct horse battery staple", 28),  # redacted as a whole, so it is not split
        ("世界 密码是 开", 5),
        ("世界 密码是", 3),
        ("世界 two\nlines\no", 11),
        ("x abab-abab-abab-aba", 20),
        ("see Bearer abcdef0123456789 and more 你", 0),
    ],
)
def test_possible_beginning_of_a_secret_is_pending(text: str, pending: int) -> None:
    assert Redactor(SECRETS).pending(text) == pending


def shown_in_pieces(redactor: Redactor, pieces: Iterable[str]) -> str:
    """Return the text shown of a streamed text, the rest at its end."""
    held, out = "", ""
    for piece in pieces:
        held += piece
        cut = len(held) - redactor.pending(held)
        out, held = out + redactor.text(held[:cut]), held[cut:]
    return out + redactor.text(held)


@given(st.lists(st.sampled_from([*SECRETS, *CANARIES.values(), "a", "你", " ", "\n", "correct ", "horse", "abab-"])))
@settings(deadline=None, max_examples=examples(200))
def test_streamed_text_equals_redacted_whole(parts: list[str]) -> None:
    redactor = Redactor([*SECRETS, CANARIES["configured"]], FORMS)
    text = " ".join(parts)

    assert shown_in_pieces(redactor, text) == redactor.text(text)
    assert shown_in_pieces(redactor, [text[i : i + 7] for i in range(0, len(text), 7)]) == redactor.text(text)


def test_unbroken_text_is_shown_except_a_begun_secret() -> None:
    redactor = Redactor(SECRETS)
    long = "x" * (HELD_BACK_AT_MOST + 1)

    assert redactor.pending(long) == HELD_BACK_AT_MOST
    assert redactor.pending("你" + long[1:]) == HELD_BACK_AT_MOST
    assert redactor.pending(long[len("correct") :] + "correct") == HELD_BACK_AT_MOST
    assert shown_in_pieces(redactor, (long + SECRETS[0])) == long + HIDDEN
    # A secret that overlaps itself must not be held back for ever.
    assert shown_in_pieces(Redactor(["ab1" * 3]), "ab1" * 300) == HIDDEN * 100


@pytest.mark.parametrize("kind", CANARIES)
@pytest.mark.parametrize("step", [7, 5_000])
@pytest.mark.sampled(1)
def test_secret_before_a_long_word_is_not_streamed(redactor: Redactor, kind: str, step: int) -> None:
    """The examined window continues after it: seen from there, the secret would only be a suffix."""
    text = f'See {CANARIES[kind]}","data":"{"A" * 3 * HELD_BACK_AT_MOST} done.'

    shown = shown_in_pieces(redactor, (text[at : at + step] for at in range(0, len(text), step)))

    assert shown == redactor.text(text)
    assert HIDDEN in shown


def test_endless_token_is_redacted_while_it_may_be_one(redactor: Redactor) -> None:
    assert redactor.pending("sk-" + "A" * 2 * HELD_BACK_AT_MOST) == HELD_BACK_AT_MOST
    shown = shown_in_pieces(redactor, ["sk-", *["A" * 16] * (3 * HELD_BACK_AT_MOST // 16)])
    assert shown.startswith(HIDDEN)
    assert "sk-" not in shown


def test_longer_secret_with_same_prefix_is_awaited() -> None:
    redactor = Redactor(["hook-of-bob7", "hook-of-bob7-9f8e7d"])
    assert redactor.pending_known("see hook-of-bob7") == len("hook-of-bob7")
    assert redactor.pending_known("see hook-of-bob7-9f8e7d ") == 0
    assert redactor.pending_known("see hook-of-bob7-hook") == len("hook")


def fail(error: Exception, *, because: Exception) -> None:
    raise error from because


# --- the sink -----------------------------------------------------------------------------------


@pytest.fixture
def sink(redactor: Redactor) -> Iterator[io.StringIO]:
    """Set up logs as the daemon does; restore everything after the test."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    was = structlog.get_config()
    structlog.contextvars.clear_contextvars()
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        set_up_logs("debug", redactor)
        yield stderr
    structlog.configure(**was)
    root.handlers[:], root.level = before, level
    for ours in OF_OURS:
        logging.getLogger(ours).setLevel(logging.NOTSET)


def lines(sink: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in sink.getvalue().splitlines()]


class Terminal(io.StringIO):
    """Standard error at a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def test_terminal_log_escapes_control_characters(redactor: Redactor) -> None:
    was = structlog.get_config()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    with contextlib.redirect_stderr(Terminal()) as stderr:
        set_up_logs("info", redactor)
        log("x").warning("said\x1b[2J", text="a\nb", secret=f"token {CANARIES['telegram']}")
    structlog.configure(**was)
    root.handlers[:], root.level = before, level
    (line,) = stderr.getvalue().splitlines()

    assert "warning said\\x1b[2J" in line
    assert "text=a\\nb" in line
    assert "module=x" in line
    assert HIDDEN in line


@pytest.mark.parametrize("kind", CANARIES)
def test_own_log_lines_are_redacted(sink: io.StringIO, kind: str) -> None:
    secret = CANARIES[kind]
    with structlog.contextvars.bound_contextvars(session=secret):
        log("x").info(f"event {secret}", url=f"https://api.example.org/{IN_ADDRESS[kind]}/x", deep=[{"a": secret}])
        try:
            fail(RuntimeError(f"failed with {secret}"), because=ValueError(secret))
        except RuntimeError:
            log("x").exception("broke", more=secret)
    found = lines(sink)

    assert [line["level"] for line in found] == ["info", "error"]
    assert PLAIN[kind] not in json.dumps(found, ensure_ascii=False)
    assert "RuntimeError" in found[1]["exception"]


@pytest.mark.parametrize("kind", CANARIES)
def test_library_log_lines_are_redacted(sink: io.StringIO, kind: str) -> None:
    """CVE-2026-27003: an HTTP library logged whole URLs with the bot's token."""
    secret = CANARIES[kind]
    library = logging.getLogger("some.library")
    library.warning("GET %s", f"https://api.example.org/{IN_ADDRESS[kind]}/getMe")
    try:
        fail(OSError(secret), because=KeyError(secret))
    except OSError:
        library.exception("failed: %s", {"token": secret})
    library.error("as extra", extra={"token": secret})
    found = lines(sink)

    assert len(found) == 3
    assert PLAIN[kind] not in json.dumps(found, ensure_ascii=False)
    assert all(line["logger"] == "some.library" for line in found)


def test_libraries_log_only_warnings_when_we_debug(sink: io.StringIO) -> None:
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").debug("more chatter")
    log("x").debug("ours")

    assert [line["event"] for line in lines(sink)] == ["ours"]


def test_channels_and_tools_log_at_our_level(sink: io.StringIO) -> None:
    logging.getLogger("channels.slack.socket").info("sent again")
    logging.getLogger("agent_tools.browser").debug("begun")

    assert [json.loads(line)["event"] for line in sink.getvalue().splitlines()] == ["sent again", "begun"]


def test_log_line_is_json_with_context_ids(sink: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(session="main:ann", turn="t1"):
        log("toolcalls").info("two\nlines", n=1)
    (line,) = lines(sink)

    assert (line["event"], line["session"], line["turn"], line["module"], line["n"]) == (
        "two\nlines",
        "main:ann",
        "t1",
        "toolcalls",
        1,
    )
    assert line["timestamp"].endswith("Z")


def test_metrics_are_separate_per_daemon() -> None:
    one, other = Metrics(), Metrics()
    one.messages.labels("queued").inc()

    assert one.registry.get_sample_value("dragoman_messages_total", {"outcome": "queued"}) == 1
    assert other.registry.get_sample_value("dragoman_messages_total", {"outcome": "queued"}) is None


def test_log_throttle_counts_what_it_omits() -> None:
    now = 5.0
    told: list[tuple[str, dict[str, object]]] = []
    seldom = LogThrottle(lambda: now)

    def say(event: str, **words: object) -> None:
        told.append((event, words))

    def flood(times: int) -> None:
        for n in range(times):
            seldom.tell(say, "refused", n=n)

    flood(3)
    assert told == [("refused", {"n": n}) for n in range(3)]
    flood(1_000)
    assert len(told) == TOLD_AT_MOST
    now += TOLD_AGAIN_S
    flood(2)
    assert told[TOLD_AT_MOST:] == [("refused", {"n": 0, "left_out": 1_003 - TOLD_AT_MOST}), ("refused", {"n": 1})]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("origin\thttps://ann:s3cret-token@host/x.git (fetch)", "origin\thttps://[hidden]@host/x.git (fetch)"),
        ("https://ghp_0123456789abcdefABCDEF@host/x", "https://[hidden]@host/x"),
        ("url = http://:hunter2-of-ann@host", "url = http://[hidden]@host"),
        ("ssh://git@host/x.git", "ssh://git@host/x.git"),
        ("https://host:8080/x@12345678", "https://host:8080/x@12345678"),
        ('f"https://{user}:{token}@host"', 'f"https://{user}:{token}@host"'),
        ("https://$USER:$PASSWORD@host", "https://$USER:$PASSWORD@host"),
    ],
)
def test_redactor_hides_passwords_in_addresses(text: str, shown: str) -> None:
    assert Redactor().text(text) == shown
