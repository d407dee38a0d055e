from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.app.state import open_state
from gateway.errors import StartError


def test_a_link_that_somebody_prepared_is_not_written_through(tmp_path: Path) -> None:
    state, victim = tmp_path / "state", tmp_path / "victim"
    state.mkdir(mode=0o777)
    victim.write_text("precious")
    for name in (".write-probe", "state.new"):
        (state / name).symlink_to(victim)

    open_state(state)

    assert victim.read_text() == "precious"


def test_the_folder_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)

    with pytest.raises(StartError, match="belongs to another user") as refused:
        open_state(tmp_path)

    assert f"chown -R {other}" in refused.value.cure
