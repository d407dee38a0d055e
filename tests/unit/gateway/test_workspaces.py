"""Each session has folders of its own, and a name that tools keep its things by."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from gateway.model.ids import SessionId
from gateway.workspaces import Workspaces, keeper_of


def test_each_session_has_a_private_folder_that_no_id_can_leave(tmp_path: Path) -> None:
    spaces = Workspaces(tmp_path)
    ids = ["main:ann", "main-ann", "main:ANN", "chat:../../etc", "/", "..", "a" * 500, "dm:web/page/x", "chat:\x00"]
    folders = [spaces.workspace(SessionId(one)) for one in ids]

    assert len(set(folders)) == len(ids)
    for folder in folders:
        assert folder.parent == tmp_path / "workspaces"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert len(folder.name) < 64
    assert spaces.workspace(SessionId("main:ann")) == folders[0]
    assert not spaces.outputs(SessionId("main:ann")).exists()


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
