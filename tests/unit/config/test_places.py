"""Where configuration and state are looked for."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from config.places import find_config, find_state
from gateway.errors import ConfigError


def test_a_folder_that_cannot_be_entered_is_not_taken_for_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(ConfigError, match=r"config\.toml cannot be looked for: Permission denied") as refused:
        find_config(None, {"HOME": "/home/ann"})
    assert "--config" in refused.value.cure


def test_an_empty_one_means_all_defaults(tmp_path: Path) -> None:
    assert find_config(None, {"HOME": str(tmp_path)}) is None
    assert find_config(None, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "/dev/null"}) is None


def test_a_relative_home_is_not_believed() -> None:
    assert find_state(None, {"HOME": "here"}) == find_state(None, {})
    assert find_state("~/x", {"HOME": "here"}).is_absolute()


@pytest.mark.parametrize("name", ["a#b", "a?b"])
def test_a_state_folder_that_cannot_be_in_an_address_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"has a # or \? in its path") as refused:
        find_state(tmp_path / name, {})
    assert "--state" in refused.value.cure


def test_a_folder_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="nobody knows where here is") as refused:
        find_state("here", {})
    assert refused.value.cure == "Write the whole path."
    assert find_state("/there", {}) == Path("/there")
