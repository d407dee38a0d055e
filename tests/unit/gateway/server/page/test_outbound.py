from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from agent_tools import workflow
from gateway.domain.events import OutputDelta, TextDelta
from gateway.domain.ids import SYSTEM_HOME, SessionId, SlotId, TurnId, child_session
from gateway.domain.routes import WhileRunning
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import CardRow, SlotKind
from gateway.domain.steps import Answer, Usage
from gateway.domain.tools import ApprovalMode, Artifact, Effect, ResultStatus, Risk, ToolCall, ToolResult
from gateway.domain.turns import Lease, TurnKind
from gateway.domain.views import Row, RowPage
from gateway.domain.waits import Wait
from gateway.ports import ToolContext
from gateway.server.page import outbound
from gateway.server.page.outbound import NAME_AT_MOST, SHOWN, header_name, row, shown_name
from tests.support.engine import Engine
from tests.support.fakes import ANN_PAGE, BOB_CHAT, FakeTool, Text, calls
from tests.support.makers import ANN, BOB, EPOCH, attachment, fetched, inbound, result, route
from tests.support.makers import call as tool_call
from tests.support.shown import slot
from tests.support.turns import finished, with_files
from tests.unit.gateway.toolcalls.subsession_rig import call, ended, own_tool, planned, spawning

NASTY = '<script>alert(1)</script> \u202e @everyone [x](javascript:alert(1)) "quotes"'


async def fails(ctx: ToolContext, _args: Text) -> ToolResult:
    ctx.output.write(b"line\n" * 50_000)
    return ToolResult(status=ResultStatus.ERROR, text="", code="exit", exit_code=3)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    read = FakeTool(name="read", risk=Risk.READ, body=fails)
    return Engine(tmp_path, [read, FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)])


async def rows(engine: Engine, session: str = "main:ann") -> outbound.Json:
    """Everything of a session as Ann's page gets it."""
    pages = engine.web_access()
    found = await pages.older(ANN, SessionId(session), None)
    (frame,) = outbound.newest(found, lambda wait: pages.card(ANN, wait), older=False)
    return json.loads(json.dumps(frame))


async def asked(engine: Engine) -> outbound.Json:
    """A turn on the page that read something and waits for a decision."""
    engine.model.script = [calls("read:a", f"shell:{NASTY}", text=NASTY)]
    await engine.say(NASTY, where=ANN_PAGE)
    await engine.run(await engine.claim())
    return await rows(engine)


def of(frame: outbound.Json, type: str) -> list[outbound.Json]:
    return [row for row in frame["rows"] if row["type"] == type]


async def test_a_session_is_shown_row_by_row(engine: Engine) -> None:
    frame = await asked(engine)

    assert (frame["op"], frame["session"], frame["more"], frame["older"]) == ("rows", "main:ann", False, False)
    assert frame["rev"] == max(row["rev"] for row in frame["rows"])
    (message,) = of(frame, "message")
    assert (message["from"], message["principal"], message["channel"], message["given"]) == (
        "Ann",
        "telegram:1001",
        "web",
        True,
    )
    (turn,) = of(frame, "turn")
    assert (turn["state"], turn["kind"], turn["ended_at"]) == ("parked", "model", None)
    assert len({(row["type"], row["id"]) for row in frame["rows"]}) == len(frame["rows"])


async def test_a_call_is_shown_with_its_result_and_a_way_to_all_of_it(engine: Engine) -> None:
    frame = await asked(engine)
    answer, read, shell = of(frame, "step")

    assert (answer["kind"], answer["model"]) == ("model", "scripted")
    assert "text" not in answer
    result = read["result"]
    assert (read["tool"], result["status"], result["exit_code"], result["code"]) == ("read", "error", 3, "exit")
    assert (result["full"], result["pictures"]) == (f"/api/output/{read['turn']}/1", [])
    assert result["dropped_bytes"] > 0
    assert (shell["state"], shell["result"]) == ("asked", None)


async def test_approval_is_escaped_and_has_buttons_for_this_page(engine: Engine) -> None:
    frame = await asked(engine)
    (approval,) = of(frame, "approval")

    assert approval["rendered"].isascii()
    assert r"\u{202E}" in approval["rendered"]
    assert (approval["escaped"], approval["state"], approval["outcome"]) == (True, "open", "")
    assert [button["verb"] for button in approval["buttons"]] == ["once", "deny", "deny_reason"]
    (wait,) = await engine.store.open_approvals()
    for button in approval["buttons"]:
        verb = engine.tokens.verb(button["handle"], wait.id, ["page:ann"])
        assert verb is not None
        assert verb.value == button["verb"]

    await engine.press(wait.id, where=ANN_PAGE)
    (approval,) = of(await rows(engine), "approval")
    assert (approval["state"], approval["buttons"]) == ("approved", [])
    # `card.js` replaces this time.
    assert approval["outcome"] == f"ann allowed once, {approval['decided_at'][11:16]} UTC"


