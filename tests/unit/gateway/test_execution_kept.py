"""What a running tool has to keep things by: whose they are, what it was allowed, files for people."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gateway.errors import BadRequest, DragomanError
from gateway.execution import FILE_BYTES, Cut, Gallery, Prepared, keeper_of
from gateway.model.ids import SessionId
from gateway.model.sessions import Lease
from gateway.model.tools import Action, KeptFile, Mode, ResultStatus, StepState, ToolResult
from gateway.model.views import TurnView
from gateway.ports import ToolContext
from tests.support.engine import Engine
from tests.support.fakes import FakeTool, Text, done

# --- whose things they are ----------------------------------------------------------------------


def test_each_session_and_each_history_of_it_has_a_name_of_its_own() -> None:
    sessions = [
        "main:ann",
        "main-ann",
        "main:anñ",
        "chat:../../etc",
        "child:t1.2",
        "child:t1.3",
        "a" * 500,
        "a" * 501,
        "",
    ]
    names = [keeper_of(SessionId(one), epoch) for one in sessions for epoch in (0, 1, 11)]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one) for one in names)
    assert keeper_of(SessionId("main:ann"), 3) == keeper_of(SessionId("main:ann"), 3)
    assert keeper_of(SessionId("main:ann"), 3).startswith("main-ann-3-")


@dataclass(slots=True)
class Seen:
    """A tool that looks at its context."""

    keepers: list[str] = field(default_factory=list[str])
    sandboxes: list[Mode | None] = field(default_factory=list[Mode | None])
    scopes: list[frozenset[str]] = field(default_factory=list[frozenset[str]])

    async def body(self, ctx: ToolContext, _args: Text) -> ToolResult:
        """Look."""
        self.keepers.append(ctx.keeper)
        self.sandboxes.append(ctx.sandbox)
        self.scopes.append(ctx.scopes)
        return done()


def prepared(engine: Engine, view: TurnView, sandbox: Mode | None, scopes: frozenset[str] = frozenset()) -> Prepared:
    """The first call of a turn, allowed with these scopes."""
    tool = engine.registry.get("fake")
    assert tool is not None
    cwd = str(engine.workspaces.workspace(view.session.id))
    action = Action(tool="fake", arguments={}, cwd=cwd, sandbox=sandbox)
    step = replace(view.steps[1], state=StepState.STARTED)
    return Prepared(view=view, step=step, tool=tool, arguments=Text(), action=action, action_sha="sha", scopes=scopes)


async def run(engine: Engine, lease: Lease, call: Prepared) -> ToolResult:
    """Run a call."""

    async def partial(_: ToolResult) -> None:
        raise AssertionError("it was not cut")

    permit = engine.execution.office.issue(lease, call.step.n, "sha")
    found = await engine.execution.run(permit, call, lease, Cut(), partial)
    assert isinstance(found, ToolResult)
    return found


async def test_a_call_is_told_whose_it_is_how_it_is_contained_and_what_was_allowed(tmp_path: Path) -> None:
    seen = Seen()
    engine = Engine(tmp_path, [FakeTool(name="fake", body=seen.body)])
    lease = await engine.planned("fake")
    view = await engine.store.turn(lease.turn)
    await run(engine, lease, prepared(engine, view, Mode.BASIC, frozenset({"example.org"})))
    anew = replace(view, turn=replace(view.turn, epoch=view.turn.epoch + 1))
    await run(engine, lease, prepared(engine, anew, None))

    assert seen.keepers == [keeper_of(view.session.id, 0), keeper_of(view.session.id, 1)]
    assert seen.sandboxes == [Mode.BASIC, None]
    assert seen.scopes == [{"example.org"}, frozenset()]


# --- files for people ---------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "below" / "deep").mkdir(parents=True)
    (folder / "page.pdf").write_bytes(b"%PDF-1")
    (folder / "below" / "deep" / "data").write_bytes(b"data")
    (tmp_path / "secret").write_bytes(b"secret")
    return folder


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    return Gallery(tmp_path / "outputs", "t1-2")


def test_a_file_is_copied_under_a_name_that_a_second_run_uses_again(
    workspace: Path, gallery: Gallery, tmp_path: Path
) -> None:
    found = [
        gallery.copy(workspace, workspace / "page.pdf", "The page.PDF", "application/pdf"),
        gallery.copy(workspace, Path("below/deep/data"), "data.tar.gz", "application/gzip"),
        gallery.copy(workspace, Path("page.pdf"), "no ending", "text/plain"),
    ]
    again = Gallery(tmp_path / "outputs", "t1-2").copy(workspace, Path("page.pdf"), "The page.PDF", "application/pdf")

    assert found[0] == again == KeptFile(file="t1-2-f1.pdf", name="The page.PDF", media_type="application/pdf")
    assert [one.file for one in found] == ["t1-2-f1.pdf", "t1-2-f2.gz", "t1-2-f3.bin"]
    assert [(tmp_path / "outputs" / one.file).read_bytes() for one in found] == [b"%PDF-1", b"data", b"%PDF-1"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (tmp_path / "outputs").iterdir())


@pytest.mark.parametrize(
    ("name", "media_type", "file", "shown", "known"),
    [
        ("../../etc/passwd", "text/plain", "t1-2-f1.bin", "passwd", "text/plain"),
        ("a\\b\\c.txt", "text/plain", "t1-2-f1.txt", "c.txt", "text/plain"),
        ("a\n\u202eb.p\0df", "x/y\r\nSet-Cookie: a", "t1-2-f1.bin", "a b.p df", "application/octet-stream"),
        ("x" * 500 + ".html", "TEXT", "t1-2-f1.html", "x" * 100, "application/octet-stream"),
        ("", "", "t1-2-f1.bin", "t1-2-f1.bin", "application/octet-stream"),
        ("dots.", "image/svg+xml", "t1-2-f1.bin", "dots.", "image/svg+xml"),
        ("page.p/f", "a/b", "t1-2-f1.bin", "f", "a/b"),
    ],
)
def test_names_and_types_that_a_page_chose_are_only_shown(
    workspace: Path, gallery: Gallery, name: str, media_type: str, file: str, shown: str, known: str
) -> None:
    found = gallery.copy(workspace, Path("page.pdf"), name, media_type)

    assert found == KeptFile(file=file, name=shown, media_type=known)


def _link(workspace: Path) -> Path:
    (workspace / "link").symlink_to(workspace.parent / "secret")
    return Path("link")


def _link_to_folder(workspace: Path) -> Path:
    (workspace / "folder").symlink_to(workspace.parent)
    return Path("folder/secret")


def _link_within(workspace: Path) -> Path:
    (workspace / "inner").symlink_to(workspace / "below")
    return workspace / "inner" / "deep" / "data"


def _pipe(workspace: Path) -> Path:
    os.mkfifo(workspace / "pipe")
    return Path("pipe")


def _nothing(_: Path) -> Path:
    return Path()


@pytest.mark.parametrize("named", [_link, _link_to_folder, _link_within, _pipe, _nothing])
def test_what_is_put_in_the_way_is_not_kept(
    workspace: Path, gallery: Gallery, tmp_path: Path, named: Callable[[Path], Path]
) -> None:
    path = named(workspace)
    with pytest.raises(BadRequest, match="no regular file in the workspace"):
        gallery.copy(workspace, path, "x.txt", "text/plain")

    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "below/../../secret",
        "below/../page.pdf",
        "",
        "below",
        "missing",
        "page.pdf/more",
        "nul\0",
        "x" * 5000,
        "/etc/passwd",
    ],
)
def test_what_is_no_regular_file_in_the_workspace_is_not_kept(
    workspace: Path, gallery: Gallery, tmp_path: Path, path: str, absolute: bool
) -> None:
    with pytest.raises(BadRequest, match="no regular file in the workspace"):
        gallery.copy(workspace, workspace / path if absolute else Path(path), "x.txt", "text/plain")

    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(("size", "kept"), [(FILE_BYTES, True), (FILE_BYTES + 1, False)])
def test_a_file_that_is_too_large_is_not_kept(
    workspace: Path, gallery: Gallery, tmp_path: Path, size: int, kept: bool
) -> None:
    with (workspace / "large").open("wb") as file:
        file.truncate(size)
    if kept:
        gallery.copy(workspace, Path("large"), "large.bin", "")
    else:
        with pytest.raises(BadRequest, match="too large"):
            gallery.copy(workspace, Path("large"), "large.bin", "")

    assert [path.stat().st_size for path in (tmp_path / "outputs").iterdir()] == ([size] if kept else [])


def test_a_copy_does_not_follow_a_link(workspace: Path, gallery: Gallery, tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "t1-2-f1.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(DragomanError, match="could not be kept"):
        gallery.copy(workspace, Path("page.pdf"), "x", "")

    assert (tmp_path / "secret").read_bytes() == b"secret"


async def test_a_file_that_cannot_be_kept_is_an_error_that_says_why(tmp_path: Path) -> None:
    async def saves(ctx: ToolContext, _args: Text) -> ToolResult:
        return replace(done(), files=(await ctx.keep(Path("../secret"), "x", ""),))

    engine = Engine(tmp_path, [FakeTool(name="fake", body=saves)])
    lease = await engine.planned("fake")
    assert await engine.settle(lease)
    found = await engine.result(lease.turn, 1)

    assert (found.status, found.files) == (ResultStatus.ERROR, ())
    assert found.hint == "'../secret' is no regular file in the workspace. Name one that is."
