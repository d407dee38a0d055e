from __future__ import annotations

from pathlib import Path

import pytest

from config.describe import lines
from config.load import Loaded, load
from gateway.domain.nodes import Role
from gateway.errors import ConfigError

KEY = "k" * 32


def loaded(folder: Path, **variables: str) -> Loaded:
    return load(None, folder / "state", {"HOME": str(folder), "KEY": KEY, **variables}, {})


def test_a_daemon_has_every_role_and_no_name_of_its_own(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    assert (found.settings.cluster.node, set(found.settings.cluster.roles)) == ("", set(Role))
    assert not {"cluster key", "node", "roles"} & dict(lines(found)).keys()


def test_variables_name_a_node_and_its_roles(tmp_path: Path) -> None:
    """`dragoman run --node … --roles …` sets these."""
    given = {"NODE": "node-1", "ROLES": "worker,delivery", "KEY": "env:KEY"}
    found = loaded(tmp_path, **{f"DRAGOMAN_CLUSTER__{name}": value for name, value in given.items()})
    assert found.settings.cluster.roles == (Role.WORKER, Role.DELIVERY)
    shown = dict(lines(found))
    assert (shown["node"], shown["roles"], shown["cluster key"]) == ("node-1", "worker, delivery", "set")
    assert KEY not in str(shown)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("ROLES", "worker,cook", "worker"),
        ("ROLES", "[]", "a node without a role does nothing"),
        ("NODE", "two words", "letters, digits, dots and dashes"),
        ("NODE", "a#b", "'a#b' is no name of a node"),
        ("WORKSPACES", "mnt/files", "'mnt/files' is no absolute path. Write it whole"),
        ("KEY", "secret in clear", "a secret is not written here itself"),
        ("KEY", "env:NONE", "NONE is not set"),
    ],
)
def test_bad_values_are_refused_with_a_cure(tmp_path: Path, key: str, value: str, told: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        loaded(tmp_path, **{f"DRAGOMAN_CLUSTER__{key}": value})
    assert told in str(wrong.value)
    assert "secret in clear" not in str(wrong.value)


def test_workspaces_of_all_nodes_are_no_place_of_programs(tmp_path: Path) -> None:
    """Agents write there."""
    (shared := tmp_path / "disk").mkdir()
    file = tmp_path / "config.toml"
    hook = f'[[hooks]]\nevent = "before_tool_call"\ncommand = ["{shared}/check"]\n'
    start = f'[store]\nurl = "redis://localhost"\n[cluster]\nworkspaces = "{shared}"\n'
    file.write_text(start)
    assert load(file, tmp_path / "state", {}, {}).shared == shared
    file.write_text(f'{start}{hook}[tools]\nfolder = "{shared}"\n')
    with pytest.raises(ConfigError) as wrong:
        load(file, tmp_path / "state", {}, {})
    assert str(wrong.value).count("beside the workspaces, where agents write") == 2


def test_a_lone_daemon_keeps_its_workspaces(tmp_path: Path) -> None:
    found = loaded(tmp_path, DRAGOMAN_CLUSTER__WORKSPACES="/mnt/files")
    assert found.shared is None
    assert "cluster.workspaces has no effect: only nodes on one Redis share workspaces." in found.warnings
