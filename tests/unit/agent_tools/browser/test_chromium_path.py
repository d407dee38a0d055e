"""Chromium lookup, the error when there is none, and the script that starts it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent_tools.browser.chromium import UNUSED, starter
from agent_tools.browser.chromium_path import find_chromium
from gateway.errors import NotFound


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without any browser."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}


def put(path: Path, text: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_configured_one_before_all_others(tmp_path: Path, machine: dict[str, str]) -> None:
    put(tmp_path / "bin/chromium")
    mine = put(tmp_path / "mine")
    assert find_chromium(str(mine), machine) == mine


@pytest.mark.parametrize("mode", [0o644, None])
def test_a_configured_one_that_cannot_run_is_not_replaced(
    tmp_path: Path, machine: dict[str, str], mode: int | None
) -> None:
    put(tmp_path / "bin/chromium")
    if mode is not None:
        put(tmp_path / "mine", mode=mode)
    with pytest.raises(NotFound, match=r"mine cannot be run\. Correct `executable` in \[tools\.browser\]"):
        find_chromium(str(tmp_path / "mine"), machine)


@pytest.mark.parametrize("named", [False, True])
def test_newest_playwright_chromium_precedes_the_systems(tmp_path: Path, machine: dict[str, str], named: bool) -> None:
    put(tmp_path / "bin/chromium")
    folder = tmp_path / ("browsers" if named else ".cache/ms-playwright")
    environ = {**machine, "PLAYWRIGHT_BROWSERS_PATH": str(folder)} if named else machine
    put(folder / "chromium-999/chrome-linux/chrome")
    put(folder / "chromium-2000/chrome-linux64/chrome", mode=0o644)
    newest = put(folder / "chromium-1000/chrome-linux64/chrome")
    put(folder / "chromium_headless_shell-3000/chrome-linux/headless_shell")
    assert find_chromium(None, environ) == newest


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (["google-chrome", "chromium-browser"], "chromium-browser"),
        (["microsoft-edge", "google-chrome-stable"], "google-chrome-stable"),
        (["chromium-headless-shell", "microsoft-edge"], "microsoft-edge"),
        (["chromium-headless-shell"], "chromium-headless-shell"),
    ],
)
def test_the_systems_own(tmp_path: Path, machine: dict[str, str], there: list[str], found: str) -> None:
    for name in there:
        put(tmp_path / "bin" / name)
    assert find_chromium(None, machine) == tmp_path / "bin" / found


def test_a_snap_is_none(tmp_path: Path, machine: dict[str, str]) -> None:
    put(tmp_path / "bin/chromium-browser", '#!/bin/sh\nexec /snap/bin/chromium "$@"\n')
    put(tmp_path / "usr/bin/snap")
    (tmp_path / "bin/chromium").symlink_to(tmp_path / "usr/bin/snap")
    with pytest.raises(NotFound):
        find_chromium(None, machine)
    edge = put(tmp_path / "bin/microsoft-edge")
    assert find_chromium(None, machine) == edge


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=debian\n", "apt install chromium (or: "),
        ('ID=raspbian\nID_LIKE="debian"\n', "apt install chromium (or: "),
        ("ID=ubuntu\nID_LIKE=debian\n", "-m playwright install chromium --with-deps."),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "-m playwright install chromium --with-deps."),
        ("NAME=Fedora\nID=fedora\n", "dnf install chromium (or: "),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install chromium (or: "),
        ("ID=arch\n", "pacman -S chromium (or: "),
        ("ID=alpine\n", "apk add chromium (or: "),
        ("ID=plan9\n", "-m playwright install chromium."),
        (None, "-m playwright install chromium."),
    ],
)
def test_missing_chromium_has_this_systems_command_as_cure(
    tmp_path: Path, machine: dict[str, str], release: str | None, command: str
) -> None:
    file = tmp_path / "os-release"
    if release is not None:
        file.write_text(release)
    with pytest.raises(NotFound) as missing:
        find_chromium(None, machine, file)
    assert command in missing.value.cure
    assert missing.value.message == "There is no Chromium on this machine."


def test_starter_joins_what_is_switched_off(tmp_path: Path) -> None:
    program = put(tmp_path / "a program", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    started = starter(tmp_path / "start", program, "--user-data-dir=/a folder")
    given = ["--one two", "--disable-features=Lens,Aim", "--last=$HOME"]
    said = subprocess.run([started, *given], check=True, capture_output=True, text=True).stdout.splitlines()
    assert said == ["--one two", f"--disable-features=Lens,Aim,{UNUSED}", "--last=$HOME", "--user-data-dir=/a folder"]
