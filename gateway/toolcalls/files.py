"""Files of a call's workspace, opened without following links. Used by `execution`, `decide`, `file_changes`.

Programs of the session write into the workspace, and a page may have taken over the browser: neither folder is
trusted. The functions block; `WorkspaceFiles` calls them in a thread.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from gateway.domain.file_changes import NEW_FILE_MODE
from gateway.domain.tools import INBOX
from gateway.errors import BadRequest, NotFound, TooLarge
from gateway.ports import Entry
from gateway.system.safe_open import open_beneath

UNLISTED = frozenset({".git", "node_modules", "__pycache__", ".venv"})
"""Folders whose content is left out of lists."""
ENTRIES_AT_MOST = 20_000
"""Files and folders of one list that are counted."""
_CHUNK = 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS = 0o777
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BENEATH = "Name a file beneath the workspace, as in `reports/july.pdf`."


class WorkspaceFiles:
    """`ports.Files` of one workspace."""

    def __init__(self, root: Path, hidden: Callable[[str], bool] | None = None) -> None:
        """Take the workspace folder, with links resolved. `hidden`: paths that are left out of lists and searches."""
        self._root = root
        self._hidden = hidden

    def is_hidden(self, path: str) -> bool:
        """Return whether a rule denies this tool a path."""
        return self._hidden is not None and self._hidden(path)

    @property
    def root(self) -> Path:
        """The workspace folder."""
        return self._root

    def parts(self, path: str) -> tuple[str, ...]:
        """Return the names from the workspace to a file."""
        given = PurePosixPath(path)
        if given.is_absolute():
            if not given.is_relative_to(self._root):
                raise BadRequest("That path is outside the workspace.", cure=_BENEATH)
            given = given.relative_to(self._root)
        if not given.parts or ".." in given.parts or path.endswith("/") or "\0" in path:
            raise BadRequest("That path does not name a file of the workspace.", cure=_BENEATH)
        return given.parts

    def new_parts(self, path: str) -> tuple[str, ...]:
        """Return the names from the workspace to a file that may be written."""
        parts = self.parts(path)
        if parts[0] == INBOX:
            cure = f"`{INBOX}` holds what people sent: save elsewhere."
            raise BadRequest("That path is reserved for attachments.", cure=cure)
        return parts

    async def read(self, path: str, most: int) -> bytes:
        """Return the content of a regular file."""
        return await asyncio.to_thread(read_file, self._root, self.parts(path), most)

    async def mode(self, path: str) -> int:
        """Return the permissions of a regular file."""
        return await asyncio.to_thread(file_mode, self._root, self.parts(path))

    async def entries(self, path: str, most: int) -> tuple[Sequence[Entry], int]:
        """Return the entries beneath a folder."""
        parts = () if path in (".", "./", str(self._root)) else self.parts(path.rstrip("/"))
        found, left = await asyncio.to_thread(_entries, self._root, parts, most)
        return [one for one in found if not self.is_hidden(one.path)], left

    async def create(self, path: str, data: bytes) -> Path:
        """Write a new file."""
        return await asyncio.to_thread(_create, self._root, self.new_parts(path), data)

    async def replace(self, path: str, data: bytes) -> Path:
        """Write a file, atomically."""
        return await asyncio.to_thread(replace_file, self._root, self.new_parts(path), data)

    async def take_in(self, source: Path, path: str, most: int) -> Path:
        """Copy a file from a folder of the tool into the workspace."""
        return await asyncio.to_thread(_copy_new, source.parent, (source.name,), self._root, self.new_parts(path), most)

    async def hand_over(self, path: str, folder: Path, most: int) -> Path:
        """Copy a file of the workspace into a new subfolder of the tool's folder."""
        parts = self.parts(path)
        within = (f"upload-{secrets.token_hex(6)}", parts[-1])
        return await asyncio.to_thread(_copy_new, self._root, parts, folder, within, most)


