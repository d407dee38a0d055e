from __future__ import annotations

import ast
import asyncio
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.events import FILES, FileChanged, OutputDelta, session_topic
from gateway.domain.file_changes import FileChange, content_hash
from gateway.domain.ids import TurnId, WaitId, main_session
from gateway.domain.routes import empty_session
from gateway.domain.steps import Step, StepKind, StepState
from gateway.domain.tools import (
    PICTURE_BYTES,
    Action,
    CallScope,
    Park,
    ResultStatus,
    Risk,
    SandboxMode,
    ToolResult,
)
from gateway.domain.turns import Lease, Turn, TurnKind, TurnState
from gateway.domain.views import TurnView
from gateway.errors import BadRequest
from gateway.ports import ToolContext
from gateway.system.cancellation import Cancellation, CancelReason
from gateway.toolcalls.execution import FAULT_CHARS, Execution
from gateway.toolcalls.output import CODE_CHARS, HALF_BYTES, HALF_LINES, HINT_CHARS
from gateway.toolcalls.permits import Permit
from gateway.toolcalls.prepared import Prepared
from tests.support.engine import Engine
from tests.support.fakes import NODE, Body, FakeTool, Text, done
from tests.support.makers import ANN, ANN_TELEGRAM, CHAT, EPOCH, route
from tests.support.syntax import tree_of

ROOT = Path(__file__).resolve().parents[4]
LEASE = Lease(turn=TurnId("t1"), session=main_session(ANN), node=NODE, fence=3)
VIEW = TurnView(
    session=empty_session(route(), EPOCH),
    turn=Turn(
        id=TurnId("t1"),
        session=main_session(ANN),
        epoch=0,
        kind=TurnKind.MODEL,
        state=TurnState.RUNNING,
        conversation=CHAT,
        principal=ANN_TELEGRAM,
        created_at=EPOCH,
        started_at=EPOCH,
        ended_at=None,
        active_ms=0,
    ),
    inputs=(),
    steps=(),
    waits=(),
)
STEP = Step(turn=TurnId("t1"), n=2, kind=StepKind.TOOL, state=StepState.STARTED)
SECRET = "correct horse battery"


def test_only_execution_calls_a_tool_under_a_permit() -> None:
    """I01: the one choke point, read from the source, so that a second one cannot come unnoticed."""
    runs: set[str] = set()
    makes: set[str] = set()
    for path in ROOT.glob("gateway/**/*.py"):
        text = path.read_text()
        if "Permit" not in text and not ("tool" in text and ".run" in text):
            continue  # parsing all of them takes a second
        for node in ast.walk(tree_of(text)):
            name = path.relative_to(ROOT).as_posix()
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Permit":
                makes.add(name)
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value
            called = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if node.func.attr == "run" and called == "tool":
                runs.add(name)
    assert runs == {"gateway/toolcalls/execution.py"}
    assert makes == {"gateway/toolcalls/scheduler.py"}


# --- running ------------------------------------------------------------------------------------
SCOPE = CallScope(risk=Risk.NONE)


async def fine(_ctx: ToolContext, args: Text) -> ToolResult:
    return done(args.text)


async def printed(ctx: ToolContext, args: Text) -> ToolResult:
    ctx.output.write(args.text.encode())
    return done("")


async def hangs(ctx: ToolContext, args: Text) -> ToolResult:
    ctx.output.write(b"as far as ")
    ctx.output.write(b"it came")
    await asyncio.sleep(3600)
    return done(args.text)


async def fails(_ctx: ToolContext, _args: Text) -> ToolResult:
    return ToolResult(status=ResultStatus.ERROR, text="it broke", code="exit", exit_code=2)


async def raises(_ctx: ToolContext, _args: Text) -> ToolResult:
    raise RuntimeError(f"no luck with {SECRET}")


async def raises_much(_ctx: ToolContext, args: Text) -> ToolResult:
    raise RuntimeError(args.text)


