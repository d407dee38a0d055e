from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gateway.commands import (
    CONTROL,
    GREETING,
    START,
    ControlCommand,
    Parsed,
    PlainText,
    ToolCommand,
    UnknownCommand,
    approvals_text,
    code,
    command_list,
    help_text,
    parse,
    sessions_text,
    start_text,
    status_text,
    tools_text,
    unknown_text,
)
from gateway.model.ids import OwnerName, SessionId, TurnId, WaitId, main_session
from gateway.model.sessions import Origin, Session, SessionKind
from gateway.model.tools import Permission, Risk, Sandbox
from gateway.model.views import Counts, SessionLine
from gateway.model.waits import Wait, WaitKind, WaitState
from gateway.registry import Registry
from tests.support.fakes import CLEO, FakeTool
from tests.support.makers import ANN, EPOCH, approval

TOOLS = ("shell", "browser")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("hello", PlainText()),
        ("", PlainText()),
        ("/", PlainText()),
        ("//stop", PlainText()),
        ("/ stop", PlainText()),
        ("/usr/bin", PlainText()),
        ("/usr/bin is full", PlainText()),
        ("/1", PlainText()),
        ("see /stop", PlainText()),
        ("/stop.", PlainText()),
        ("/stop, please", PlainText()),
        ("/ѕtop", PlainText()),
        ("/stop", ControlCommand("stop")),
        ("/STOP", ControlCommand("stop")),
        ("  /stop  ", ControlCommand("stop")),
        ("/stop@my_bot", ControlCommand("stop")),
        ("/stop@my_bot now", ControlCommand("stop")),
        ("/stop\nplease", ControlCommand("stop")),
        ("/shell uptime", ToolCommand("shell")),
        ("/Shell uptime", ToolCommand("shell")),
        ("/shell", ToolCommand("shell")),
        ("/shell\nls\nls", ToolCommand("shell")),
        ("/start", ControlCommand("start")),
        ("/start@dragoman_bot some-payload", ControlCommand("start")),
        ("/nosuch", UnknownCommand("nosuch")),
        ("/shell-x", UnknownCommand("shell-x")),
    ],
)
def test_what_a_text_asks_for(text: str, parsed: Parsed) -> None:
    assert parse(text, TOOLS) == parsed


@given(st.text() | st.text().map(lambda text: "/" + text))
@settings(deadline=None, max_examples=300)
def test_every_text_asks_for_something(text: str) -> None:
    found = parse(text, TOOLS)

    if not text.strip().startswith("/"):
        assert found == PlainText()
    if isinstance(found, ControlCommand):
        assert found.name in [*CONTROL, START]


@given(st.from_regex(r"/[a-z]{1,8}(/[a-z]{1,8}){1,4}( [a-z ]*)?", fullmatch=True))
@settings(deadline=None, max_examples=50)
def test_a_path_is_plain_text(path: str) -> None:
    assert parse(path, TOOLS) == PlainText()


def test_an_unknown_command_is_answered_with_the_nearest_one() -> None:
    assert "Did you mean `/stop`?" in unknown_text("stpo", TOOLS)
    assert "Did you mean `/shell`?" in unknown_text("shel", TOOLS)
    assert "Did you mean" not in unknown_text("zzzzzz", TOOLS)


# --- what they answer ---------------------------------------------------------------------------


def session(id: str = "main:ann", kind: SessionKind = SessionKind.MAIN, owner: OwnerName | None = ANN) -> Session:
    return Session(
        id=SessionId(id),
        kind=kind,
        origin=Origin.DIRECT,
        owner=owner,
        title=id,
        epoch=0,
        root_kind=kind,
        created_at=EPOCH,
        active_at=EPOCH,
    )


MAIN = session()
OTHER_MAIN = session("main:cleo", owner=CLEO)
DM = session("dm:x", SessionKind.DM, None)
GROUP = session("chat:y", SessionKind.NON_MAIN, None)


def line(of: Session, *, running: int = 0) -> SessionLine:
    return SessionLine(session=of, rev=1, waiting=2, running=running, queued=3)


def waiting(of: Session) -> Wait:
    return Wait(
        id=WaitId("w1"),
        kind=WaitKind.APPROVAL,
        session=of.id,
        turn=TurnId("t1"),
        n=1,
        state=WaitState.OPEN,
        approval=approval(1),
        payload={},
        opened_at=EPOCH,
        expires_at=EPOCH + timedelta(hours=1),
    )


COUNTS = Counts(
    queued_turns=4,
    running_turns=5,
    parked_turns=6,
    open_waits=7,
    due_slots=8,
    dead_slots=9,
    oldest_queued_at=EPOCH,
    oldest_due_at=None,
)
REGISTRY = Registry(
    [
        FakeTool(name="read", risk=Risk.READ).tool(),
        FakeTool(name="shell", risk=Risk.EXECUTE, permission=Permission.MAIN, sandbox=Sandbox.AUTO).tool(),
    ],
    sandboxed=True,
)


def test_help_and_tools_list_what_exists_here_and_nothing_else() -> None:
    for text in (help_text(REGISTRY, MAIN), tools_text(REGISTRY, MAIN)):
        assert "read" in text
        assert "shell" in text
    for text in (help_text(REGISTRY, DM), tools_text(REGISTRY, DM)):
        assert "read" in text
        assert "shell" not in text
    assert all(f"`/{name}`" in help_text(REGISTRY, DM) for name in CONTROL)


