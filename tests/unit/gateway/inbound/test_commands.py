from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gateway.domain.children import Lineage, SpawnMode, child_place
from gateway.domain.ids import OwnerName, Principal, SessionId, TurnId, WaitId, main_session
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.steps import Usage
from gateway.domain.text import as_code
from gateway.domain.tools import ApprovalMode, Availability, Risk, SandboxPolicy
from gateway.domain.turns import Turn, TurnKind, TurnState
from gateway.domain.views import ChildLine, Counts, SessionLine, Spent
from gateway.domain.waits import Wait, WaitKind, WaitState
from gateway.inbound.commands import (
    CONTROL,
    GREETING,
    START,
    ControlCommand,
    Parsed,
    PlainText,
    ToolCommand,
    UnknownCommand,
    UsageScope,
    approvals_text,
    command_list,
    help_text,
    parse,
    sessions_text,
    start_text,
    status_text,
    tools_text,
    tree_text,
    unknown_text,
    usage_text,
)
from gateway.toolcalls.tool_set import ToolSet
from tests.support.fakes import CLEO, FakeTool
from tests.support.makers import ANN, ANN_SLACK, ANN_TELEGRAM, CHAT, EPOCH, approval
from tests.support.proof import examples

TOOLS = ("shell", "browser", "spawn", "sessions_spawn")


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
        ("/spawn count the files", ToolCommand("spawn")),
        ("/sessions_spawn count the files", ToolCommand("sessions_spawn")),
        ("/tree", ControlCommand("tree")),
        ("/usage", ControlCommand("usage")),
        ("/start", ControlCommand("start")),
        ("/start@dragoman_bot some-payload", ControlCommand("start")),
        ("/nosuch", UnknownCommand("nosuch")),
        ("/shell-x", UnknownCommand("shell-x")),
    ],
)
def test_text_is_parsed_as_a_command_or_a_message(text: str, parsed: Parsed) -> None:
    assert parse(text, TOOLS) == parsed


@given(st.text() | st.text().map(lambda text: "/" + text))
@settings(deadline=None, max_examples=examples(300))
def test_every_text_asks_for_something(text: str) -> None:
    found = parse(text, TOOLS)

    if not text.strip().startswith("/"):
        assert found == PlainText()
    if isinstance(found, ControlCommand):
        assert found.name in [*CONTROL, START]


@given(st.from_regex(r"/[a-z]{1,8}(/[a-z]{1,8}){1,4}( [a-z ]*)?", fullmatch=True))
@settings(deadline=None, max_examples=examples(50))
def test_a_path_is_plain_text(path: str) -> None:
    assert parse(path, TOOLS) == PlainText()


