"""Patches over `kill -9`: the files are changed once, and the result tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.telegram_rig import ANN, wire

PATCH = """*** Begin Patch
*** Add File: fruit/apples
+red
*** Add File: fruit/pears
+green
*** End Patch"""
MADE = {"apples": "red\n", "pears": "green\n"}


def fruit(folder: Path) -> dict[str, str]:
    """Return the files that the patch adds, with their contents."""
    return {path.name: path.read_text() for path in folder.rglob("fruit/*")}


@pytest.mark.parametrize("point", ["J12", "J13"])
@pytest.mark.sampled(1)
async def test_a_patch_is_applied_once_whatever_dies(point: str, tmp_path: Path) -> None:
    """Killed before its first file changes (J12), and after the last one (J13). Undo then takes back all of it."""
    async with wire(tmp_path) as one:
        telegram = one.telegram
        await one.start(f"{point}:kill")
        telegram.say(ANN, f"/apply_patch {PATCH}")
        card = await telegram.see(ANN, "+green", button="Once")
        telegram.press(ANN, card, "Once")
        await one.killed()
        assert fruit(tmp_path) == ({} if point == "J12" else MADE)
        await one.start()
        shown = await telegram.see(ANN, "fruit/pears: created" if point == "J12" else "the changes are complete")
        assert "unknown" not in shown.text
        assert fruit(tmp_path) == MADE
        telegram.say(ANN, "/undo")
        card = await telegram.see(ANN, "-green", button="Once")
        telegram.press(ANN, card, "Once")
        await telegram.see(ANN, "fruit/pears: removed")
        assert fruit(tmp_path) == {}
        await one.settled()