def test_start_greets_and_helps_and_is_not_listed() -> None:
    assert start_text(REGISTRY, DM) == f"{GREETING}\n\n{help_text(REGISTRY, DM)}"
    assert "/start" not in help_text(REGISTRY, DM)
    assert START not in [one.name for one in command_list(REGISTRY, DM)]
    assert "/start" not in unknown_text("strat", TOOLS)
    assert tools_text(Registry([], sandboxed=True), MAIN) == "This session may use no tools."
    assert "main sessions only, execute, stops after 30 s, sandbox auto" in tools_text(REGISTRY, MAIN)


@pytest.mark.parametrize("session", [DM, GROUP])
def test_status_tells_nobody_else_how_the_daemon_does(session: Session) -> None:
    text = status_text(COUNTS, [line(session, running=1), line(MAIN)], session, "openai:m", EPOCH)

    assert text == f"This session (`{session.id}`, {session.kind}): 1 running, 2 waiting for a decision, 3 queued."


def shown(text: str) -> tuple[str, list[str]]:
    """The words of a Markdown text beside its code, and its code; nothing else may stand in it."""
    found = [one for block in MarkdownIt("commonmark").parse(text) for one in block.children or []]
    assert {one.type for one in found} <= {"text", "code_inline", "softbreak"}, found
    return "".join(one.content for one in found if one.type == "text"), [
        one.content for one in found if one.type == "code_inline"
    ]


EVIL = [
    "**owner ann** [approve](https://evil.example/x)",
    "`",
    "a`b``c",
    "`` ` ``",
    "x\n\n# Sessions\n- `main:ann`",
    "<b>ann</b> <https://evil.example>",
    "\u2066\u2067ann\u2069\u061c\u200f",
    "\\`*a*\\",
    "![x](y) ||s|| ~~d~~ __u__",
    " ",
    "",
]


@pytest.mark.parametrize("evil", EVIL)
def test_a_name_is_shown_and_formats_nothing(evil: str) -> None:
    """A stranger called `**owner** [approve](…)` had bold text and a link in the owner's chat."""
    seen = "".join(char for char in " ".join(evil.split()) if char.isprintable()) or "?"
    odd = replace(session(f"dm:{evil}", SessionKind.DM, None), title=evil)
    words, code_spans = shown(sessions_text([line(odd), line(MAIN)], ANN, MAIN))

    assert words.startswith("Sessions: (dm, ): 0 running")
    assert code_spans[1] == seen
    assert len(code_spans) == 4

    named = replace(approval(1), action=replace(approval(1).action, tool=evil))
    wait = replace(waiting(odd), approval=named)
    words, code_spans = shown(approvals_text([wait], {odd.id: odd}, ANN, MAIN))
    assert words.endswith("in , asked 00:00, answer by 01:00 UTC")
    assert code_spans[0] == seen

    _, code_spans = shown(status_text(COUNTS, [], odd, evil, EPOCH) + status_text(COUNTS, [], MAIN, evil, EPOCH))
    assert code_spans[-1] == seen


@given(st.text(alphabet="`*_[]()<>!\\ \n#-ab\u202e"))
@settings(deadline=None, max_examples=200)
def test_code_is_one_span_whatever_is_in_it(text: str) -> None:
    words, code_spans = shown(f"a {code(text)} b")

    assert words == "a  b"
    assert code_spans == [code_spans[0]]


def test_status_says_how_this_session_and_the_daemon_do() -> None:
    text = status_text(COUNTS, [line(MAIN, running=1)], MAIN, "operator", EPOCH + timedelta(seconds=90))

    assert "(`main:ann`, main): 1 running, 2 waiting for a decision, 3 queued." in text
    assert "5 running, 6 parked, 4 queued, the oldest for 90 s; 7 open approvals" in text
    assert "8 messages to be sent, 9 given up" in text
    assert "`operator`" in text
    idle = status_text(replace(COUNTS, oldest_queued_at=None), [], MAIN, "m", EPOCH)
    assert "0 running, 0 waiting" in idle
    assert "oldest" not in idle


@pytest.mark.parametrize(
    ("owner", "here", "seen"),
    [
        (ANN, MAIN, {"main:ann", "dm:x", "chat:y"}),
        (CLEO, OTHER_MAIN, {"main:cleo", "dm:x", "chat:y"}),
        # In a group everybody reads the answer: it tells of the group alone, even to an owner.
        (ANN, GROUP, {"chat:y"}),
        (None, DM, {"dm:x"}),
        (None, GROUP, {"chat:y"}),
    ],
)
def test_sessions_and_approvals_tell_nothing_that_the_asker_may_not_see(
    owner: OwnerName | None, here: Session, seen: set[str]
) -> None:
    everything = [MAIN, OTHER_MAIN, DM, GROUP]
    sessions = sessions_text([line(one) for one in everything], owner, here)
    approvals = approvals_text([waiting(one) for one in everything], {s.id: s for s in everything}, owner, here)

    for text in (sessions, approvals):
        assert {one.id for one in everything if f"`{one.id}`" in text} == seen


def test_with_nothing_to_decide_it_says_so_and_a_text_never_decides() -> None:
    assert approvals_text([], {}, ANN, MAIN) == "Nothing waits for a decision."
    assert approvals_text([waiting(MAIN)], {}, ANN, MAIN) == "Nothing waits for a decision."
    text = approvals_text([waiting(MAIN)], {main_session(ANN): MAIN}, ANN, MAIN)
    assert "press the button" in text
    assert "asked 00:00, answer by 01:00 UTC" in text
