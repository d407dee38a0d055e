"""Reader of `[[hooks]]`: what is valid, what is refused with line and cure, and what is warned of."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from config.describe import lines
from config.load import Loaded, load
from config.plugins import tool_specs
from gateway.domain.hooks import HookConfig, HookEvent
from gateway.errors import ConfigError

BEFORE = '[[hooks]]\nevent = "before_tool_call"\n'
TRUE = 'command = ["/bin/true", "--quickly now"]\n'


def read(tmp_path: Path, text: str) -> Loaded:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return load(file, tmp_path / "state", {"HOME": str(tmp_path)}, tool_specs())


def test_hooks_keep_their_order(tmp_path: Path) -> None:
    after = BEFORE.replace("before", "after") + TRUE + 'tools = ["shell", "browser"]\n'
    loaded = read(tmp_path, BEFORE + TRUE + after)

    first, second = loaded.hooks
    command = ("/bin/true", "--quickly now")
    assert first == HookConfig(name="true", event=HookEvent.BEFORE, command=command)
    assert (second.event, second.tools) == (HookEvent.AFTER, {"shell", "browser"})
    assert loaded.warnings == ()
    shown = dict(lines(loaded))
    assert shown["hook before_tool_call"] == "/bin/true '--quickly now' for every tool"
    assert shown["hook after_tool_call"].endswith("for browser, shell")


def test_no_hooks_are_the_default(tmp_path: Path) -> None:
    assert read(tmp_path, "").hooks == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[hooks]\n", "hooks: it is not a list of tables. Write [[hooks]], in double brackets"),
        ('[[hooks]]\ncommand = ["/bin/true"]\n', "config.toml:1: hooks[0].event: it is missing"),
        (BEFORE.replace("before", "during") + TRUE, "hooks[0].event: it is none of the choices"),
        (BEFORE, 'hooks[0]: it needs a program or a package, one of both. Write command = ["/path'),
        (BEFORE + TRUE + 'package = "x"\n', "it needs a program or a package, one of both"),
        (BEFORE + 'command = ["check"]\n', "hooks[0].command: the program is not an absolute path. Write it whole"),
        (BEFORE + 'command = "/bin/true"\n', "hooks[0].command: it is not a list"),
        (BEFORE + 'command = ["/bin/true", "\\u0000"]\n', "hooks[0].command[1]"),
        (
            BEFORE + 'package = "nothing_such"\n',
            "hooks[0].package: no installed package has a hook named 'nothing_such'",
        ),
        (BEFORE + TRUE + 'tools = ["shel"]\n', "hooks[0].tools: there is no tool 'shel'. Did you mean \"shell\"?"),
        (BEFORE + TRUE + "tools = []\n", "hooks[0].tools: it is empty, so the hook never runs"),
        (BEFORE + TRUE + "timeout = 5\n", "hooks[0].timeout: unknown key"),
        ((BEFORE + TRUE) * 21, "hooks: there are 21 hooks. Write at most 20"),
    ],
)
def test_mistakes_are_reported_with_their_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert told in f"{caught.value.message} {caught.value.cure}"


def test_a_program_that_an_agent_could_change_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "link"
    program.symlink_to(tmp_path / "state" / "workspaces" / "main" / "check")
    with pytest.raises(ConfigError, match="the program is in the state folder, where agents write"):
        read(tmp_path, BEFORE + f'command = ["{program}"]\n')


def test_programs_that_cannot_run_or_are_unsafe_are_warned_of(tmp_path: Path) -> None:
    program = tmp_path / "check"
    text = BEFORE + f'command = ["{program}"]\n'
    (told,) = read(tmp_path, text).warnings
    assert told == (
        f"hooks: {program} is no program that can be run, so every call that it sees is refused; "
        f"create it, and run: chmod +x {program}"
    )
    program.write_text("#!/bin/sh\n")
    program.chmod(0o757)
    assert read(tmp_path, text).warnings == (
        f"hooks: {program} can be changed by every user of this machine; run: chmod o-w {program}",
    )
    program.chmod(0o755)
    assert read(tmp_path, text).warnings == ()


def test_a_package_must_bring_an_async_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "hooked-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hooked\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dragoman.hooks]\nright = hooked_code:right\nwrong = hooked_code:wrong\n")
    (tmp_path / "hooked_code.py").write_text(
        "async def right(call):\n    return {}\n\ndef wrong(call):\n    return {}\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    assert read(tmp_path, BEFORE + 'package = "right"\n').hooks[0].package == "right"
    with pytest.raises(ConfigError, match="hooked_code:wrong is no async function"):
        read(tmp_path, BEFORE + 'package = "wrong"\n')
