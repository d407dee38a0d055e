"""A forked life is a process of its own: its words, its environment, its output, its end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import stems
from tests.support.daemon import ROOT, Daemon, environment
from tests.support.sharing import PROCESS
from tests.support.stems import PLACE, stem_of, stems_at
from tests.support.warm import Life, Stem

pytestmark = pytest.mark.whole("of a helper of tests; it computes for seconds")


@pytest_asyncio.fixture
async def stem() -> AsyncIterator[Stem]:
    """One for a test, so that the test may end it."""
    found = Stem()
    yield found
    found.close()


async def forked(stem: Stem, log: Path, *words: str, **env: str) -> Life:
    """Fork one whose output goes to a file."""
    with log.open("wb") as file:
        return await stem.fork(words, cwd=ROOT, env={**environment(), **env}, log=file.fileno())


async def test_parallel_lives_have_their_own_arguments_output_and_end(stem: Stem, tmp_path: Path) -> None:
    good = await forked(stem, tmp_path / "good", "--version")
    wrong = await forked(stem, tmp_path / "wrong", "no-such-command")

    assert (await good.wait(), await wrong.wait()) == (0, 2)
    assert (tmp_path / "good").read_text().startswith("dragoman ")
    assert "no-such-command" in (tmp_path / "wrong").read_text()
    assert good.pid != wrong.pid


async def test_its_environment_is_what_it_was_given_and_no_other(
    stem: Stem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_CONFIG", "/nowhere/inherited.toml")
    odd = await forked(stem, tmp_path / "odd", "--state", str(tmp_path), "check", DRAGOMAN_CONFIG="/nowhere/given.toml")

    assert await odd.wait() == 1
    assert "/nowhere/given.toml" in (tmp_path / "odd").read_text()
    assert "inherited" not in (tmp_path / "odd").read_text()


async def test_stem_from_a_place_forks_lives(stem: Stem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "stems")
    with stems_at(place) as source:
        monkeypatch.setenv(PLACE, place)
        good = await forked(stem, tmp_path / "good", "--version")
        assert await good.wait() == 0
        assert os.readlink(f"/proc/{stem.pid}/fd/0") == os.devnull
        assert stem.pid != source.pid
        stem.close()
    assert source.returncode == 0


async def test_another_copy_of_the_project_has_its_own_stem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "stems")
    with stems_at(place):
        found = await asyncio.to_thread(stem_of, place)
        assert found is not None
        found[1].close()
        monkeypatch.setattr(stems, "ROOT", tmp_path)
        assert await asyncio.to_thread(stem_of, place) is None


def test_a_daemon_is_given_no_variable_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each that it does not know it would look at all its keys, at each start."""
    monkeypatch.setenv(PROCESS, "3/8")
    assert not [name for name in environment() if name.startswith("DRAGOMAN_")]


async def test_a_daemon_is_killed_and_lives_again(tmp_path: Path) -> None:
    daemon = Daemon(folder=tmp_path, warm=True)
    await daemon.start()
    try:
        first = daemon.process
        assert isinstance(first, Life)
        assert first.returncode is None
        os.kill(first.pid, 0)
        await daemon.kill()
        assert first.returncode == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(first.pid, 0)
        await daemon.start()
        assert await daemon.stop() == 0
    finally:
        await daemon.kill()


async def test_life_without_its_stem_is_an_error(stem: Stem, tmp_path: Path) -> None:
    life = await forked(stem, tmp_path / "log", "--state", str(tmp_path), "run", DRAGOMAN_HTTP__PORT="0")
    assert stem.pid is not None
    os.kill(stem.pid, signal.SIGKILL)

    with pytest.raises(AssertionError, match="is gone"):
        await life.wait()
    os.kill(life.pid, signal.SIGKILL)
