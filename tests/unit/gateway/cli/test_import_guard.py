"""The start-up guard: another package that took one of our import names stops the start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gateway
from gateway.cli.import_guard import NAMES, check_imports

ROOT = Path(gateway.__file__).parent.parent


def test_our_own_packages_pass() -> None:
    check_imports()


@pytest.mark.parametrize("name", ["channels", "config", "agent_tools"])
def test_a_package_earlier_on_the_path_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise SystemExit('the other package ran')\n")
    done = start(tmp_path, ROOT)
    assert done.returncode == 1
    assert f"Another package has taken the import name '{name}': {tmp_path / name}" in done.stderr
    assert "environment of its own" in done.stderr
    assert "the other package ran" not in done.stderr + done.stdout


def test_a_module_and_a_bare_folder_are_not_ours_either(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("")
    assert "taken the import name 'config'" in start(tmp_path, ROOT).stderr


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    copy_of_us(tmp_path)
    shutil.rmtree(tmp_path / "agent_tools")
    (tmp_path / "agent_tools").mkdir()
    done = start(tmp_path)
    assert done.returncode == 1
    assert "'agent_tools'" in done.stderr


def test_a_package_installed_over_ours_is_named(tmp_path: Path) -> None:
    copy_of_us(tmp_path)
    (tmp_path / "channels" / "__init__.py").write_text('__version__ = "4.2"\n')
    done = start(tmp_path)
    assert done.returncode == 1
    assert f"Another package was installed over {tmp_path / 'channels'}" in done.stderr


def test_a_copy_of_us_elsewhere_passes(tmp_path: Path) -> None:
    copy_of_us(tmp_path)
    done = start(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def copy_of_us(folder: Path) -> None:
    for name in NAMES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "static"))


def start(*path: Path) -> subprocess.CompletedProcess[str]:
    """Run `dragoman --help` with these folders first on the path."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    # By a module outside, so that Python puts no folder of ours before the others.
    code = "import runpy; runpy.run_module('gateway', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-P", "-c", code, "--help"], env=environ, cwd="/", capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip
