"""Probe of the machine's containment features, with real programs."""

from __future__ import annotations

import errno
import os
import tempfile

import pytest

from gateway.sandbox import Containment, probe


def test_the_probe_finds_what_is_here(machine: Containment) -> None:
    # These tests need bubblewrap and user namespaces; without them they fail here and say why.
    assert (machine.can_bwrap, machine.why_no_bwrap) == (True, "")
    assert machine.can_pid_namespace
    assert not (machine.counts_processes and os.geteuid() == 0)


async def test_a_probe_without_a_temporary_folder_names_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
    found = await probe()
    assert not found.can_bwrap
    assert found.why_no_bwrap == (
        "no temporary folder can be made (No space left on device): set TMPDIR to one with room"
    )
