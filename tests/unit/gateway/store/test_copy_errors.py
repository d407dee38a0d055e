"""Errors of copies, backups and exported audits, each with its cure; and what a store shows that nobody runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.domain.nodes import KeyMark, KeySource
from gateway.errors import DragomanError
from gateway.store import is_there, no_redis, open_store, resting_session
from gateway.store.audit_files import compare_audit, export_audit
from gateway.store.backup import Backup, BackupKey, check_backup, check_key, make_backup
from gateway.store.copying import export, migrate
from tests.contract.scene import MAIN, Scene
from tests.support.clock import FakeClock

REDIS = "redis://127.0.0.1:1/0"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ELSEWHERE = "Name a file that does not exist, or move this one away."


REFUSED: list[tuple[Callable[[Path], object], str, str]] = [
    (lambda f: export_audit(f"{f}/it.db", f"{f}/letter"), "{f}/letter exists already.", ELSEWHERE),
    (
        lambda f: export_audit(f"{f}/it.db", f"{f}/no/audit.jsonl"),
        "{f}/no/audit.jsonl cannot be written: No such file or directory.",
        "Name a file where there is room and you may write.",
    ),
    (
        lambda f: compare_audit(f"{f}/it.db", f"{f}/none.jsonl"),
        "{f}/none.jsonl cannot be read: No such file or directory.",
        "Name a file of an export.",
    ),
    (
        lambda f: compare_audit(f"{f}/it.db", f"{f}/letter"),
        "{f}/letter is no export of an audit.",
        "Name a file of `dragoman audit export`.",
    ),
    (
        lambda f: check_backup(f"{f}/none"),
        "There is no backup at {f}/none.",
        "Name the file that `dragoman backup` made.",
    ),
    (
        lambda f: check_backup(f"{f}/it.db"),
        "{f}/it.db is a store, and no backup.",
        "Move it with `dragoman migrate`.",
    ),
    (
        lambda f: migrate(REDIS, f"{REDIS}?prefix=other", NOW),
        "A store on Redis moves through a file.",
        "Export it to a file, then migrate that file: dragoman export, dragoman migrate.",
    ),
    (
        lambda f: export("ftp://there", f"{f}/copy.db"),
        "No store can be copied at 'ftp://there'.",
        "Use `sqlite:///` with an absolute path, the path of a file, or `redis://` with an address.",
    ),
    (
        lambda f: resting_session(REDIS, MAIN, FakeClock()),
        f"The store {REDIS} keeps nothing without its daemon.",
        "Start it: dragoman run.",
    ),
]


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A store in `it.db` with two rows of its audit in `audit.jsonl`, and a letter."""
    url, clock = f"sqlite://{tmp_path}/it.db", FakeClock()
    store = open_store(url, clock)
    for _ in range(2):
        scene = Scene(store, clock)
        await scene.finish(await scene.started())
    await store.close()
    export_audit(url, str(tmp_path / "audit.jsonl"))
    (tmp_path / "letter").write_text("This is a letter.")
    return tmp_path


@pytest.mark.parametrize(("act", "message", "cure"), REFUSED)
async def test_an_error_of_a_copy_names_the_file_and_a_cure(
    act: Callable[[Path], object], message: str, cure: str, folder: Path
) -> None:
    before = sorted(os.listdir(folder))
    with pytest.raises(DragomanError) as refused:
        act(folder)
    assert (refused.value.message, refused.value.cure) == (message.format(f=folder), cure)
    assert sorted(os.listdir(folder)) == before


async def test_an_export_without_its_last_rows_is_refused(folder: Path) -> None:
    file = folder / "audit.jsonl"
    rows = [line for line in file.read_text().splitlines() if '"seq":2' not in line.replace(" ", "")]
    file.write_text("\n".join(rows) + "\n")
    with pytest.raises(DragomanError) as refused:
        compare_audit(f"{folder}/it.db", str(file))
    says = f"{file} is not whole: its rows do not end in its head."
    assert (refused.value.message, refused.value.cure) == (says, "Take another copy of it.")


@pytest.mark.parametrize(
    ("own", "here", "message", "cure"),
    [
        (
            KeySource.CLUSTER,
            None,
            "The gateway of this backup had a [cluster] key, and there is none here.",
            "Set [cluster] key to the same one.",
        ),
        (
            KeySource.CLUSTER,
            KeySource.CLUSTER,
            "The gateway of this backup signed with another key than [cluster] key.",
            "Set [cluster] key to the one of that gateway.",
        ),
        (
            KeySource.STATE,
            KeySource.CLUSTER,
            "The gateway of this backup signed with another key than [cluster] key.",
            "Set [cluster] key to the one of that gateway, or leave it out for the restore.",
        ),
        (
            KeySource.STATE,
            KeySource.STATE,
            "The state folder has another key than this backup.",
            "Move its state.key away, or name another state folder with --state.",
        ),
    ],
)
async def test_another_key_is_named_with_its_cure(
    own: KeySource, here: KeySource | None, message: str, cure: str, folder: Path
) -> None:
    key = BackupKey(mark=KeyMark(fingerprint="f", source=own), root=None)
    make_backup(f"sqlite://{folder}/it.db", file := f"{folder}/it.backup", key, "1.0", FakeClock())
    backup: Backup = check_backup(file)
    with pytest.raises(DragomanError) as refused:
        check_key(backup, None if here is None else KeyMark(fingerprint="g", source=here))
    assert (refused.value.message, refused.value.cure) == (message, cure)


async def test_a_store_at_rest_shows_a_session(folder: Path) -> None:
    found = resting_session(f"sqlite://{folder}/it.db", MAIN, FakeClock())
    assert found is not None
    assert (found[0].id, found[1]) == (MAIN, [])


async def test_a_store_is_there_once_its_file_is(folder: Path) -> None:
    urls = (f"sqlite://{folder}/it.db", f"sqlite://{folder}/none.db", REDIS, f"{folder}/it.db")
    assert [is_there(url) for url in urls] == [True, False, False, False]


async def test_an_export_is_for_its_owner_alone(folder: Path) -> None:
    assert (folder / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_missing_library_is_named_with_the_command_for_it() -> None:
    error = no_redis()
    assert error.message == "A store on Redis needs the extra `redis`."
    assert error.cure == "Install it: `pip install 'dragoman[redis]'` (in a clone `./run add redis`)."