def read_file(root: Path, parts: tuple[str, ...], most: int) -> bytes:
    """Return the content of a regular file. Raises `NotFound`, `BadRequest` and `TooLarge`."""
    with _opened(root, parts, most) as file, os.fdopen(os.dup(file), "rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise _too_large("/".join(parts), most)
    return data


def file_mode(root: Path, parts: tuple[str, ...]) -> int:
    """Return the permissions of a regular file. Raises `NotFound` and `BadRequest`."""
    with _opened(root, parts, sys.maxsize) as file:
        return os.fstat(file).st_mode & _PERMISSIONS


def _create(root: Path, parts: tuple[str, ...], data: bytes) -> Path:
    with _written(root, parts) as file:
        _write_all(file, data)
    return root.joinpath(*parts)


def _entries(root: Path, parts: tuple[str, ...], most: int) -> tuple[list[Entry], int]:
    """Walk level by level, by descriptors, so that no link is followed."""
    found: list[Entry] = []
    seen = 0
    folders = [parts]
    for names in folders:
        try:
            level = _level(root, names, most)
        except OSError as error:
            if names == parts:
                shown = "/".join(names) or "."
                why = f"`{shown}` is not a folder of the workspace: {error.strerror}. Links are not followed."
                raise BadRequest(why, cure=_BENEATH) from None
            continue  # it went away meanwhile, or is closed
        seen += len(level)
        found += level[: most - len(found)]
        folders += [tuple(one.path.split("/")) for one in level if one.folder and _name(one) not in UNLISTED]
        if seen > ENTRIES_AT_MOST or not most:
            break
    return found, seen - len(found)


def _level(root: Path, names: tuple[str, ...], most: int) -> list[Entry]:
    """Return the regular files and folders of one folder, by name; none with `most` 0. Raises `OSError`."""
    level: list[Entry] = []
    if not most:
        with _folder(root, names, make=False):
            return level
    with _folder(root, names, make=False) as opened, os.scandir(opened) as scanned:
        for entry in scanned:
            mode = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(mode.st_mode) or stat.S_ISREG(mode.st_mode):
                is_folder = stat.S_ISDIR(mode.st_mode)
                path = "/".join((*names, entry.name))
                level.append(Entry(path=path, folder=is_folder, size=0 if is_folder else mode.st_size))
    return sorted(level, key=lambda one: one.path)


def _name(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]


def remove_file(root: Path, parts: tuple[str, ...]) -> None:
    """Remove a file. Raises `BadRequest` when that is not possible."""
    try:
        with _folder(root, parts[:-1], make=False) as folder:
            os.unlink(parts[-1], dir_fd=folder)
    except OSError as error:
        raise BadRequest(f"`{'/'.join(parts)}` cannot be removed: {error.strerror}.", cure=_BENEATH) from None


def replace_file(root: Path, parts: tuple[str, ...], data: bytes, mode: int = NEW_FILE_MODE) -> Path:
    """Write a file atomically and durably, and return its path. Raises `BadRequest` when that is not possible.

    A file that it replaces keeps its permissions; `mode` is for a new one.
    """
    shown, new = "/".join(parts), f".{parts[-1][:100]}.{secrets.token_hex(6)}"
    try:
        with _folder(root, parts[:-1], make=True) as folder:
            file = os.open(new, _NEW, _mode(folder, parts[-1], mode), dir_fd=folder)
            try:
                _write_all(file, data)
                os.fsync(file)
                os.rename(new, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(new, dir_fd=folder)
                raise
            finally:
                os.close(file)
    except OSError as error:
        raise _not_written(shown, error) from None
    return root.joinpath(*parts)


def _mode(folder: int, name: str, otherwise: int) -> int:
    """Return the permissions of a file that is replaced, or others when there is none."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode & _PERMISSIONS
    except FileNotFoundError:
        return otherwise


def _copy_new(source: Path, names: tuple[str, ...], target: Path, parts: tuple[str, ...], most: int) -> Path:
    with _opened(source, names, most) as there, _written(target, parts) as file:
        copied = 0
        while chunk := os.read(there, _CHUNK):
            copied += len(chunk)
            if copied > most:  # it grew meanwhile
                raise _too_large("/".join(names), most)
            _write_all(file, chunk)
    return target.joinpath(*parts)


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


@contextmanager
def _opened(root: Path, parts: tuple[str, ...], most: int) -> Generator[int]:
    """Open a regular file for reading."""
    shown = "/".join(parts)
    try:
        file = open_beneath(root, parts)
    except FileNotFoundError:
        raise NotFound(f"There is no file `{shown}`.", cure=_BENEATH) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadRequest(f"`{shown}` cannot be read: {why}. Links are not followed.", cure=_BENEATH) from None
    try:
        if os.fstat(file).st_size > most:
            raise _too_large(shown, most)
        yield file
    finally:
        os.close(file)


@contextmanager
def _written(root: Path, parts: tuple[str, ...]) -> Generator[int]:
    """Create a file; remove it when the body fails."""
    shown = "/".join(parts)
    try:
        with _folder(root, parts[:-1], make=True) as folder:
            file = os.open(parts[-1], _NEW, NEW_FILE_MODE, dir_fd=folder)
            try:
                yield file
            except BaseException:
                os.unlink(parts[-1], dir_fd=folder)
                raise
            finally:
                os.close(file)
    except FileExistsError:
        raise BadRequest(f"`{shown}` exists already.", cure="Name another path, or leave `path` out.") from None
    except OSError as error:
        raise _not_written(shown, error) from None


def _not_written(shown: str, error: OSError) -> BadRequest:
    return BadRequest(f"`{shown}` cannot be written: {error.strerror}. Links are not followed.", cure=_BENEATH)


def _too_large(shown: str, most: int) -> TooLarge:
    size = f"{most // 1024**2} MB" if most >= 1024**2 else f"{most:,} bytes"
    return TooLarge(f"`{shown}` is larger than {size}.", cure="Use a smaller file.")


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
