"""Commands in the guides exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = (ROOT / "README.md", ROOT / "deploy" / "RUNBOOK.md")
OF_THE_SCRIPT = {
    "test": ROOT / "tests" / "checks.py",
    "bench": ROOT / "tests" / "bench",
    "fuzz": ROOT / "tests" / "fuzz",
    "mutants": ROOT / "tests" / "mutants.py",
    "twins": ROOT / "tests" / "twins.py",
    "soak": ROOT / "tests" / "soak",
    "proof": ROOT / "tests" / "prove.py",
    "add": ROOT / "pyproject.toml",
}
"""Commands of the script `run` itself, with the file that each starts or reads."""


def commands_in(text: str) -> set[str]:
    """Return the commands in code spans and blocks: the word after `./run`, `/opt/dragoman/run` or `dragoman`."""
    code = re.findall(r"```\w*\n(.*?)```", text, flags=re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
    found = (
        re.findall(r"(?:^|\s)(?:\S*/run|dragoman) +([a-z]+(?:-[a-z]+)*)\b", span, flags=re.MULTILINE) for span in code
    )
    return {word for words in found for word in words}


def words_of(guide: Path) -> set[str]:
    """Return a guide's commands; arguments of other programs that end in our name are not ours."""
    ours = re.sub(r"(?m)^\s*(?:useradd|systemctl|tar|docker|install|journalctl)\b.*$", "", guide.read_text())
    ours = re.sub(r"`(?:systemctl|docker|journalctl|chown|curl)\b[^`]*`", "", ours)
    return commands_in(ours)


COMMANDS = sorted({word for guide in GUIDES for word in words_of(guide)})


def test_the_guides_name_the_first_commands() -> None:
    """Check that the search finds something: otherwise the next test would pass on nothing."""
    assert {"test", "link", "check", "sessions", "approvals"} <= set(COMMANDS)


@pytest.mark.parametrize("command", [word for word in COMMANDS if word not in OF_THE_SCRIPT])
def test_commands_in_guides_exist(command: str) -> None:
    asked = [sys.executable, "-P", "-m", "gateway", command, "--help"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert command in done.stdout


@pytest.mark.parametrize("name", list(OF_THE_SCRIPT))
def test_the_scripts_own_commands_exist(name: str) -> None:
    assert OF_THE_SCRIPT[name].exists()
    assert f'"{name}"' in (ROOT / "run").read_text()


def test_commands_are_found_in_a_guide() -> None:
    text = "Say `./run link`:\n```sh\nsudo -u x A=b /opt/dragoman/run check -x\ndragoman run\n```\nA dragoman."
    assert commands_in(text) == {"link", "check", "run"}
