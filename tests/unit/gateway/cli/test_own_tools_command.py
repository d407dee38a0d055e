"""Texts of `dragoman tools`: a template that works, prices, and calls as commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.load import Loaded, load
from config.plugins import tool_specs
from gateway.cli.own_tools import Tools, command, price, write_template
from gateway.errors import BadRequest, NotFound


def loaded(folder: Path) -> Loaded:
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "config.toml").write_text('[tools]\nfolder = "mine"\n')
    return load(folder / "config.toml", folder / "state", {"HOME": str(folder)}, tool_specs())


def test_a_template_is_a_tool_with_a_price(tmp_path: Path) -> None:
    path = write_template(loaded(tmp_path), "echo")
    (tmp_path / "mine" / "bad.py").write_text("def (")
    tools = Tools(loaded(tmp_path))

    echo, bad = tools.rows(own=True)
    assert (path.name, echo["state"], bad["state"]) == (
        "echo.py", "usable", "bad.py cannot be used: line 1: invalid syntax. Correct its code.",
    )  # fmt: skip
    prices = {row["name"]: row for row in tools.prices()}
    assert prices["echo"]["first_request"] <= 60 < prices["echo"]["when_used"] == price(tools.get("echo"))
    assert "bad.py cannot be used" in "\n".join(tools.lines("file_bad"))
    assert '"times"' in "\n".join(tools.lines("echo"))
    assert command(tools.get("echo"), '{"text": "5 a\'b", "times": 2}') == """/echo 'text=5 a'"'"'b' times=2"""
    assert command(tools.get("shell"), '{"command": "ls -l"}') == "/shell ls -l"
    for name, given in {"echo": "[]", "shell": '{"command": "ls", "timeout": 1}', "file_bad": "{}"}.items():
        with pytest.raises(BadRequest):
            command(tools.get(name), given)
    with pytest.raises(NotFound):
        tools.get("nothing")


@pytest.mark.parametrize(("name", "told"), [("echo", "already"), ("Echo", "no tool name"), ("shell", "already")])
def test_a_template_takes_no_others_place(tmp_path: Path, name: str, told: str) -> None:
    write_template(loaded(tmp_path), "echo")

    with pytest.raises(BadRequest, match=told):
        write_template(loaded(tmp_path), name)
