"""End of a tree's leader that was reaped before."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from gateway.sandbox.tree import Tree


@pytest.mark.parametrize(("program", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_leader_that_a_kill_reaped_keeps_its_code(program: str, code: int) -> None:
    """`Popen.kill` polls before it sends the signal."""
    tree: Any = object.__new__(Tree)
    tree._leader = subprocess.Popen(["/bin/sh", "-c", program])
    tree._leader.wait()
    assert tree._reaped() == code
