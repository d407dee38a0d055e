"""Lookup of configuration and state."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from config.paths import find_config, find_state, misplaced, users_config
from gateway.errors import ConfigError


def test_forbidden_folder_is_not_taken_for_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(ConfigError, match=r"config\.toml cannot be looked for: Permission denied") as refused:
        find_config(None, {"HOME": "/home/ann"})
    assert "--config" in refused.value.cure


def test_an_empty_one_means_all_defaults(tmp_path: Path) -> None:
    assert find_config(None, {"HOME": str(tmp_path)}) is None
    assert find_config(None, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "/dev/null"}) is None
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "dragoman").symlink_to("elsewhere")
    assert find_config(None, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}) is None


@pytest.mark.parametrize("link", [".config/dragoman/config.toml", ".config/dragoman", ".config"])
@pytest.mark.parametrize("target", ["nowhere", "itself"])
def test_a_link_that_leads_nowhere_is_not_taken_for_an_empty_one(tmp_path: Path, link: str, target: str) -> None:
    place = tmp_path / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(place if target == "itself" else tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="a link on its way leads nowhere") as refused:
        find_config(None, {"HOME": str(tmp_path)})
    assert str(tmp_path / ".config/dragoman/config.toml") in refused.value.message
    assert refused.value.cure == "Correct the link, or remove it."


def test_an_option_that_is_empty_does_not_mean_the_users_own(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "DRAGOMAN_STATE": "/state", "DRAGOMAN_CONFIG": "/config"}
    for find, option in ((find_config, "--config"), (find_state, "--state")):
        with pytest.raises(ConfigError, match=f"{option} names nothing") as refused:
            find("", environ)
        assert refused.value.cure == f"Write a path behind it, or leave {option} out."


def test_a_variable_that_is_empty_counts_as_unset(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "DRAGOMAN_STATE": "", "DRAGOMAN_CONFIG": ""}
    assert find_config(None, environ) is None
    assert find_state(None, environ) == tmp_path / ".local/state/dragoman"


def test_a_relative_home_is_not_believed() -> None:
    assert find_state(None, {"HOME": "here"}) == find_state(None, {})
    assert find_state("~/x", {"HOME": "here"}).is_absolute()


@pytest.mark.parametrize("name", ["a#b", "a?b"])
def test_a_state_folder_that_cannot_be_in_an_address_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"has a # or \? in its path") as refused:
        find_state(tmp_path / name, {})
    assert "--state" in refused.value.cure


def test_removed_current_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="the relative path here cannot be resolved") as refused:
        find_state("here", {})
    assert refused.value.cure == "Write the whole path."
    assert find_state("/there", {}) == Path("/there")


@pytest.mark.parametrize("path", ["/" + "x" * 256, "/x" * 247, "/" + "ü" * 128])
def test_state_folder_beyond_the_systems_limit_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="is the limit") as refused:
        find_state(path, {})
    assert refused.value.cure == "Name a shorter one with --state."


def test_configuration_in_the_wrong_place_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = users_config({"HOME": str(tmp_path)})
    place.parent.mkdir(parents=True)
    wrong = [tmp_path / "config.toml", tmp_path / ".config/dragoman/dragoman.toml", tmp_path / ".config/dragoman.toml"]
    for file in wrong:
        file.touch()
    assert set(map(str, wrong)) <= set(misplaced(place))
