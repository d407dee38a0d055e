"""Changes that the page missed, because its event bus lost them."""

from __future__ import annotations

from pathlib import Path

from gateway.store.event_bus import LocalEventBus
from tests.support.engine import Engine, served
from tests.unit.gateway.server.page.test_adapter import opened


async def test_a_page_that_missed_changes_looks_again(tmp_path: Path) -> None:
    """As after a reconnect of the event bus: it gets the rows whose change nobody announced."""
    async with served(Engine(tmp_path, [])) as page, opened(page) as ann:
        store = page.engine.store
        await ann.send({"op": "open", "session": "main:ann"})
        assert (await ann.op("rows"))["rows"] == []
        announced, store.local_bus = store.local_bus, LocalEventBus()
        await page.engine.say("hello")
        store.local_bus = announced
        announced.look_again()
        rows = await ann.until(lambda frame: frame["op"] == "rows" and bool(frame["rows"]))
        assert "message" in {row["type"] for row in rows["rows"]}