def test_an_unknown_command_is_answered_with_the_nearest_one() -> None:
    assert "Did you mean `/stop`?" in unknown_text("stpo", TOOLS)
    assert "Did you mean `/shell`?" in unknown_text("shel", TOOLS)
    assert "Did you mean `/shell`?" in unknown_text("sh", TOOLS)
    assert "Did you mean `/status`?" in unknown_text("sta", TOOLS)
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
    open_approvals=7,
    due_slots=8,
    dead_slots=9,
    oldest_queued_at=EPOCH,
)
REGISTRY = ToolSet(
    [
        FakeTool(name="read", risk=Risk.READ).tool(),
        FakeTool(name="shell", risk=Risk.EXECUTE, availability=Availability.MAIN, sandbox=SandboxPolicy.AUTO).tool(),
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


def test_a_tool_denied_outright_is_not_listed() -> None:
    denied = FakeTool(name="shell", risk=Risk.EXECUTE, approval={"dm": ApprovalMode.DENY}).tool()
    registry = ToolSet([denied], sandboxed=True)

    for text in (help_text, tools_text):
        assert ("shell" in text(registry, MAIN), "shell" in text(registry, DM)) == (True, False)
    assert "shell" not in [one.name for one in command_list(registry, DM)]


def test_start_greets_and_helps_and_is_not_listed() -> None:
    assert start_text(REGISTRY, DM) == f"{GREETING}\n\n{help_text(REGISTRY, DM)}"
    assert "/start" not in help_text(REGISTRY, DM)
    assert START not in [one.name for one in command_list(REGISTRY, DM)]
    assert "/start" not in unknown_text("strat", TOOLS)
    assert tools_text(ToolSet([], sandboxed=True), MAIN) == "This session may use no tools."
    assert "- `read`: reads\n" in tools_text(REGISTRY, MAIN)
    assert "- `shell`: executes; main sessions only; sandbox auto, network auto" in tools_text(REGISTRY, MAIN)


@pytest.mark.parametrize(
    ("about", "where", "said"),
    [
        ("shell", MAIN, "`Usage: /shell <text>`\n\n`The fake shell.`"),
        ("/shell", MAIN, "`Usage: /shell <text>`\n\n`The fake shell.`"),
        ("stop", MAIN, "`/stop`: stop what is running or waiting here"),
        ("shell", DM, "There is no command `/shell`. Did you mean `/help`? `/help` lists them."),
        ("`x` **y**", MAIN, "There is no command ``/`x` **y**``. `/help` lists them."),
    ],
)
def test_help_about_one_command(about: str, where: Session, said: str) -> None:
    assert help_text(REGISTRY, where, about) == said


@pytest.mark.parametrize("session", [DM, GROUP])
def test_status_tells_nobody_else_how_the_daemon_does(session: Session) -> None:
    text = status_text(COUNTS, [line(session, running=1), line(MAIN)], session, "openai:m", EPOCH)

    assert text == f"This session (`{session.id}`, {session.kind}): 1 running, 2 waiting for a decision, 3 queued."


def shown(text: str) -> tuple[str, list[str]]:
    """Return the plain words of a Markdown text and its code; fail on any other markup."""
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
@settings(deadline=None, max_examples=examples(200))
def test_code_is_one_span_whatever_is_in_it(text: str) -> None:
    words, code_spans = shown(f"a {as_code(text)} b")

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
def test_sessions_and_approvals_list_only_what_the_asker_may_see(
    owner: OwnerName | None, here: Session, seen: set[str]
) -> None:
    everything = [MAIN, OTHER_MAIN, DM, GROUP]
    sessions = sessions_text([line(one) for one in everything], owner, here)
    approvals = approvals_text([waiting(one) for one in everything], {s.id: s for s in everything}, owner, here)

    for text in (sessions, approvals):
        assert {one.id for one in everything if f"`{one.id}`" in text} == seen


def test_approvals_text_without_rows_says_so_and_never_decides() -> None:
    assert approvals_text([], {}, ANN, MAIN) == "Nothing waits for a decision."
    assert approvals_text([waiting(MAIN)], {}, ANN, MAIN) == "Nothing waits for a decision."
    text = approvals_text([waiting(MAIN)], {main_session(ANN): MAIN}, ANN, MAIN)
    assert "press the button" in text
    assert "asked 00:00, answer by 01:00 UTC" in text


def test_a_tool_with_a_shorter_name_is_listed_by_that() -> None:
    spawn = FakeTool(name="sessions_spawn").tool()
    registry = ToolSet([replace(spawn, spec=replace(spawn.spec, command="spawn"))], sandboxed=True)

    assert help_text(registry, MAIN).endswith("\n`/spawn`")
    assert [help_text(registry, MAIN, name) for name in ("spawn", "sessions_spawn")] == [
        "`Usage: /spawn <text>`\n\n`The fake sessions_spawn.`"
    ] * 2
    assert command_list(registry, MAIN)[-1].name == "spawn"
    assert [info.usage for info in command_list(registry, MAIN)][-1] == "/spawn <text>"


# --- sub-sessions and costs ---------------------------------------------------------------------


def kin(title: str, *, depth: int = 1, waiting: int = 0) -> ChildLine:
    id_ = SessionId(f"child:t{depth}.1")
    lineage = Lineage(
        parent=MAIN.id,
        turn=TurnId("t1"),
        n=1,
        root=MAIN.id,
        root_turn=TurnId("t1"),
        conversation=CHAT,
        depth=depth,
        mode=SpawnMode.RUN,
        active_s=60,
        tokens=0,
    )
    turn = Turn(
        id=TurnId("t2"),
        session=id_,
        epoch=0,
        kind=TurnKind.MODEL,
        state=TurnState.RUNNING,
        conversation=child_place(id_),
        principal=ANN_TELEGRAM,
        created_at=EPOCH,
        started_at=EPOCH,
        ended_at=None,
        active_ms=0,
    )
    session_ = replace(session(id_, SessionKind.NON_MAIN), title=title, lineage=lineage)
    return ChildLine(session=session_, turn=turn, waiting=waiting, input_tokens=1200, output_tokens=34)


def test_the_tree_shows_who_stands_below_whom() -> None:
    text = tree_text([kin("count"), kin("below", depth=2, waiting=1)])

    assert text.splitlines()[2:] == [
        "- `count`: running, 1,234 tokens, `child:t1.1`",
        "  - `below`: running, 1 waiting for a decision, 1,234 tokens, `child:t2.1`",
    ]
    assert tree_text([]) == "There are no sub-sessions in this session."


def test_a_title_in_the_tree_formats_nothing() -> None:
    words, code_spans = shown(tree_text([kin("**owner** [approve](javascript:x)")]))

    assert "approve" not in words
    assert code_spans[0] == "**owner** [approve](javascript:x)"


TODAY = date(2026, 1, 30)


def spent(who: str, model: str = "big", *, ago: int = 0, tokens: int = 1000, micros: int = 0, cached: int = 0) -> Spent:
    return Spent(
        day=TODAY - timedelta(days=ago),
        principal=Principal(who),
        model=model,
        answers=1,
        usage=Usage(input_tokens=tokens, output_tokens=10, cached_tokens=cached, cost_micros=micros),
    )


def test_usage_is_summed_by_model_and_time_for_one_person() -> None:
    book = [
        spent("telegram:1001", micros=12_345, cached=400),
        spent("slack:T0AA/U0BB", ago=1),
        spent("telegram:1001", "small", ago=29),
        spent("telegram:2002", tokens=999_999),
    ]
    ann = UsageScope(persons=frozenset([ANN_TELEGRAM, ANN_SLACK]), all=True)
    text = usage_text(book, ann, TODAY, "USD")

    assert text.split("\n\nEverybody")[0] == (
        "You, today:\n\n"
        "- `big`: 1 answer, 1,000 tokens read (400 cached), 10 written, $0.012\n\n"
        "You, in 30 days:\n\n"
        "- `big`: 2 answers, 2,000 tokens read (400 cached), 20 written, $0.012\n"
        "- `small`: 1 answer, 1,000 tokens read, 10 written\n"
        "- in all: 3 answers, 3,000 tokens read (400 cached), 30 written, $0.012"
    )


def test_usage_of_everybody_is_told_to_who_may_know_it() -> None:
    book = [spent("telegram:2002", tokens=999_999)]
    ann = frozenset([ANN_TELEGRAM])

    text = usage_text(book, UsageScope(persons=ann, all=True), TODAY, "")
    assert text.startswith("You, today:\n\n- nothing\n\nYou, in 30 days:\n\n- nothing\n\nEverybody, today:")
    assert text.count("999,999") == 2


def test_usage_of_who_may_not_know_it_all_is_tokens_alone() -> None:
    """Models and cost are for owners alone; others' usage is private."""
    book = [
        spent("telegram:1001", micros=12_345, cached=400),
        spent("telegram:1001", "small", ago=29, micros=1),
        spent("telegram:2002", tokens=999_999),
    ]
    text = usage_text(book, UsageScope(persons=frozenset([ANN_TELEGRAM]), all=False), TODAY, "USD")

    assert text == (
        "You, today:\n\n- 1,000 tokens read, 10 written\n\nYou, in 30 days:\n\n- 2,000 tokens read, 20 written"
    )
    assert usage_text([], UsageScope(persons=frozenset(), all=False), TODAY, "USD").count("- nothing") == 2
