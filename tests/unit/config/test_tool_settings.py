"""Settings of a tool and the resulting policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.describe import lines
from gateway.domain.tools import Risk
from tests.unit.config.test_load import read


@pytest.mark.parametrize(
    ("toml", "tool", "ceilings"),
    [
        ("", "shell", set[str]()),
        ('[tools.shell]\ntimeout = "60s"\n', "shell", {"shell"}),
        ('[tools.timeouts]\nshell = "60s"\n', "shell", {"shell"}),
        ('[tools.timeouts]\n"browser.download" = "5s"\n', "browser", {"download"}),
        ('[tools.timeouts]\nbrowser = "5s"\n', "browser", {"browser"}),
    ],
)
def test_a_timeout_that_is_set_is_a_ceiling(tmp_path: Path, toml: str, tool: str, ceilings: set[str]) -> None:
    assert read(tmp_path, toml).tools[tool].ceilings == ceilings


@pytest.mark.parametrize(
    ("toml", "seconds", "described"),
    [("", 300, "5m"), ('browser = "20s"', 20, "20s"), ('browser = "20s"\n"browser.download" = "50s"', 50, "50s")],
)
def test_a_tools_timeout_caps_its_actions(tmp_path: Path, toml: str, seconds: int, described: str) -> None:
    loaded = read(tmp_path, f"[tools.timeouts]\n{toml}\n")

    assert loaded.tools["browser"].timeout_of("browser", "download") == seconds
    (line,) = [text for name, text in lines(loaded) if name == "tool browser"]
    assert f"download {described}," in line


@pytest.mark.parametrize(
    ("tool", "availability", "approval", "kinds"),
    [
        ("shell", "always", '"allow"', ["dm", "non-main"]),
        ("browser", "always", '"allow"', ["dm", "non-main"]),
        ("browser", "non-main", '{ dm = "allow" }', ["dm"]),
        ("browser", "always", '{ main = "allow" }', []),
        ("browser", "main", '"allow"', []),
        ("browser", "blocked", '"allow"', []),
        ("spawn", "always", '"allow"', []),
    ],
)
def test_allow_outside_main_warns_by_the_risk(
    tmp_path: Path, tool: str, availability: str, approval: str, kinds: list[str]
) -> None:
    toml = f'[tools.{tool}]\npermission = "{availability}"\napproval = {approval}\n'
    risk = {"shell": Risk.EXECUTE, "browser": Risk.NETWORK}.get(tool)

    assert [line for line in read(tmp_path, toml).warnings if "without asking" in line] == [
        f"tools.{tool}: runs without asking anyone in sessions of kind {kind} (risk {risk}). "
        f'Set approval = {{ {kind} = "ask" }} to be asked.'
        for kind in kinds
    ]
