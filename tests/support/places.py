"""Places that are worse than this machine: a disk of a few MiB, a folder nobody can write, no bubblewrap.

Each is a mount namespace that only the daemon under test sees, so that nothing of it can be left behind.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import PATIENCE_S


def with_mounts(script: str) -> tuple[str, ...]:
    """The beginning of a command line that runs in a mount namespace of its own, after a shell script made it."""
    return (*_unshare(), "sh", "-ec", f'{script}\nexec "$@"', "sh")


def without_bubblewrap() -> tuple[str, ...]:
    """Return the prefix of a place without the program `bwrap`."""
    found = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    return with_mounts(f"mount --bind /dev/null {found}" if found else "true")


def read_only(folder: Path) -> tuple[str, ...]:
    """Return the prefix of a place where a folder cannot be written, not even by root."""
    return with_mounts(f"mount -t tmpfs -o ro,mode=0700 none {folder}")


def _unshare() -> tuple[str, ...]:
    as_user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ("unshare", *as_user, "--mount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk of a few MiB at a folder, which lives as long as its context."""

    holder: int
    folder: Path

    @property
    def enter(self) -> tuple[str, ...]:
        """The beginning of a command line that sees it."""
        as_user = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
        return ("nsenter", "--target", str(self.holder), *as_user, "--mount", "--wd=.")

    @property
    def seen(self) -> Path:
        """The folder as it can be read and written from outside."""
        return Path(f"/proc/{self.holder}/root{self.folder}")

    def fill(self, leave_kib: int = 0) -> None:
        """Write a file until nothing more goes in, then give so much back."""
        with (self.seen / "filler").open("ab", buffering=0) as file:
            with suppress(OSError):
                while file.write(b"\0" * 4096) == 4096:
                    pass
            file.truncate(file.tell() // 4096 * 4096 - leave_kib * 1024)

    def free(self) -> None:
        """Remove that file."""
        (self.seen / "filler").unlink()


@asynccontextmanager
async def small_disk(folder: Path, mib: int = 8) -> AsyncGenerator[Disk]:
    """Mount one at the folder, for those that enter."""
    script = f"mkdir -p {folder}; mount -t tmpfs -o size={mib}m,mode=0700 none {folder}; echo mounted; exec sleep 3600"
    holder = await asyncio.create_subprocess_exec(
        *_unshare(), "sh", "-ec", script, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        assert holder.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            assert await holder.stdout.readline() == b"mounted\n"
        yield Disk(holder=holder.pid, folder=folder)
    finally:
        holder.kill()
        await holder.wait()
