"""File copies between the session's workspace and the browser's folder, without following links on either side.

Programs of the session write into the workspace, and a page may have taken over the browser: neither folder is
trusted. All functions block; call them in a thread. Used by `files`.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from agent_tools.browser.saving import RESERVED, is_reserved
from agent_tools.browser.trouble import Trouble

LARGEST_UPLOAD = 50 * 1024 * 1024
"""Most bytes of an uploaded file."""
_CHUNK = 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BENEATH = "Name a file beneath the workspace, as in `reports/july.pdf`."


def safe_name(suggested: str, otherwise: str) -> str:
    """Return a new name with the safe part of the suggested one: `july-3f2a91.pdf`."""
    stem, dot, ending = suggested.replace("\\", "/").rpartition("/")[2].rpartition(".")
    stem = re.sub(r"[^A-Za-z0-9]+", "-", stem if dot else ending)[:40].strip("-").lower() or otherwise
    ending = re.sub(r"[^A-Za-z0-9]", "", ending)[:8].lower() if dot else ""
    return f"{stem}-{secrets.token_hex(3)}" + (f".{ending}" if ending else "")


def parts_of(workspace: Path, path: str) -> tuple[str, ...]:
    """Return the path parts from the workspace to a file. Raises `Trouble` for a path outside it."""
    given = PurePosixPath(path)
    if given.is_absolute():
        if not given.is_relative_to(workspace):
            raise Trouble("path", "That path is outside the workspace.", _BENEATH)
        given = given.relative_to(workspace)
    if not given.parts or ".." in given.parts or path.endswith("/"):
        raise Trouble("path", "That path does not name a file of the workspace.", _BENEATH)
    return given.parts


def new_parts_of(workspace: Path, path: str) -> tuple[str, ...]:
    """Return the path parts of a file to be saved, as `parts_of`. Raises `Trouble` for a reserved path."""
    parts = parts_of(workspace, path)
    if is_reserved(parts):
        raise Trouble("path", "That path is reserved for attachments.", f"{RESERVED}.")
    return parts


@contextmanager
def _folder(root: Path, names: tuple[str, ...], *, make: bool) -> Generator[int]:
    """Open a folder below the root, one component at a time, so that no link is followed, not even one swapped in."""
    opened = os.open(root, _FOLDER)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, mode=0o755, dir_fd=opened)
            deeper = os.open(name, _FOLDER, dir_fd=opened)
            os.close(opened)
            opened = deeper
        yield opened
    finally:
        os.close(opened)


def store(workspace: Path, parts: tuple[str, ...], data: bytes) -> Path:
    """Write a new file; return its path. Raises `Trouble` when it exists or the path has a link."""
    with _written(workspace, parts) as file:
        _write_all(file, data)
    return workspace.joinpath(*parts)


def take_in(source: Path, workspace: Path, parts: tuple[str, ...], largest: int) -> Path:
    """Copy a download to a new file in the workspace; return its path. Raises `Trouble`."""
    with _written(workspace, parts) as file, _opened(source.parent, (source.name,), largest) as there:
        _copy(there, file, largest)
    return workspace.joinpath(*parts)


def hand_over(workspace: Path, parts: tuple[str, ...], folder: Path) -> Path:
    """Copy a file of the workspace to the browser's folder; return its path there. Raises `Trouble`."""
    within = (f"upload-{secrets.token_hex(6)}", parts[-1])
    with _opened(workspace, parts, LARGEST_UPLOAD) as there, _written(folder, within) as file:
        _copy(there, file, LARGEST_UPLOAD)
    return folder.joinpath(*within)


@contextmanager
def _opened(root: Path, parts: tuple[str, ...], largest: int) -> Generator[int]:
    """Open a regular file for reading."""
    shown = "/".join(parts)
    try:
        with _folder(root, parts[:-1], make=False) as folder:
            file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        raise Trouble("path", f"There is no file `{shown}`.", _BENEATH) from None
    except OSError as error:
        raise Trouble(
            "path", f"`{shown}` cannot be read: {error.strerror}. Links are not followed.", _BENEATH
        ) from None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise Trouble("path", f"`{shown}` is not a regular file.", _BENEATH)
        if found.st_size > largest:
            raise Trouble("size", f"`{shown}` is larger than {largest // 1024**2} MB.", "Use a smaller file.")
        yield file
    finally:
        os.close(file)


@contextmanager
def _written(root: Path, parts: tuple[str, ...]) -> Generator[int]:
    """Create a file; remove it when the body fails."""
    shown = "/".join(parts)
    try:
        with _folder(root, parts[:-1], make=True) as folder:
            file = os.open(parts[-1], _NEW, 0o644, dir_fd=folder)
            try:
                yield file
            except BaseException:
                os.unlink(parts[-1], dir_fd=folder)
                raise
            finally:
                os.close(file)
    except FileExistsError:
        raise Trouble("path", f"`{shown}` exists already.", "Name another path, or leave `path` out.") from None
    except OSError as error:
        raise Trouble(
            "path", f"`{shown}` cannot be written: {error.strerror}. Links are not followed.", _BENEATH
        ) from None


def _copy(source: int, target: int, largest: int) -> None:
    copied = 0
    while chunk := os.read(source, _CHUNK):
        copied += len(chunk)
        if copied > largest:
            raise Trouble("size", f"The file is larger than {largest // 1024**2} MB.", "Use a smaller file.")
        _write_all(target, chunk)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