async def test_answers_are_shown_as_slots_and_approvals_as_rows(engine: Engine) -> None:
    frame = await asked(engine)

    assert {slot["kind"] for slot in of(frame, "slot")} == {"answer"}
    stored = {slot.kind for slot in await engine.slots()}
    assert stored == {SlotKind.ANSWER, SlotKind.CARD}


@pytest.mark.parametrize("kind", list(SlotKind))
async def test_kinds_of_slots_on_the_page(engine: Engine, kind: SlotKind) -> None:
    engine.model.script = [Answer(text="hi")]
    await engine.say(where=ANN_PAGE)
    await engine.run(await engine.claim())
    (slot,) = await engine.slots()
    found = outbound.row(Row(ord=1, rev=2, item=replace(slot, kind=kind)), _no_card)

    assert (found is not None) == (kind in outbound.SHOWN)
    assert (kind in outbound.SHOWN) == (kind.value in {"answer", "note", "reply", "checklist"})


def _no_card(wait: Wait) -> CardRow:
    raise AssertionError(f"{wait.id} is no approval")


async def test_a_timer_is_not_shown(engine: Engine) -> None:
    await engine.say(where=ANN_PAGE)
    lease = await engine.claim()
    await engine.run(lease)
    (timer,) = await engine.waits(lease.turn)

    assert outbound.row(Row(ord=1, rev=1, item=timer), _no_card) is None


async def test_a_control_command_counts_as_given(engine: Engine) -> None:
    await engine.ingress.message(inbound("/status", where=ANN_PAGE))
    (message,) = of(await rows(engine), "message")

    assert message["given"] is True
    assert message["turn"] is None


async def test_the_list_says_where_a_session_is(engine: Engine) -> None:
    await engine.say(where=ANN_PAGE)
    await engine.say(who=BOB, where=BOB_CHAT)
    lines = {line.session.id: outbound.line(line) for line in await engine.web_access().sessions(ANN)}

    assert lines[SessionId("main:ann")]["channel"] == "web"
    dm = lines[SessionId("dm:telegram/default/2002")]
    assert (dm["channel"], dm["kind"], dm["queued"]) == ("telegram", SessionKind.DM.value, 1)
    welcome = outbound.welcome(engine.web_access().welcome(ANN), await engine.web_access().sessions(ANN))
    assert json.loads(json.dumps(welcome))["main"] == "main:ann"


async def test_session_list_sends_only_changed_lines(engine: Engine) -> None:
    await engine.say(where=ANN_PAGE)
    await engine.say(who=BOB, where=BOB_CHAT)
    before = {line.session.id: line for line in await engine.web_access().sessions(ANN)}
    await engine.say(who=BOB, where=BOB_CHAT)
    now = {line.session.id: line for line in await engine.web_access().sessions(ANN)}
    bobs, main = SessionId("dm:telegram/default/2002"), SessionId("main:ann")

    assert outbound.lines(now, before) == {"op": "lines", "sessions": [outbound.line(now[bobs])], "gone": []}
    assert outbound.lines({main: now[main]}, before) == {"op": "lines", "sessions": [], "gone": [bobs]}
    assert outbound.lines(now, {main: now[main]})["sessions"] == [outbound.line(now[bobs])]


@pytest.mark.parametrize(
    ("event", "op"),
    [
        (TextDelta(session=SessionId("s"), turn=TurnId("t"), n=1, start=5, text="x"), "delta"),
        (OutputDelta(session=SessionId("s"), turn=TurnId("t"), n=1, start=5, text="x"), "output"),
    ],
)
def test_streamed_text_says_where_it_belongs(event: TextDelta | OutputDelta, op: str) -> None:
    assert outbound.delta(event) == {"op": op, "session": "s", "turn": "t", "n": 1, "start": 5, "text": "x"}


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (None, None),
        (EPOCH, "2026-01-01T00:00:00.000Z"),
        (EPOCH + timedelta(microseconds=1500), "2026-01-01T00:00:00.001Z"),
        (datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), "2026-01-01T00:00:00.000Z"),
    ],
)
def test_times_are_utc_with_milliseconds(at: datetime | None, text: str | None) -> None:
    assert outbound.time(at) == text


def test_no_rows_are_a_frame_too() -> None:
    found = RowPage(session=SessionId("s"), rows=(), rev=0, more=False)

    for frames in (outbound.newest(found, _no_card, older=True), outbound.changed(found, _no_card)):
        assert [frame["rows"] for frame in frames] == [[]]