async def refuses(_ctx: ToolContext, _args: Text) -> ToolResult:
    raise BadRequest("That will not do.", cure="Do it otherwise.")


async def refuses_much(_ctx: ToolContext, args: Text) -> ToolResult:
    raise BadRequest(args.text, cure="Do it otherwise.")


async def times_out_inside(_ctx: ToolContext, _args: Text) -> ToolResult:
    raise TimeoutError("a socket, far away")


async def runs_pwd(ctx: ToolContext, _args: Text) -> ToolResult:
    await ctx.process.run(["/bin/pwd"])
    return done("")


async def parks(_ctx: ToolContext, _args: Text) -> Park:
    return Park(wait=WaitId("w1"))


class Bench:
    """One call of one tool, ready to run."""

    def __init__(self, folder: Path, body: Body, *, text: str = "hi", timeout_s: float = 30.0) -> None:
        self.engine = Engine(folder, secrets=[SECRET])
        self.tool = FakeTool(name="fake", body=body, timeout_s=timeout_s)
        cwd = str(self.engine.workspaces.workspace(LEASE.session))
        action = Action(tool="fake", arguments={"text": text}, cwd=cwd, sandbox=None)
        text_args = Text(text=text)
        self.call = Prepared(
            view=VIEW, step=STEP, tool=self.tool.tool(), arguments=text_args, action=action, action_sha="sha",
            call_scope=SCOPE,
        )  # fmt: skip
        self.partial: list[ToolResult] = []

    @property
    def execution(self) -> Execution:
        return self.engine.execution

    async def run(self, cancellation: Cancellation | None = None, permit: Permit | None = None) -> ToolResult | Park:
        async def keep(result: ToolResult) -> None:
            self.partial.append(result)

        permit = permit or Permit(LEASE, STEP.n, "sha")
        return await self.execution.run(permit, self.call, cancellation or Cancellation(), keep)

    async def result(self) -> ToolResult:
        found = await self.run()
        assert isinstance(found, ToolResult)
        return found


async def test_a_call_that_goes_well_gives_its_text(tmp_path: Path) -> None:
    bench = Bench(tmp_path, fine)
    found = await bench.result()

    assert (found.status, found.text, found.full_output) == (ResultStatus.OK, "hi", "")
    assert bench.partial == []
    calls = bench.engine.metrics.registry.get_sample_value(
        "dragoman_tool_calls_total", {"tool": "fake", "status": "ok"}
    )
    assert calls == 1


async def test_result_says_how_long_the_call_took(tmp_path: Path) -> None:
    async def takes_a_while(_ctx: ToolContext, _args: Text) -> ToolResult:
        bench.engine.clock.advance(1.2346)
        return done("")

    bench = Bench(tmp_path, takes_a_while)
    assert (await bench.result()).duration_ms == 1235
    seconds = bench.engine.metrics.registry.get_sample_value("dragoman_tool_seconds_sum", {"tool": "fake"})
    assert seconds == pytest.approx(1.2346)


async def test_printed_output_is_the_text_of_an_empty_result(tmp_path: Path) -> None:
    assert (await Bench(tmp_path, printed, text="printed").result()).text == "printed"


@pytest.mark.parametrize(
    ("body", "status", "code", "hint"),
    [
        (fails, ResultStatus.ERROR, "exit", ""),
        (raises, ResultStatus.ERROR, "crashed", "fake failed by a fault of its own."),
        (refuses, ResultStatus.ERROR, "error", "That will not do. Do it otherwise."),
        (times_out_inside, ResultStatus.ERROR, "error", "Something inside timed out."),
    ],
)
async def test_a_failure_is_a_result(tmp_path: Path, body: Body, status: ResultStatus, code: str, hint: str) -> None:
    found = await Bench(tmp_path, body).result()

    assert (found.status, found.code, found.hint) == (status, code, hint)


