"""Start script `run`: makes the environment when needed and repairs interrupted ones. uv is a small fake."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = """
[project.optional-dependencies]
telegram = []
slack = []
providers = []

[dependency-groups]
dev = ["pytest>=9"]
"""
FAKE_UV = """#!/bin/sh
echo "$@" >> "{log}"
[ -e "{broken}" ] && exit 1
case "$1" in venv) sleep 0.2; mkdir -p .venv/bin; cp "{python}" .venv/bin/python;; esac
"""
FAKE_PYTHON = '#!/bin/sh\necho started "$@"\n'


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder with the script, and a uv on PATH that only records its arguments."""

    root: Path
    tools: Path

    def command(self) -> list[str]:
        """Return the command that starts the script."""
        return [sys.executable, str(self.root / "run")]

    def environment(self) -> dict[str, str]:
        """Return an environment in which the fake is the only uv."""
        return {**os.environ, "PATH": f"{self.tools}:/usr/bin:/bin"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Start the script and wait for it."""
        command = [*self.command(), *arguments]
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=20, check=False)

    def asked(self) -> list[str]:
        """Return the commands that uv was given so far."""
        log = self.tools / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root, tools = tmp_path / "a checkout", tmp_path / "tools"
    root.mkdir()
    tools.mkdir()
    shutil.copy(ROOT / "run", root / "run")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "requirements.lock").write_text("")
    python, uv = tools / "fake-python", tools / "uv"
    python.write_text(FAKE_PYTHON)
    uv.write_text(FAKE_UV.format(log=tools / "log", broken=tools / "broken", python=python))
    python.chmod(0o755)
    uv.chmod(0o755)
    return Checkout(root=root, tools=tools)


def test_the_first_start_installs_and_starts(checkout: Checkout) -> None:
    done = checkout.run()
    assert done.stdout == "started -P -m gateway run\n"
    assert "Making the environment" in done.stderr
    assert [line.split()[0] for line in checkout.asked()] == ["venv", "pip"]
    assert checkout.asked()[-1].endswith("-c requirements.lock -e .[telegram,slack]"), "with what the channels need"


def test_the_next_start_installs_nothing(checkout: Checkout) -> None:
    checkout.run()
    before = checkout.asked()
    done = checkout.run("link", "a b")
    assert (done.stdout, done.stderr) == ("started -P -m gateway link a b\n", "")
    assert checkout.asked() == before


def test_more_is_added_once_and_stays(checkout: Checkout) -> None:
    """A heavy extra is installed on request, and again when the environment is made anew."""
    first = checkout.run("add", "providers")
    assert (first.returncode, first.stdout) == (0, "")
    assert checkout.asked()[-1].endswith("-e .[telegram,slack,providers]")
    assert checkout.run().stdout == "started -P -m gateway run\n"
    asked = len(checkout.asked())
    checkout.run("add", "providers")
    assert len(checkout.asked()) == asked, "it is there"
    shutil.rmtree(checkout.root / ".venv")
    checkout.run()
    assert checkout.asked()[-1].endswith("-e .[telegram,slack,providers]")


@pytest.mark.parametrize("names", [[], ["nosuch"], ["providers", "../x"]])
def test_unknown_extra_is_refused_with_the_known_ones(checkout: Checkout, names: list[str]) -> None:
    done = checkout.run("add", *names)
    assert done.returncode == 1
    assert "providers, slack, telegram" in done.stderr
    assert checkout.asked() == []


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_changed_requirements_are_installed(checkout: Checkout, name: str) -> None:
    checkout.run()
    with (checkout.root / name).open("a") as file:
        file.write("# changed\n")
    checkout.run()
    assert [line.split()[0] for line in checkout.asked()] == ["venv", "pip", "pip"]


def test_checks_install_the_developers_tools_and_every_extra(checkout: Checkout) -> None:
    checkout.run()
    assert checkout.run("test", "-x").stdout == "started -m tests.checks -x\n"
    assert checkout.asked()[-1].endswith("-c requirements.lock -e .[telegram,slack,providers] pytest>=9")
    before = checkout.asked()
    checkout.run()
    checkout.run("bench")
    assert checkout.asked() == before


def test_interrupted_environment_is_recreated(checkout: Checkout) -> None:
    (checkout.tools / "broken").touch()
    failed = checkout.run()
    assert failed.returncode == 1
    assert "run ./run again" in failed.stderr
    (checkout.root / ".venv" / "half").touch()
    (checkout.tools / "broken").unlink()
    assert checkout.run().stdout == "started -P -m gateway run\n"
    assert not (checkout.root / ".venv" / "half").exists()


def test_an_environment_made_by_hand_is_kept(checkout: Checkout) -> None:
    python = checkout.root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    shutil.copy(checkout.tools / "fake-python", python)
    (checkout.root / ".venv" / "mine").touch()
    assert checkout.run().stdout == "started -P -m gateway run\n"
    assert (checkout.root / ".venv" / "mine").exists()
    assert [line.split()[0] for line in checkout.asked()] == ["pip"]


def test_an_interpreter_that_vanished_is_replaced(checkout: Checkout) -> None:
    checkout.run()
    (checkout.root / ".venv" / "bin" / "python").unlink()
    assert checkout.run().stdout == "started -P -m gateway run\n"


def test_a_folder_that_cannot_be_written_is_reported_in_words(checkout: Checkout) -> None:
    (checkout.root / ".venv").write_text("in the way")
    done = checkout.run("check")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be made: File exists.\nFix that, then run ./run again.\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_of_another_user_is_to_be_made_by_that_user(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(checkout.root / "run")
    left = runpy.run_path(script)["not_made"](PermissionError(13, "Permission denied"))
    assert left.code == 1
    assert f"Run ./run --help once as the user to whom {checkout.root} belongs." in capsys.readouterr().err


def test_two_at_once_install_once(checkout: Checkout) -> None:
    both = [
        subprocess.Popen(checkout.command(), env=checkout.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [one.communicate(timeout=20)[0] for one in both] == [b"started -P -m gateway run\n"] * 2
    assert [line.split()[0] for line in checkout.asked()] == ["venv", "pip"]
