"""Files of the audit: written beside a daemon, and compared with what the store holds later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.domain.ids import SessionId
from gateway.errors import DragomanError
from gateway.store import open_store
from gateway.store.audit_files import compare_audit, export_audit
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


@pytest.mark.parametrize(("calls", "says"), [(2, "ends at row 2"), (4, "written anew")])
async def test_an_audit_that_was_written_anew_shows(
    calls: int, says: str, place: Callable[[str], str], tmp_path: Path
) -> None:
    """Its own chain is whole; the file tells that it is another one."""
    file = str(tmp_path / "audit.jsonl")
    await _started(place("it"), 3, lambda: export_audit(place("it"), file))
    await _started(place("other"), calls)
    with pytest.raises(DragomanError, match=says) as refused:
        await asyncio.to_thread(compare_audit, place("other"), file)
    assert refused.value.cure


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