async def test_a_wait_is_passed_on(tmp_path: Path) -> None:
    assert await Bench(tmp_path, parks).run() == Park(wait=WaitId("w1"))


async def test_call_at_its_time_limit_is_stopped_and_keeps_its_output(tmp_path: Path) -> None:
    bench = Bench(tmp_path, hangs, timeout_s=0.05)
    found = await bench.result()

    assert (found.status, found.code, found.text) == (ResultStatus.TIMEOUT, "timeout", "as far as it came")
    assert found.hint == "Stopped after 0.05 s, the limit of fake."
    assert bench.tool.running == 0


@pytest.mark.parametrize(
    ("why", "hint"),
    [
        (CancelReason.STOP, "cancelled by /stop"),
        (CancelReason.SHUTDOWN, "cancelled by shutdown"),
        (CancelReason.LIMIT, "cancelled: the turn's time is over"),
    ],
)
async def test_cancelled_call_stores_partial_output_before_it_ends(
    tmp_path: Path, why: CancelReason, hint: str
) -> None:
    bench, halt = Bench(tmp_path, hangs), Cancellation()
    task = asyncio.create_task(bench.run(halt))
    await bench.tool.until_begun()
    halt.why = why
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    (partial,) = bench.partial
    assert (partial.status, partial.code, partial.hint) == (ResultStatus.CANCELLED, why.value, hint)
    assert partial.text == "as far as it came"
    assert bench.tool.running == 0


@pytest.mark.parametrize("why", [CancelReason.LOST, None])
async def test_call_without_its_lease_stores_nothing(tmp_path: Path, why: CancelReason | None) -> None:
    bench, halt = Bench(tmp_path, hangs), Cancellation()
    task = asyncio.create_task(bench.run(halt))
    await bench.tool.until_begun()
    halt.why = why
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert bench.partial == []


@pytest.mark.parametrize(
    "made_for",
    [
        (LEASE, 2, "another action"),
        (LEASE, 3, "sha"),
        (replace(LEASE, turn=TurnId("t2")), 2, "sha"),
    ],
    ids=["action", "step", "turn"],
)
async def test_a_permit_for_something_else_runs_nothing(tmp_path: Path, made_for: tuple[Lease, int, str]) -> None:
    bench = Bench(tmp_path, fine)

    with pytest.raises(PermissionError, match=r"^This permit is for something else\.$"):
        await bench.run(permit=Permit(*made_for))
    assert bench.tool.calls == []


async def test_a_call_that_was_allowed_in_another_folder_runs_nothing(tmp_path: Path) -> None:
    """c9: the folder is a part of what was shown; it became a link to another one meanwhile."""
    bench = Bench(tmp_path, fine)
    workspace = bench.engine.workspaces.workspace(LEASE.session)
    (tmp_path / "elsewhere").mkdir()
    workspace.rmdir()
    workspace.symlink_to(tmp_path / "elsewhere")
    found = await bench.result()

    assert (found.status, bench.tool.calls) == (ResultStatus.ERROR, [])
    assert "Nothing was run" in found.hint


async def test_a_tool_that_was_not_planned_to_start_a_process_cannot(tmp_path: Path) -> None:
    async def sneaks(ctx: ToolContext, _args: Text) -> ToolResult:
        await ctx.process.run(["/bin/touch", str(tmp_path / "canary")])
        return done()

    found = await Bench(tmp_path, sneaks).result()

    assert (found.status, found.code) == (ResultStatus.ERROR, "error")
    assert not (tmp_path / "canary").exists()


async def test_secrets_are_out_of_the_result_and_of_what_is_shown_live(tmp_path: Path) -> None:
    bench = Bench(tmp_path, printed, text=f"key: {SECRET}")
    async with bench.engine.store.event_bus.subscribe(session_topic(LEASE.session)) as events:
        found = await bench.result()
        async with asyncio.timeout(1):
            shown = [await anext(events) for _ in range(2)]

    assert found.text == "key: [hidden]"
    assert [(one.turn, one.n, one.start, one.text) for one in shown if isinstance(one, OutputDelta)] == [
        ("t1", 2, 0, "key: "),
        ("t1", 2, 5, "[hidden]"),
    ]


