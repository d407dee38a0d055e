"""The tools that read and change files: what they show, what they refuse, and what is in the files afterwards."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from agent_tools import apply_patch, edit, multiedit, read, undo, write
from agent_tools._files.text_files import diff
from gateway.domain.decisions import Deny, DenyReason
from gateway.domain.tools import Preview, ResultStatus
from gateway.errors import BadRequest, DragomanError, NotFound, TooLarge
from gateway.toolcalls.arguments import ModelArguments, check_arguments
from tests.unit.agent_tools.files.conftest import Bench

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32


def arguments_of(tool: ModuleType, path: str) -> dict[str, Any]:
    """Return arguments that change `a` to `b` in a file."""
    if tool is write:
        return {"path": path, "content": "b\n"}
    if tool is edit:
        return {"path": path, "old": "a", "new": "b"}
    if tool is multiedit:
        return {"files": [{"path": path, "edits": [{"old": "a", "new": "b"}]}]}
    return {"patch": f"*** Begin Patch\n*** Update File: {path}\n-a\n+b\n*** End Patch"}


EDITING = (write, edit, multiedit, apply_patch)


# --- read ---------------------------------------------------------------------------------------


async def test_read_returns_numbered_lines_and_the_hash(bench: Bench) -> None:
    bench.path("notes").write_text("one\ntwo\nthree\n")
    result = await bench.call(read, path="notes", offset=2, limit=1)
    assert result.text.split("\n") == [
        "notes, lines 2 to 2 of 3, hash " + result.text.split("hash ")[1][:8],
        "2: two",
        "Go on with offset=3.",
    ]
    assert result.untrusted


@pytest.mark.parametrize("alias", ["path", "filePath", "file_path"])
async def test_read_takes_the_names_that_models_use(bench: Bench, alias: str) -> None:
    bench.path("notes").write_text("x")
    assert (await bench.call(read, **{alias: "notes"})).status is ResultStatus.OK


async def test_read_shows_a_picture(bench: Bench) -> None:
    bench.path("a.png").write_bytes(PNG)
    result = await bench.call(read, path="a.png")
    assert [picture.media_type for picture in result.pictures] == ["image/png"]


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("bin", b"a\0b", "is not text: binary, 3 bytes"),
        ("ctl", bytes(range(1, 9)) * 8, "is not text"),
        ("latin", "ä".encode("latin-1") + b" text", "is not UTF-8: byte 1"),
    ],
)
async def test_read_refuses_what_is_no_text(bench: Bench, name: str, data: bytes, why: str) -> None:
    bench.path(name).write_bytes(data)
    with pytest.raises(BadRequest, match=why):
        await bench.call(read, path=name)


async def test_read_refuses_lines_that_are_not_there(bench: Bench) -> None:
    bench.path("notes").write_text("one\n")
    with pytest.raises(BadRequest, match="has 1 lines"):
        await bench.call(read, path="notes", offset=5)
    bench.path("empty").write_text("")
    assert (await bench.call(read, path="empty")).text == "empty is empty."


async def test_read_refuses_a_sparse_giant_at_once(bench: Bench) -> None:
    with bench.path("giant").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(TooLarge):
        await bench.call(read, path="giant")


@pytest.mark.parametrize("more", [{"offset": 0}, {"limit": 0}, {"limit": 2001}, {"path": ""}, {"other": 1}])
def test_read_refuses_wrong_arguments(more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        read.Args.model_validate({"path": "notes", **more})


# --- changes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", EDITING)
async def test_a_file_that_was_not_read_is_not_changed(bench: Bench, tool: ModuleType) -> None:
    bench.path("notes").write_text("a\n")
    with pytest.raises(BadRequest, match="was not read in this session"):
        await bench.call(tool, **arguments_of(tool, "notes"))
    assert bench.text("notes") == "a\n"


@pytest.mark.parametrize("tool", EDITING)
async def test_a_file_that_changed_since_it_was_read_is_not_changed(bench: Bench, tool: ModuleType) -> None:
    bench.path("notes").write_text("a\n")
    await bench.call(read, path="notes")
    bench.path("notes").write_text("a\nc\n")
    with pytest.raises(BadRequest, match="changed since it was read: its hash is"):
        await bench.call(tool, **arguments_of(tool, "notes"))


@pytest.mark.parametrize("tool", EDITING)
async def test_a_file_that_was_read_is_changed_after_its_diff(bench: Bench, tool: ModuleType) -> None:
    bench.path("notes").write_text("a\n")
    await bench.call(read, path="notes")
    shown = await bench.preview(tool, **arguments_of(tool, "notes"))
    assert isinstance(shown, Preview)
    assert "-a\n+b" in shown.text
    assert list(shown.state) == ["notes"]
    result = await bench.call(tool, **arguments_of(tool, "notes"))
    assert result.text.startswith("notes: changed, hash ")
    assert bench.text("notes") == "b\n"
    await bench.call(edit, path="notes", old="b", new="c")  # what was written is known


@pytest.mark.parametrize("tool", EDITING)
async def test_a_file_that_was_swapped_after_its_card_is_not_changed(bench: Bench, tool: ModuleType) -> None:
    bench.path("notes").write_text("a\n")
    await bench.call(read, path="notes")
    args = arguments_of(tool, "notes")
    shown = await bench.preview(tool, **args)
    assert isinstance(shown, Preview)
    bench.path("notes").write_text("a \n")
    await bench.call(read, path="notes")
    with pytest.raises(BadRequest, match="not as it was shown"):
        await tool.run(bench.context(shown.state), tool.Args.model_validate(args))
    assert bench.text("notes") == "a \n"


async def test_write_creates_folders_and_says_so(bench: Bench) -> None:
    result = await bench.call(write, path="a/b/c.txt", content="x\ny\n")
    assert result.text.startswith("a/b/c.txt: created, hash ")
    assert result.text.endswith("+2 -0 lines.")
    assert bench.text("a/b/c.txt") == "x\ny\n"


async def test_line_breaks_and_mark_of_a_file_stay(bench: Bench) -> None:
    bench.path("dos").write_bytes("\ufeffone\r\ntwo\r\n".encode())
    await bench.call(read, path="dos")
    await bench.call(edit, path="dos", old="one\ntwo", new="one\nand\ntwo")
    assert bench.path("dos").read_bytes() == "\ufeffone\r\nand\r\ntwo\r\n".encode()


async def test_a_name_with_a_line_break_is_one_line(bench: Bench) -> None:
    name, told = "a\n-b\u202e", r"a\u{A}-b\u{202E}"
    new = await bench.preview(write, path=name, content="x\n")
    assert isinstance(new, Preview)
    assert f"+++ b/{told}\n@@" in new.text
    assert (await bench.call(write, path=name, content="x\n")).text.startswith(f"{told}: created")
    assert (await bench.call(read, path=name)).text.startswith(f"{told}, lines 1 to 1 of 1")
    old = await bench.preview(edit, path=name, old="x", new="y")
    assert isinstance(old, Preview)
    assert f"--- a/{told}\n+++ b/{told}\n@@" in old.text


async def test_permissions_of_a_file_stay(bench: Bench) -> None:
    bench.path("run.sh").write_text("a\n")
    bench.path("run.sh").chmod(0o755)
    await bench.call(read, path="run.sh")
    await bench.call(edit, path="run.sh", old="a", new="b")
    assert bench.path("run.sh").stat().st_mode & 0o777 == 0o755


async def test_several_edits_are_one_write_or_none(bench: Bench) -> None:
    bench.path("notes").write_text("a b c\n")
    await bench.call(read, path="notes")
    with pytest.raises(BadRequest, match="Edit 2 of 2"):
        await bench.call(edit, path="notes", edits=[{"old": "a", "new": "x"}, {"old": "q", "new": "y"}])
    assert bench.text("notes") == "a b c\n"
    await bench.call(edit, path="notes", edits=[{"oldString": "a", "newString": "x"}, {"old": "b", "new": "y"}])
    assert bench.text("notes") == "x y c\n"


@pytest.mark.parametrize("other", ["./notes", ".//notes", "absolute", "notes"])
async def test_a_file_with_two_names_is_changed_once(bench: Bench, other: str) -> None:
    bench.path("notes").write_text("one\ntwo\n")
    await bench.call(read, path="notes")
    other = str(bench.path("notes")) if other == "absolute" else other
    both = [
        {"path": "notes", "edits": [{"old": "one", "new": "ONE"}]},
        {"path": other, "edits": [{"old": "two", "new": "TWO"}]},
    ]
    patch = f"*** Begin Patch\n*** Update File: notes\n-one\n+ONE\n*** Update File: {other}\n-two\n+TWO\n*** End Patch"

    for tool, arguments in ((multiedit, {"files": both}), (apply_patch, {"patch": patch})):
        for step in (bench.preview, bench.call):
            with pytest.raises((BadRequest, ValidationError), match="twice"):
                await step(tool, **arguments)
    assert bench.text("notes") == "one\ntwo\n"


async def test_a_loosely_found_text_is_named_on_card_and_result(bench: Bench) -> None:
    bench.path("notes").write_text("a = 1\n")
    await bench.call(read, path="notes")
    args = {"path": "notes", "old": "a  =  1", "new": "a = 2"}
    shown = await bench.preview(edit, **args)
    assert isinstance(shown, Preview)
    assert "found by whitespace_normalized" in shown.text
    assert not shown.exact
    assert "found by whitespace_normalized" in (await bench.call(edit, **args)).text


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "x"},
        {"path": "x", "old": "a"},
        {"path": "x", "old": "a", "new": "b", "edits": [{"old": "a", "new": "b"}]},
        {"path": "x", "edits": []},
        {"path": "x", "old": None, "new": None},
    ],
)
def test_edit_refuses_half_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        edit.Args.model_validate(arguments)


async def test_edits_that_undo_each_other_are_refused(bench: Bench) -> None:
    bench.path("notes").write_text("a\n")
    await bench.call(read, path="notes")
    with pytest.raises(BadRequest, match="undo each other"):
        await bench.call(edit, path="notes", edits=[{"old": "a", "new": "b"}, {"old": "b", "new": "a"}])


async def test_a_patch_adds_moves_and_removes(bench: Bench) -> None:
    for name in ("old", "gone"):
        bench.path(name).write_text("a\n")
        await bench.call(read, path=name)
    patch = (
        "*** Begin Patch\n*** Add File: new\n+x\n*** Update File: old\n*** Move to: sub/moved\n-a\n+b\n"
        "*** Delete File: gone\n*** End Patch"
    )
    assert apply_patch.scope(apply_patch.Args(patch=patch), None).subjects == (
        "path:new", "path:old", "path:sub/moved", "path:gone"
    )  # fmt: skip
    await bench.call(apply_patch, patch=patch)
    assert sorted(str(path.relative_to(bench.workspace)) for path in bench.workspace.rglob("*") if path.is_file()) == [
        "new",
        "sub/moved",
    ]
    assert bench.text("sub/moved") == "b\n"


def test_a_malformed_patch_is_an_invalid_argument() -> None:
    """Arguments are checked before rules: the model is told what is malformed, and not that the settings deny it."""
    found = check_arguments(ModelArguments(apply_patch.Args), '{"patch": "nonsense"}', "Usage: it.")
    assert isinstance(found, Deny)
    assert found.reason is DenyReason.INVALID_ARGUMENTS
    assert found.hint.startswith("patch: The patch has no begin or no end")
    assert found.hint.endswith("Usage: it.")


ELSEWHERE = ["../x", "/etc/passwd", "a/../../x", "a\0b", "dir", "fifo", "link", "links/x", "."]


@pytest.mark.parametrize("path", ELSEWHERE)
@pytest.mark.parametrize("tool", [read, *EDITING])
async def test_paths_that_lead_elsewhere_are_refused(bench: Bench, tmp_path: Path, tool: ModuleType, path: str) -> None:
    (tmp_path / "x").write_text("a\n")
    bench.path("dir").mkdir()
    bench.path("link").symlink_to(tmp_path / "x")
    bench.path("links").symlink_to(tmp_path)
    os.mkfifo(bench.path("fifo"))
    arguments = {"path": path} if tool is read else arguments_of(tool, path)
    with pytest.raises(DragomanError):
        await bench.call(tool, **arguments)
    assert (tmp_path / "x").read_text() == "a\n"


async def test_a_missing_file_is_not_edited(bench: Bench) -> None:
    with pytest.raises(NotFound):
        await bench.call(edit, path="none", old="a", new="b")


@pytest.mark.parametrize("changed", [(0,), (1,), (15,), (28,), (29,), (3, 20), (0, 29), ()])
@pytest.mark.parametrize("by", [["new"], [], ["new", "and more"]])
def test_a_diff_of_the_changed_part_is_that_of_the_whole(changed: tuple[int, ...], by: list[str]) -> None:
    lines = [f"+{n} -{n}" for n in range(30)]
    after = [one for n, line in enumerate(lines) for one in (by if n in changed else [line])]
    whole = "\n".join(difflib.unified_diff(lines, after, "a/x", "b/x", lineterm=""))
    assert diff("x", "\n".join(lines), "\n".join(after)) == whole


# --- undo ---------------------------------------------------------------------------------------


async def test_undo_takes_back_a_turn_and_then_the_one_before(bench: Bench) -> None:
    await bench.call(write, path="notes", content="one\n")
    bench.turn = 2
    await bench.call(edit, path="notes", old="one", new="two")
    await bench.call(edit, path="notes", old="two", new="three")
    await bench.call(write, path="more", content="x\n")
    bench.turn = 3
    shown = await bench.preview(undo)
    assert isinstance(shown, Preview)
    assert "-three\n+one" in shown.text
    await bench.call(undo)
    assert bench.text("notes") == "one\n"
    assert not bench.path("more").exists()
    bench.turn = 4
    await bench.call(undo)
    assert not bench.path("notes").exists()
    bench.turn = 5
    assert (await bench.call(undo)).code == "nothing"


async def test_undo_refuses_a_file_that_changed_since(bench: Bench) -> None:
    await bench.call(write, path="notes", content="one\n")
    bench.path("notes").write_text("by hand\n")
    with pytest.raises(BadRequest, match="changed meanwhile"):
        await bench.call(undo)
    assert bench.text("notes") == "by hand\n"


@pytest.mark.parametrize("tool", [write, apply_patch])
async def test_inbox_file_cannot_be_changed(bench: Bench, tool: ModuleType) -> None:
    arguments = {"path": "inbox/a.txt", "content": "x"}
    if tool is apply_patch:
        arguments = {"patch": "*** Begin Patch\n*** Add File: inbox/a.txt\n+x\n*** End Patch"}
    with pytest.raises(BadRequest, match="reserved for attachments"):
        await bench.call(tool, **arguments)


async def test_a_moved_and_a_restored_file_keep_their_permissions(bench: Bench) -> None:
    bench.path("run.sh").write_text("date\n")
    bench.path("run.sh").chmod(0o755)
    await bench.call(read, path="run.sh")
    patch = "*** Begin Patch\n*** Update File: run.sh\n*** Move to: bin/run\n@@\n-date\n+date -u\n*** End Patch"
    await bench.call(apply_patch, patch=patch)
    assert bench.path("bin/run").stat().st_mode & 0o777 == 0o755
    bench.turn = 2
    await bench.call(undo)
    assert bench.path("run.sh").stat().st_mode & 0o777 == 0o755
    assert not bench.path("bin/run").exists()


@pytest.mark.parametrize("tool", [write, apply_patch])
async def test_a_link_made_after_the_card_is_not_followed(bench: Bench, tmp_path: Path, tool: ModuleType) -> None:
    """A program of the session replaces the folder while the owner reads the card."""
    outside = tmp_path / "outside"
    outside.mkdir()
    arguments = {"path": "fruit/apples", "content": "red\n"}
    if tool is apply_patch:
        arguments = {"patch": "*** Begin Patch\n*** Add File: fruit/apples\n+red\n*** End Patch"}
    await bench.preview(tool, **arguments)
    bench.path("fruit").symlink_to(outside)
    with pytest.raises(BadRequest):
        await bench.call(tool, **arguments)
    assert list(outside.iterdir()) == []
