"""`dragoman audit export`: the head of the file is noted in the store."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import ANY

import pytest

from gateway.domain.audit import AuditMark
from gateway.store import open_store
from gateway.store.kernel.audit import EXPORTED, mark_of
from gateway.store.kernel_store import KernelStore
from tests.contract.scene import Scene
from tests.support.clock import FakeClock
from tests.unit.gateway.cli.test_cli import Daemon, Done, dragoman


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


async def test_an_export_of_the_audit_is_noted_in_the_store(state: Path) -> None:
    """By the daemon, or by the command where none runs; one that is not noted says so, and its file stays."""
    url = f"sqlite://{state}/dragoman.db"
    scene = Scene(open_store(url, FakeClock()), FakeClock())
    await scene.started()
    head = (await scene.store.audit_head()).hash
    await scene.store.close()
    done = await dragoman(state, "audit", "export", str(state / "1.jsonl"))
    assert done == Done(code=0, out=f"Exported to {state}/1.jsonl: 1 rows. Their head: {head}\n", err="")
    store = open_store(url, FakeClock())
    assert isinstance(store, KernelStore)
    (noted,) = await store.facts([EXPORTED])
    await store.close()
    assert noted is not None
    assert mark_of(noted.value) == AuditMark(seq=1, hash=head, at=ANY)
    daemon = Daemon()
    async with daemon.at(state):
        assert (await dragoman(state, "audit", "export", str(state / "2.jsonl"))).code == 0
    assert daemon.asked == [("audit_exported", {"seq": 1, "head": head})]
    async with Daemon(broken="It is another one.").at(state):
        failed = await dragoman(state, "audit", "export", str(state / "3.jsonl"))
    assert failed.code == 1
    assert f"{state}/3.jsonl is written, but the store has no such row." in failed.err