async def changes_files(ctx: ToolContext, _: Text) -> ToolResult:
    for name in ("old", "gone"):
        (ctx.files.root / name).write_bytes(b"x")
    sha = content_hash(b"x")
    await ctx.changes.apply(
        [
            FileChange(path="new", before="", data=b"y"),
            FileChange(path="./old", before=sha, data=b"y"),
            FileChange(path="gone", before=sha, data=None),
        ]
    )
    return done("changed")


async def test_each_changed_file_is_an_event_of_this_node(tmp_path: Path) -> None:
    """S065: what indexes files hears of each change after it was made."""
    bench = Bench(tmp_path, changes_files)
    async with bench.engine.store.event_bus.subscribe(FILES) as events:
        assert (await bench.result()).text == "changed"
        async with asyncio.timeout(1):
            told = [await anext(events) for _ in range(3)]
    assert [(one.turn, one.n, one.path, one.kind) for one in told if isinstance(one, FileChanged)] == [
        ("t1", 2, "new", "added"),
        ("t1", 2, "old", "changed"),
        ("t1", 2, "gone", "removed"),
    ]


@pytest.mark.parametrize("room", [5, len(SECRET) - 1, len(SECRET)])
async def test_error_text_is_cut_after_redaction(tmp_path: Path, room: int) -> None:
    before = "x" * (FAULT_CHARS - len("RuntimeError: ") - room)
    found = await Bench(tmp_path, raises_much, text=f"{before}{SECRET}{'y' * 10_000}").result()

    assert len(found.text) == FAULT_CHARS
    assert SECRET[:5] not in found.text


async def test_long_output_is_kept_in_a_private_file(tmp_path: Path) -> None:
    found = await Bench(tmp_path, printed, text="line of output\n" * 10_000).result()

    path = tmp_path / "outputs"
    (file,) = path.glob("*/*")
    assert found.full_output == file.name == "t1-2.txt"
    assert found.dropped_bytes > 0
    assert file.read_text() == "line of output\n" * 10_000
    assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0


async def test_long_output_can_be_read_by_tools_of_the_workspace(tmp_path: Path) -> None:
    bench = Bench(tmp_path, printed, text=f"{SECRET} line of output\n" * 10_000)
    found = await bench.result()

    assert found.output_path == ".dragoman/output/t1-2.txt"
    copy = bench.engine.workspaces.workspace(LEASE.session) / found.output_path
    assert copy.read_text() == "[hidden] line of output\n" * 10_000
    assert stat.S_IMODE(copy.stat().st_mode) & 0o077 == 0


async def test_a_link_in_the_place_of_the_copy_is_not_followed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, printed, text="line of output\n" * 10_000)
    (tmp_path / "elsewhere").mkdir()
    (bench.engine.workspaces.workspace(LEASE.session) / ".dragoman").symlink_to(tmp_path / "elsewhere")
    found = await bench.result()

    assert (found.full_output, found.output_path) == ("t1-2.txt", "")
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def returned(_ctx: ToolContext, args: Text) -> ToolResult:
    return ToolResult(status=ResultStatus.ERROR, text=args.text, code="c" * 10_000, hint="h" * 10_000, untrusted=True)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (returned, "x" * 1_000_000),
        (returned, "ß" * 40_000),
        (returned, "a line\n" * 5_000),
        (returned, "half of a character \ud800" * 5_000),
        (printed, "x" * 1_000_000),
        (raises_much, "x" * 1_000_000),
        (refuses_much, "x" * 1_000_000),
    ],
)
async def test_tool_output_is_bounded(tmp_path: Path, body: Body, text: str) -> None:
    bench = Bench(tmp_path, body, text=text)
    found = await bench.result()

    assert len(found.text.encode()) <= 2 * HALF_BYTES + 100
    assert found.text.count("\n") <= 2 * HALF_LINES + 2
    assert (len(found.hint) <= HINT_CHARS, len(found.code) <= CODE_CHARS) == (True, True)
    if body is returned:
        assert (found.status, found.untrusted) == (ResultStatus.ERROR, True)
        assert found.full_output == "t1-2-text.txt"
        whole = bench.engine.workspaces.workspace(LEASE.session) / found.output_path
        assert whole.read_text() == text.replace("\ud800", "\ufffd")


