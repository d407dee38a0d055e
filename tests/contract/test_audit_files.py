"""Files of the audit: written beside a daemon, and compared with what the store holds later."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.domain.audit import AuditHead, AuditMark
from gateway.domain.ids import SessionId
from gateway.errors import DragomanError
from gateway.policy.audit import verify
from gateway.store import open_store
from gateway.store.audit_files import compare_audit, export_audit
from gateway.store.copying import export, migrate
from gateway.store.redis.copying import RedisCopy
from tests.contract.scene import Scene
from tests.support.clock import FakeClock
from tests.support.makers import route
from tests.support.redis_server import RedisServer


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path: Path) -> Callable[[str], str]:
    """Return the address of an empty place for a store, by name."""

    def url(name: str) -> str:
        if request.param == "sqlite":
            return f"sqlite://{tmp_path}/{name}.db"
        return f"{redis_server.url}?prefix={tmp_path.name}-{name}"

    return url


async def _started(url: str, calls: int, at_last: Callable[[], object] = lambda: None) -> None:
    """Make a store in which so many calls started; do something before it is closed."""
    clock = FakeClock()
    store = open_store(url, clock)
    scene = Scene(store, clock)
    for number in range(calls):
        lease = await scene.planned(to=route(SessionId(f"chat:{number} of {calls}")))
        await scene.start(lease, 1)
    await asyncio.to_thread(at_last)
    await store.close()


async def test_an_audit_still_holds_what_was_exported(place: Callable[[str], str], tmp_path: Path) -> None:
    file = str(tmp_path / "audit.jsonl")
    await _started(place("it"), 3, lambda: export_audit(place("it"), file))
    await _started(place("it"), 2)
    kept, now = await asyncio.to_thread(compare_audit, place("it"), file)
    assert (kept.rows, now.rows) == (3, 5)


async def test_an_export_has_its_name_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store notes the export next: rows that only this file holds may go then."""
    url, folder, fsync, flushed = f"sqlite://{tmp_path}/it.db", tmp_path / "kept", os.fsync, list[tuple[str, bool]]()
    folder.mkdir()

    def note(fd: int) -> None:
        flushed.append((os.readlink(f"/proc/self/fd/{fd}"), (folder / "audit.jsonl").exists()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    await _started(url, 1, lambda: export_audit(url, str(folder / "audit.jsonl")))
    assert flushed == [(f"{folder}/audit.jsonl.partial", False), (str(folder), True)]


@pytest.mark.parametrize(("calls", "says"), [(2, "ends at row 2"), (4, "rewritten")])
async def test_an_audit_that_was_rewritten_shows(
    calls: int, says: str, place: Callable[[str], str], tmp_path: Path
) -> None:
    """Its own chain is whole; the file tells that it is another one."""
    file = str(tmp_path / "audit.jsonl")
    await _started(place("it"), 3, lambda: export_audit(place("it"), file))
    await _started(place("other"), calls)
    with pytest.raises(DragomanError, match=says) as refused:
        await asyncio.to_thread(compare_audit, place("other"), file)
    assert refused.value.cure


async def _removed(url: str, file: Path) -> None:
    """Let three calls start, export the audit, and remove what is behind the export: all but its last row."""
    await _trim(url, await _exported(url, file))


async def _exported(url: str, file: Path) -> AuditHead:
    await _started(url, 3)
    return (await asyncio.to_thread(export_audit, url, str(file))).head


async def _trim(url: str, head: AuditHead) -> None:
    clock = FakeClock()
    clock.advance(60)
    store = open_store(url, clock)
    assert await store.note_export(head.seq, head.hash)
    assert await store.trim_audit(timedelta(seconds=1)) == head.seq - 1
    await store.close()


async def test_an_audit_whose_beginning_was_removed_still_compares(place: Callable[[str], str], tmp_path: Path) -> None:
    """With the export that the removal was behind, and with a later one, which begins at the mark."""
    first, later, early = (tmp_path / f"{name}.jsonl" for name in ("first", "later", "early"))
    await _started(place("it"), 1, lambda: export_audit(place("it"), str(early)))
    await _started(place("it"), 2)
    await _removed(place("it"), first)
    await _started(place("it"), 4)
    await asyncio.to_thread(export_audit, place("it"), str(later))
    kept, now = await asyncio.to_thread(compare_audit, place("it"), str(first))
    assert (kept.rows, now.rows, now.head.seq) == (6, 5, 10)
    again, _ = await asyncio.to_thread(compare_audit, place("it"), str(later))
    assert (again.rows, again.removed) == (5, now.removed)
    with pytest.raises(DragomanError, match="up to row 5 was removed") as refused:
        await asyncio.to_thread(compare_audit, place("it"), str(early))
    assert refused.value.cure == "Compare it with the file of a later export."


@pytest.mark.parametrize(("read", "name"), [(export_audit, "again"), (compare_audit, "audit")])
async def test_a_removal_beside_a_reader_is_no_damage(
    read: Callable[[str, str], object],
    name: str,
    redis_server: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Redis has no snapshot: rows may go as soon as the mark of the removed ones was read."""
    url = f"{redis_server.url}?prefix={tmp_path.name}-{name}"
    head, read_mark = await _exported(url, tmp_path / "audit.jsonl"), RedisCopy.removed_audit

    def read_it_and_trim(copy: RedisCopy) -> AuditMark | None:
        found = read_mark(copy)
        monkeypatch.undo()
        asyncio.run(_trim(url, head))
        return found

    monkeypatch.setattr(RedisCopy, "removed_audit", read_it_and_trim)
    with pytest.raises(DragomanError, match="removed while it was read"):
        await asyncio.to_thread(read, url, str(tmp_path / f"{name}.jsonl"))


async def test_a_moved_store_keeps_the_mark_of_removed_rows(
    place: Callable[[str], str], redis_server: RedisServer, tmp_path: Path
) -> None:
    """A copy to another kind of store begins where its source does."""
    await _removed(place("it"), tmp_path / "audit.jsonl")
    copied = await asyncio.to_thread(export, place("it"), str(tmp_path / "copy.db"))
    assert copied.removed is not None
    assert (copied.removed.seq, copied.audit.seq, copied.tally.counts["audit"]) == (2, 3, 1)
    moved, clock = f"{redis_server.url}?prefix={tmp_path.name}-moved", FakeClock()
    again = await asyncio.to_thread(migrate, str(tmp_path / "copy.db"), moved, clock.now())
    assert again.removed == copied.removed
    store = open_store(moved, clock)
    assert ((await verify(store)).rows, (await verify(store)).broken) == (1, None)
    await store.close()
    kept, now = await asyncio.to_thread(compare_audit, moved, str(tmp_path / "audit.jsonl"))
    assert (kept.rows, now.rows) == (3, 1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DELETE FROM audit", "rows behind row 2 are missing"),
        ("DELETE FROM facts WHERE key = 'removed'", "rows 1 to 2 are missing"),
        ("UPDATE facts SET value = replace(value, '\"seq\":2', '\"seq\":1') WHERE key = 'removed'", "differs"),
        ("UPDATE facts SET value = replace(value, '\"at\":1', '\"at\":2') WHERE key = 'removed'", "differs"),
        ("UPDATE facts SET value = '[]' WHERE key = 'removed'", "differs"),
        ("UPDATE audit SET prev_hash = hash", "differs"),
    ],
)
async def test_a_changed_beginning_is_found(change: str, says: str, tmp_path: Path) -> None:
    """By the commands that read a store, and by the daemon."""
    path = tmp_path / "it.db"
    await _removed(f"sqlite://{path}", tmp_path / "audit.jsonl")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute(change).rowcount == 1
    for read in (
        lambda: compare_audit(str(path), str(tmp_path / "audit.jsonl")),
        lambda: export(str(path), str(tmp_path / "copy.db")),
        lambda: export_audit(str(path), str(tmp_path / "again.jsonl")),
    ):
        with pytest.raises(DragomanError, match=says):
            await asyncio.to_thread(read)
    store = open_store(f"sqlite://{path}", FakeClock())
    try:
        found = (await verify(store)).broken
        said = "" if found is None else found.says
    except DragomanError as error:
        said = error.message
    assert says in said
    await store.close()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"shell"', '"read"', "differs from what was written"),
        ('{"rows"', '{"some"', "not whole"),
        ("{", "[", "no export"),
    ],
)
async def test_a_file_that_was_changed_is_refused(old: str, new: str, says: str, tmp_path: Path) -> None:
    url, file = f"sqlite://{tmp_path}/it.db", tmp_path / "audit.jsonl"
    await _started(url, 2, lambda: export_audit(url, str(file)))
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(DragomanError, match=says):
        await asyncio.to_thread(compare_audit, url, str(file))
    with pytest.raises(DragomanError, match="exists already"):
        await asyncio.to_thread(export_audit, url, str(file))
