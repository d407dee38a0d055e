"""Changes of files by calls: old or new content at every point of a crash, and what the tool tells afterwards."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.file_changes import ChangeOutcome, FileChange, content_hash
from gateway.domain.ids import SessionId, TurnId
from gateway.errors import BadRequest
from gateway.store.memory import MemoryStore
from gateway.toolcalls import file_changes
from gateway.toolcalls.file_changes import CallFileChanges
from tests.support.clock import FakeClock

NAMES = ("a", "b", "c")


def changes_in(folder: Path) -> CallFileChanges:
    return CallFileChanges(
        key_value=MemoryStore(FakeClock()), workspace=folder / "workspace", folder=folder / "changes",
        session=SessionId("main:ann"), epoch=0, turn=TurnId("t1"), n=1,
    )  # fmt: skip


def made(folder: Path) -> CallFileChanges:
    """Return the changes of a call in a new workspace of three files."""
    (folder / "workspace").mkdir()
    for name in NAMES:
        (folder / "workspace" / name).write_bytes(b"old")
    return changes_in(folder)


@pytest.fixture
def changes(tmp_path: Path) -> CallFileChanges:
    return made(tmp_path)


def three() -> list[FileChange]:
    """Return the change of one file, the removal of another and of a third again a change."""
    data = {"a": b"new", "b": None, "c": b"new"}
    return [FileChange(path=name, before=content_hash(b"old"), data=data[name]) for name in NAMES]


def contents(changes: CallFileChanges) -> list[bytes | None]:
    files = [changes.workspace / name for name in NAMES]
    return [file.read_bytes() if file.exists() else None for file in files]


async def test_all_files_have_their_new_content(changes: CallFileChanges) -> None:
    await changes.apply(three())
    assert contents(changes) == [b"new", None, b"new"]
    assert await changes.outcome() is ChangeOutcome.DONE
    assert (await changes.seen("a"), await changes.seen("b")) == (content_hash(b"new"), "")


async def test_nothing_changes_when_one_file_is_not_as_it_was(changes: CallFileChanges) -> None:
    (changes.workspace / "c").write_bytes(b"other")
    with pytest.raises(BadRequest, match="`c` changed meanwhile"):
        await changes.apply(three())
    assert contents(changes) == [b"old", b"old", b"other"]
    assert await changes.outcome() is ChangeOutcome.NONE


DIES = """
import asyncio, os, sys
from pathlib import Path
from tests.unit.gateway.toolcalls.test_file_changes import changes_in, three

left = [0]

def die(event, _arguments):
    if event in ("os.rename", "os.remove"):
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)

sys.addaudithook(die)
for folder in map(Path, sys.argv[1:]):
    left[0] = int(folder.name)
    if os.fork() == 0:
        asyncio.run(changes_in(folder).apply(three()))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
"""Program that changes the files of each folder in a child of its own, which dies at the rename or removal that is the
folder's name. Prints the exit codes.
"""
RENAMES = 12
"""Renames and removals of the whole change."""
RENAMES_OF_JOURNAL = 6
"""Renames that store the contents and the journal of `three`. The next one changes the first file."""


def died(folder: Path, *writes: int) -> list[CallFileChanges]:
    """Return changes that a crash cut after so many renames or removals each."""
    folders = [folder / str(one) for one in writes]
    for one in folders:
        one.mkdir()
    cut = [made(one) for one in folders]
    command = [sys.executable, "-c", DIES, *map(str, folders)]
    codes = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout.split()
    assert codes == ["0" if one == RENAMES else "9" for one in writes]
    return cut


async def test_a_crash_leaves_old_or_new_and_the_rest_is_completed(tmp_path: Path) -> None:
    for changes in died(tmp_path, *range(RENAMES + 1)):
        assert all(found in (b"old", b"new", None) for found in contents(changes))
        if await changes.outcome() is ChangeOutcome.NONE:
            assert contents(changes) == [b"old"] * 3
        if any(changes.folder.glob("*.t1-1.json")):
            await changes.resume()
        else:
            await changes.apply(three())
        assert contents(changes) == [b"new", None, b"new"], changes.folder
        assert await changes.outcome() is ChangeOutcome.DONE


async def test_undo_passes_over_a_change_that_never_happened(tmp_path: Path) -> None:
    """A crash after the journal, then another content: the change cannot be completed, and undo does not meet it."""
    (changes,) = died(tmp_path, RENAMES_OF_JOURNAL)
    (changes.workspace / "c").write_bytes(b"by hand")
    with pytest.raises(BadRequest, match="`c` changed meanwhile; nothing more was changed"):
        await changes.resume()
    assert contents(changes) == [b"old", b"old", b"by hand"]
    assert await changes.undo() is None


async def test_a_change_reads_no_journal_but_its_own(changes: CallFileChanges) -> None:
    changes.folder.mkdir()
    os.mkfifo(changes.folder / "00000007.t0-1.json")  # whoever reads it waits
    async with asyncio.timeout(5):
        await changes.apply(three())
    assert [path.name for path in changes.folder.glob("*.t1-1.json")] == ["00000008.t1-1.json"]


@pytest.mark.parametrize("again", [False, True])
async def test_the_oldest_journals_go_with_their_contents(changes: CallFileChanges, again: bool) -> None:
    changes.folder.mkdir()
    stems = [f"t0-{n}" for n in range(1, file_changes.JOURNALS + 1)]
    if again:
        stems[0] = "t1-1"  # of this very call, which begins again
    for seq, stem in enumerate(stems, 1):
        (changes.folder / f"{seq:08}.{stem}.json").write_text("{}")
    (changes.folder / f"{stems[0]}-0.before").write_text("old")
    (changes.folder / f"{stems[1]}-0.before").write_text("old")
    await changes.apply(three())
    left = {path.name for path in changes.folder.iterdir()}
    assert len([name for name in left if name.endswith(".json")]) == file_changes.JOURNALS
    assert (f"00000001.{stems[0]}.json" in left) is again
    assert f"{stems[1]}-0.before" in left
    assert ("t0-1-0.before" in left) is False


async def test_something_else_in_a_file_makes_the_outcome_unknown(changes: CallFileChanges) -> None:
    await changes.apply(three())
    (changes.workspace / "a").write_bytes(b"other")
    assert await changes.outcome() is ChangeOutcome.UNKNOWN


async def test_known_contents_belong_to_one_history(changes: CallFileChanges) -> None:
    await changes.saw("./a", b"old")
    assert await changes.seen("a") == content_hash(b"old")
    assert await replace(changes, epoch=1).seen("a") == ""
    assert await replace(changes, session=SessionId("main:bob")).seen("a") == ""


async def test_old_content_beyond_the_limit_is_not_kept(changes: CallFileChanges) -> None:
    big = b"x" * (file_changes.UNDO_BYTES + 1)
    (changes.workspace / "a").write_bytes(big)
    await changes.apply([FileChange(path="a", before=content_hash(big), data=b"new")])
    assert contents(changes)[0] == b"new"
    with pytest.raises(BadRequest, match="too large to keep") as refused:
        await changes.undo()
    assert refused.value.cure == "Restore it from a backup or from version control."