async def test_a_call_works_in_its_sessions_folder_under_its_own_key(tmp_path: Path) -> None:
    async def looks(ctx: ToolContext, _args: Text) -> ToolResult:
        return done(f"{ctx.step_key} {ctx.files.root}")

    bench = Bench(tmp_path, looks)
    bench.call = replace(bench.call, action=replace(bench.call.action, sandbox=SandboxMode.OFF))
    folder = bench.engine.workspaces.workspace(LEASE.session)

    assert (await bench.result()).text == f"t1/2 {folder}"
    bench.call = replace(bench.call, tool=FakeTool(name="fake", body=runs_pwd).tool())
    assert (await bench.result()).text == f"{folder}\n"


# --- pictures -----------------------------------------------------------------------------------


async def test_pictures_keep_their_names_in_a_second_run(tmp_path: Path) -> None:
    async def draws(ctx: ToolContext, args: Text) -> ToolResult:
        draw = ctx.artifacts.picture
        pictures = [await draw(args.text.encode(), "image/png"), await draw(b"two", "image/jpeg")]
        return replace(done(), pictures=tuple(pictures))

    bench = Bench(tmp_path, draws, text="one")
    found = await bench.result()
    bench.call = replace(bench.call, arguments=Text(text="new"))
    again = await bench.result()

    assert found.pictures == again.pictures
    assert [(one.file, one.media_type) for one in found.pictures] == [
        ("t1-2-1.png", "image/png"),
        ("t1-2-2.jpg", "image/jpeg"),
    ]
    folder = bench.engine.workspaces.outputs(LEASE.session)
    assert [(folder / one.file).read_bytes() for one in found.pictures] == [b"new", b"two"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())


@pytest.mark.parametrize(
    ("size", "media_type", "says"),
    [
        (PICTURE_BYTES + 1, "image/png", "The picture has 10,000,001 bytes. At most 10,000,000 are kept."),
        (1, "image/svg+xml", "'image/svg+xml' is not a picture type. Use one of image/png"),
        (1, "", "'' is not a picture type."),
        (1, "../" * 100, "is not a picture type."),
    ],
)
async def test_picture_rejects_other_types_and_large_data(
    tmp_path: Path, size: int, media_type: str, says: str
) -> None:
    async def draws(ctx: ToolContext, _args: Text) -> ToolResult:
        return replace(done(), pictures=(await ctx.artifacts.picture(b"x" * size, media_type),))

    bench = Bench(tmp_path, draws)
    found = await bench.result()

    assert (found.status, found.pictures) == (ResultStatus.ERROR, ())
    assert says in found.hint
    assert not bench.engine.workspaces.outputs(LEASE.session).exists()


async def test_a_picture_does_not_follow_a_link(tmp_path: Path) -> None:
    async def draws(ctx: ToolContext, _args: Text) -> ToolResult:
        return replace(done(), pictures=(await ctx.artifacts.picture(b"x", "image/png"),))

    bench = Bench(tmp_path, draws)
    folder = bench.engine.workspaces.outputs(LEASE.session)
    folder.mkdir(parents=True)
    (tmp_path / "mine").write_bytes(b"untouched")
    (folder / "t1-2-1.png").symlink_to(tmp_path / "mine")

    assert (await bench.result()).status is ResultStatus.ERROR
    assert (tmp_path / "mine").read_bytes() == b"untouched"