# --- large rows ---------------------------------------------------------------------------------


def large(count: int, *, more: bool = False) -> RowPage:
    """Rows of some 300 KB each as a page gets them, and between them some that no page shows."""
    kinds = [SlotKind.ANSWER, SlotKind.CARD]
    slots = [slot(ANN_PAGE, kinds[n % 2], id=SlotId(f"s{n}"), text="é" * 50_000) for n in range(2 * count - 1)]
    rows = [Row(ord=n, rev=100 + n, item=one) for n, one in enumerate(slots)]
    return RowPage(session=SessionId("s"), rows=tuple(rows), rev=500, more=more)


def ords(frames: list[outbound.Json]) -> list[list[int]]:
    return [[row["ord"] for row in frame["rows"]] for frame in frames]


@pytest.mark.parametrize("older", [True, False])
def test_newest_rows_come_in_small_frames_and_the_oldest_stay(older: bool) -> None:
    frames = list(outbound.newest(large(20), _no_card, older=older))

    assert all(len(json.dumps(frame)) < outbound.FRAME_BYTES * 1.4 for frame in frames)
    assert ords(frames) == [[32, 34, 36, 38], [24, 26, 28, 30], [16, 18, 20, 22], [8, 10, 12, 14]]
    assert [frame["older"] for frame in frames] == [older, True, True, True]
    assert {(frame["more"], frame["rev"]) for frame in frames} == {(True, 500)}


@pytest.mark.parametrize("more", [True, False])
def test_the_last_frame_says_whether_there_are_older_rows(more: bool) -> None:
    frames = list(outbound.newest(large(5, more=more), _no_card, older=False))

    assert ords(frames) == [[2, 4, 6, 8], [0]]
    assert [frame["more"] for frame in frames] == [True, more]


def test_the_last_frame_says_that_older_rows_were_removed() -> None:
    frames = list(outbound.newest(replace(large(5), removed=3), _no_card, older=False))

    assert [frame.get("removed") for frame in frames] == [None, True]


def test_changes_come_whole_in_order_with_their_revision() -> None:
    frames = list(outbound.changed(large(20, more=True), _no_card))

    assert [n for frame in ords(frames) for n in frame] == list(range(0, 40, 2))
    assert all(len(json.dumps(frame)) < outbound.FRAME_BYTES * 1.4 for frame in frames)
    assert [(frame["rev"], frame["more"]) for frame in frames] == [
        (106, False),
        (114, False),
        (122, False),
        (130, False),
        (500, True),
    ]
    assert not any(frame["older"] for frame in frames)


# --- sub-sessions -------------------------------------------------------------------------------


async def spawned(tmp_path: Path, asked: ToolCall) -> tuple[Engine, Lease]:
    """A turn on the page whose call spawned a sub-session, which is held."""
    engine = spawning(tmp_path)
    await engine.run(await planned(engine, asked, where=ANN_PAGE))
    return engine, await engine.claim()


async def test_a_line_of_the_list_says_where_a_sub_session_comes_from(tmp_path: Path) -> None:
    engine, _ = await spawned(tmp_path, call("sessions_spawn", task="count the files"))
    lines = {line.session.id: outbound.line(line) for line in await engine.web_access().sessions(ANN)}
    (turn,) = of(await rows(engine), "turn")
    line = json.loads(json.dumps(lines[child_session(turn["id"], 1)]))

    assert lines[SessionId("main:ann")]["lineage"] is None
    assert line["lineage"] == {
        "parent": "main:ann",
        "turn": turn["id"],
        "n": 1,
        "root": "main:ann",
        "depth": 1,
        "mode": "run",
        "agent": "",
        "model": "",
    }
    assert (line["title"], line["origin"], line["running"]) == ("count the files", "child", 1)


async def test_step_waiting_for_a_sub_session_names_it_and_its_usage(tmp_path: Path) -> None:
    engine, child = await spawned(tmp_path, call("sessions_spawn", task="count"))
    frame = await rows(engine)
    (waiting,), (turn,) = of(frame, "child"), of(frame, "turn")
    assert (waiting["state"], waiting["outcome"], waiting["n"], waiting["steps"]) == ("open", None, 1, [])
    assert waiting["session"] == child_session(turn["id"], 1)

    engine.model.script = [Answer(text="42", usage=Usage(input_tokens=100, output_tokens=7, cost_micros=1_200))]
    await engine.run(child)
    (told,) = of(await rows(engine), "child")
    assert (told["id"], told["state"], told["outcome"]) == (waiting["id"], "answered", "done")
    assert told["usage"] == {"input_tokens": 100, "output_tokens": 7, "cached_tokens": 0, "cost_micros": 1_200}


