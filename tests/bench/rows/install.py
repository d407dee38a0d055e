"""Row: size of an installation without extras, in a fresh environment. Slow, so only with `--install`."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from tests.bench.figures import Figure
from tests.bench.world import Bench
from tests.support.daemon import ROOT

WITHIN_S = 300.0


async def install(bench: Bench) -> list[Figure]:
    """Packages, and MB on the disk with the compiled files that the installer makes."""
    place = bench.new_folder() / "venv"
    uv = shutil.which("uv")
    if uv:
        await _run(uv, "venv", "--quiet", "--python", sys.executable, str(place))
        install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(place / "bin" / "python")]
    else:
        await _run(sys.executable, "-m", "venv", str(place))
        install = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    await _run(*install, "-c", "requirements.lock", ".")
    own = {"pip", "setuptools"}  # what the environment itself may bring
    packages = [one for one in place.glob("lib/python*/site-packages/*.dist-info") if one.name.split("-")[0] not in own]
    return [
        Figure(what="base install, packages", value=len(packages), budget=60),
        Figure(what="base install, disk", value=_size_mb(place), unit="MB", budget=120),
    ]


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=asyncio.subprocess.DEVNULL)
    async with asyncio.timeout(WITHIN_S):
        assert await process.wait() == 0, command


def _size_mb(folder: Path) -> float:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_blocks * 512 for path in files) / 1_048_576
