"""Mistakes of a new user on the command line: the message names what was wrong, where, and the cure."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gateway.cli import main


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home, which is also the current folder."""
    for name in [name for name in os.environ if name.startswith(("DRAGOMAN_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DRAGOMAN_HTTP__PORT", "0")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run the command; return its exit code and all that it printed."""
    code = main(words)
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return code, printed.out + printed.err


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["chek"], "Did you mean 'check'? Known are: run, demo, link,"),
        (["permits"], "Known are: run, demo, link,"),
        (["help"], "Write --help."),
        (["version"], "Write --version."),
        (["start"], "Write `dragoman run`."),
        (["stop"], "Press Ctrl-C"),
        (["restart"], "systemctl restart dragoman"),
        (["status"], "`dragoman sessions`"),
        (["config"], "`dragoman check`"),
        (["logs"], "journalctl -u dragoman"),
        (["login"], "`dragoman link`"),
        (["add", "browser"], "./run add."),
        (["test"], "./run test."),
        (["run", "--confg", "x"], "Did you mean '--config'?"),
        (["check", "--port", "1"], "Try 'dragoman check --help'"),
        (["run", "config.toml"], "unexpected extra argument (config.toml)"),
        (["send", "hello", "there"], "extra argument (there). Put a text of several words in quotes."),
        (["explain", "shell", "git", "status"], "Put a text of several words in quotes."),
        (["explain", "shell", "rg", "-t", "py", "x"], "No such option '-t'. Put a text of several words in quotes."),
        (["send"], "Missing argument 'TEXT'"),
        (["send", " "], "There is no text to send."),
        (["audit", "--last", "x"], "Invalid value for '--last'"),
        (["demo", "--state", "x"], "leave yours out"),
    ],
)
def test_wrong_command_names_the_right_one(capsys: pytest.CaptureFixture[str], words: list[str], cure: str) -> None:
    code, text = told(capsys, *words)
    assert code == 2
    assert cure in text


@pytest.mark.parametrize(
    ("words", "where", "cure"),
    [
        (["link"], "No daemon runs on the state folder {}/.local/state/dragoman.", "--state DIR or $DRAGOMAN_STATE"),
        (["send", "hello"], "No daemon runs on the state folder {}/.local/state/dragoman.", "Start it with"),
        (["link", "--state", "elsewhere"], "No daemon runs on the state folder {}/elsewhere.", "--state DIR"),
        (["link", "--state", "x" * 256], "a name in its path has 256 bytes", "Name a shorter one with --state."),
        (["run", "--state", "y/" * 300], "and 492 is the limit", "Name a shorter one with --state."),
        (["check", "--config", "absent.toml"], "{}/absent.toml", "Create it, or leave --config out."),
        (["run", "--config", "."], "{} cannot be read: Is a directory.", "Name the file in it: {}/config.toml."),
        (["check", "--config", ""], "--config names nothing", "or leave --config out"),
        (["slack-manifest", "--account", "x"], "There is no Slack account 'x'", "Known are: main."),
    ],
)
def test_wrong_place_is_named(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], where: str, cure: str
) -> None:
    code, text = told(capsys, *words)
    assert code == 1
    assert where.format(place) in text
    assert cure.format(place) in text


def test_check_says_where_it_looked_for_a_configuration(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "config.toml").touch()
    code, text = told(capsys, "check")
    assert code == 0
    expected = place / ".config/dragoman/config.toml"
    assert f"no file at {expected}: all defaults" in text
    assert (
        f"{place}/config.toml is not read; name it with --config {place}/config.toml, or move it to {expected}" in text
    )


def test_check_names_variable_without_effect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAGOMAN_OWNERS", '{"ann": ["telegram:1"]}')
    monkeypatch.setenv("DRAGOMAN_PORT", "9000")
    _, text = told(capsys, "check")
    assert "$DRAGOMAN_OWNERS sets nothing; $DRAGOMAN_OWNERS__NAME would." in text
    assert "$DRAGOMAN_PORT sets nothing; $DRAGOMAN_HTTP__PORT would." in text


def test_check_names_the_key_of_a_port_in_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("DRAGOMAN_HTTP__PORT", str(port))
        code, text = told(capsys, "check")
    assert code == 1
    assert f"Another program has taken 127.0.0.1:{port}." in text
    assert "set another http.port" in text


@pytest.mark.parametrize(
    ("toml", "wanted"),
    [
        ("[model]\nname = 'openia:gpt'\n", "model.name: there is no provider 'openia'"),
        ("port = 8471\n", "port is a key of [http]: write it there"),
        ("[log]\nlevel = info\n", "line 2, column 12: the value of level has no quotes"),
        ("[tools.shell]\napproval = true\n", "tools.shell.approval"),
    ],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_mistake_in_the_file_stops_the_command(
    place: Path, capsys: pytest.CaptureFixture[str], command: str, toml: str, wanted: str
) -> None:
    file = place / "mine.toml"
    file.write_text(toml)
    code, text = told(capsys, command, "--config", str(file))
    assert code == 1
    assert f"Error: {file}" in text
    assert wanted in text
    assert os.listdir(place) == ["mine.toml"]