async def test_a_workflow_says_how_each_of_its_steps_stands(tmp_path: Path) -> None:
    steps = [{"name": "a", "task": "x"}, {"name": "b", "task": "x"}, {"name": "c", "task": "x", "needs": ["a"]}]
    flow = own_tool(workflow)
    engine = spawning(tmp_path, [replace(flow, policy=replace(flow.policy, approval={"main": ApprovalMode.ALLOW}))])
    await engine.run(await planned(engine, call("workflow", steps=steps), where=ANN_PAGE))
    (waiting,) = of(await rows(engine), "child")
    assert [(one["name"], one["state"]) for one in waiting["steps"]] == [
        ("a", "running"),
        ("b", "running"),
        ("c", "waiting"),
    ]
    assert waiting["steps"][0]["session"] == waiting["session"]


async def test_the_task_of_a_sub_session_is_no_message_of_a_person(tmp_path: Path) -> None:
    engine, child = await spawned(tmp_path, call("sessions_spawn", task="count the files"))
    view = await engine.store.turn(child.turn)
    frame = await rows(engine, view.session.id)
    (task,), (turn,) = of(frame, "message"), of(frame, "turn")
    (said,) = of(await rows(engine), "message")

    assert (task["role"], task["text"], task["channel"]) == ("task", "count the files", "child")
    assert turn["channel"] == "child"
    assert (said["role"], said["channel"]) == ("person", "web")


async def test_notice_for_a_model_is_not_shown(engine: Engine) -> None:
    """A slot says the same to people."""
    told = replace(inbound("The files are away.", where=ANN_PAGE), principal=SYSTEM_HOME)
    await engine.store.accept(route(), told, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    assert of(await rows(engine), "message") == []


@pytest.mark.parametrize(("words", "shown"), [("all of it", "all of it"), ("x" * 70_000, "x" * 65_522 + "…")])
async def test_end_of_a_sub_session_is_marked_as_such(tmp_path: Path, words: str, shown: str) -> None:
    engine, child = await spawned(tmp_path, call("sessions_spawn", task="watch", mode="session"))
    view = await engine.store.turn(child.turn)
    await ended(engine, child, words)
    message = of(await rows(engine), "message")[-1]

    assert (message["role"], message["principal"], message["child"]) == ("child", "system:child", view.session.id)
    assert message["quoted"] == f"Task: watch\n\n{shown}"


async def test_answer_has_its_cost_and_the_page_the_currency(engine: Engine) -> None:
    engine.model.script = [Answer(text="hi", model="small", usage=Usage(input_tokens=9, cost_micros=5))]
    await engine.say(where=ANN_PAGE)
    await engine.run(await engine.claim())
    (step,) = of(await rows(engine), "step")

    assert (step["model"], step["usage"]["cost_micros"]) == ("small", 5)
    assert outbound.welcome(engine.web_access().welcome(ANN), [])["currency"] == "USD"


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Bill ☂.pdf", "Bill ☂.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\a.txt", "a.txt"),
        ("\u202efdp.exe\r\nX: 1", "fdp.exe X 1"),
        (" .bashrc. ", "bashrc"),
        ("x" * 500 + ".pdf", "x" * (NAME_AT_MOST - 12) + ".pdf"),
        ("x" * 500, "x" * NAME_AT_MOST),
        ("///", "file"),
        ("", "file"),
    ],
)
def test_a_file_is_called_what_it_can_be_saved_as(name: str, shown: str) -> None:
    assert shown_name(name) == shown
    assert header_name(name).isascii()
    assert not set(header_name(name)) & set('"\\\r\n/')


def test_result_has_urls_of_its_files_and_a_message_their_names() -> None:
    kept = (
        Artifact(file="t-1-1.pdf", name="../Bill.pdf", media_type="application/pdf"),
        Artifact(file="t-1-2.png", name="chart.png", media_type="image/png"),
    )
    step = finished(1, tool_call("browser"), replace(result(), files=kept))
    came = with_files(attachment("a.txt"), attachment("b.txt"), fetched("inbox/a.txt"), fetched("", trouble="Gone."))
    frames = [row(Row(ord=1, rev=1, item=item), _no_card) for item in (step, came)]

    shown, said = (frame for frame in frames if frame is not None)
    assert shown["result"]["files"] == [
        {"name": "Bill.pdf", "url": "/api/output/t/1/file/0", "picture": False},
        {"name": "chart.png", "url": "/api/output/t/1/file/1", "picture": True},
    ]
    assert [(one["name"], one["trouble"]) for one in said["files"]] == [("a.txt", ""), ("b.txt", "Gone.")]


def test_a_file_slot_is_for_chats_alone() -> None:
    assert SlotKind.FILE not in SHOWN
