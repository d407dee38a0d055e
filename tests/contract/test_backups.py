"""Backups: made under load, restored to an empty place, where the store begins a new life."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from gateway.domain.ids import SessionId
from gateway.domain.nodes import KeyMark, KeySource
from gateway.domain.turns import TurnState
from gateway.domain.waits import WaitState
from gateway.errors import DragomanError
from gateway.ports import Store
from gateway.store import open_store
from gateway.store.backup import Backup, BackupKey, check_backup, check_key, make_backup, restore_backup
from tests.contract.scene import Asked, Scene
from tests.support.clock import FakeClock
from tests.support.makers import route
from tests.support.redis_server import RedisServer

ROOT = bytes(range(32))
KEY = BackupKey(mark=KeyMark(fingerprint="f" * 32, source=KeySource.STATE), root=ROOT)
PLACES = ("sqlite", "redis")
AT_WORK, ASKED, ALLOWED = (SessionId(f"chat:{name}") for name in ("at work", "asked", "allowed"))


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path: Path) -> Callable[[str], str]:
    """Return the address of an empty place for a store, by name."""

    def url(name: str) -> str:
        if request.param == "sqlite":
            return f"sqlite://{tmp_path}/{name}.db"
        return f"{redis_server.url}?prefix={tmp_path.name}-{name}"

    return url


@asynccontextmanager
async def _opened(url: str, clock: FakeClock) -> AsyncGenerator[Store]:
    store = open_store(url, clock)
    try:
        yield store
    finally:
        await store.close()


async def _backed_up(path: Path, url: str, clock: FakeClock) -> tuple[Asked, Asked]:
    """Back a store up while sessions write. Return an open approval and one that was given."""
    async with _opened(url, clock) as store:
        scene, ended = Scene(store, clock), asyncio.Event()
        asked = await scene.parked(to=route(ASKED))
        allowed = await scene.parked(to=route(ALLOWED))
        await scene.press(allowed.wait)
        await scene.claim()
        await scene.running(route(AT_WORK))

        async def write() -> None:
            while not ended.is_set():
                await scene.ended(route(SessionId("chat:busy")))

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            await asyncio.to_thread(make_backup, url, str(path), KEY, "1.0", clock)
            ended.set()
    return asked, allowed


async def test_a_restored_store_begins_a_new_life(place: Callable[[str], str], tmp_path: Path) -> None:
    """Every row is there; what was held is free; an approval that nobody used is asked anew, an open one stays."""
    clock, file = FakeClock(), tmp_path / "it.backup"
    asked, allowed = await _backed_up(file, place("before"), clock)
    assert file.stat().st_mode & 0o777 == 0o600
    before = check_backup(str(file))
    assert before.key == KEY
    restored = await restore_backup(str(file), place("after"), clock)
    changed = {"turn", "wait", "step", "slot", "session", "fact"}
    kinds = [kind for kind in before.copied.tally.sums if kind not in changed]
    assert [restored.tally.sums[kind] for kind in kinds] == [before.copied.tally.sums[kind] for kind in kinds]
    assert restored.tally.counts["turn"] == before.copied.tally.counts["turn"]
    async with _opened(place("after"), clock) as store:
        scene = Scene(store, clock)
        assert await scene.wait_state(asked.wait) is WaitState.OPEN
        assert await scene.wait_state(allowed.wait) is WaitState.SUPERSEDED
        assert await scene.state(allowed.turn) is TurnState.QUEUED
        assert (await scene.step(allowed.turn, 1)).asked_anew
        claimed = {(await scene.view((await scene.claim()).turn)).session.id for _ in range(2)}
        assert claimed >= {AT_WORK} or ALLOWED in claimed


def _other_row(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE messages SET text = text || '!'")
        db.commit()


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _of_later(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


def _no_backup(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE backup")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_other_row, "not those that were written"),
        (_cut, "damaged"),
        (_of_later, "has schema 99"),
        (_no_backup, "no backup"),
        (Path.unlink, "There is no backup"),
    ],
)
async def test_a_bad_backup_is_refused(spoil: Callable[[Path], object], says: str, tmp_path: Path) -> None:
    clock, file = FakeClock(), tmp_path / "it.backup"
    await _backed_up(file, f"sqlite://{tmp_path}/dragoman.db", clock)
    spoil(file)
    with pytest.raises(DragomanError, match=says) as refused:
        check_backup(str(file))
    assert refused.value.cure


async def test_a_restore_needs_an_empty_place(place: Callable[[str], str], tmp_path: Path) -> None:
    clock, file = FakeClock(), tmp_path / "it.backup"
    await _backed_up(file, place("before"), clock)
    with pytest.raises(DragomanError, match=r"exists already|has a store") as refused:
        await restore_backup(str(file), place("before"), clock)
    assert refused.value.cure
    assert not [name for name in os.listdir(tmp_path) if ".fresh" in name or ".partial" in name]


@pytest.mark.parametrize(
    ("own", "known", "cure"),
    [
        (KeySource.STATE, None, ""),
        (KeySource.STATE, KeyMark(fingerprint="f", source=KeySource.STATE), ""),
        (KeySource.STATE, KeyMark(fingerprint="g", source=KeySource.STATE), "Move its state.key away"),
        (KeySource.STATE, KeyMark(fingerprint="g", source=KeySource.CLUSTER), "leave it out"),
        (KeySource.CLUSTER, KeyMark(fingerprint="g", source=KeySource.CLUSTER), "Set .cluster. key"),
        (KeySource.CLUSTER, None, "Set .cluster. key"),
    ],
)
async def test_a_restore_goes_on_with_the_same_key(
    own: KeySource, known: KeyMark | None, cure: str, tmp_path: Path
) -> None:
    clock, file = FakeClock(), str(tmp_path / "it.backup")
    async with _opened(f"sqlite://{tmp_path}/dragoman.db", clock):
        key = BackupKey(mark=KeyMark(fingerprint="f", source=own), root=ROOT if own is KeySource.STATE else None)
        await asyncio.to_thread(make_backup, f"sqlite://{tmp_path}/dragoman.db", file, key, "1.0", clock)
    backup: Backup = check_backup(file)
    if not cure:
        check_key(backup, known)
        return
    with pytest.raises(DragomanError) as refused:
        check_key(backup, known)
    assert cure.replace(".cluster.", "[cluster]") in refused.value.cure
