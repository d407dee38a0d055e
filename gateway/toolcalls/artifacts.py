"""Artifact store: pictures and files that a running call keeps for people. Used by `execution`."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath
from typing import IO

from gateway.domain.text import plain
from gateway.domain.tools import KEPT_BYTES, PICTURE_BYTES, PICTURES, Artifact, Picture
from gateway.errors import BadRequest, DragomanError
from gateway.system.safe_open import open_beneath

NAME_CHARS = 100
"""Characters of an artifact's name as shown."""
_MEDIA_TYPE = re.compile(r"[a-z]+/[A-Za-z0-9.+-]{1,100}")  # a page may have chosen it
_ENDING = re.compile(r"[A-Za-z0-9]{1,8}")
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class ArtifactStore:
    """Pictures and files of one call, private to the daemon. Their file names are the same each time the call runs."""

    def __init__(self, folder: Path, stem: str) -> None:
        """Take the session's output folder, and the prefix of all file names."""
        self._folder = folder
        self._stem = stem
        self._pictures = 0
        self._files = 0

    def picture(self, data: bytes, media_type: str) -> Picture:
        """Store a picture. Raises `BadRequest` for an unsupported type, or more than 10 MB."""
        ending = PICTURES.get(media_type)
        if ending is None:
            raise BadRequest(f"{media_type[:64]!r} is not a picture type.", cure=f"Use one of {', '.join(PICTURES)}.")
        if len(data) > PICTURE_BYTES:
            raise BadRequest(f"The picture has {len(data):,} bytes.", cure=f"At most {PICTURE_BYTES:,} are kept.")
        self._pictures += 1
        name = f"{self._stem}-{self._pictures}{ending}"
        try:
            with self._new(name) as file:
                file.write(data)
        except OSError as error:
            raise DragomanError(f"The picture could not be stored: {error}.", cure="Free space on the disk.") from error
        return Picture(file=name, media_type=media_type)

    def file(self, workspace: Path, path: Path, name: str, media_type: str) -> Artifact:
        """Store a copy of a workspace file. Raises `BadRequest` for one that is not regular, or exceeds 50 MB."""
        with os.fdopen(_opened(workspace, path), "rb") as source:
            self._files += 1
            ending = PurePath(name).suffix.removeprefix(".")
            kept = f"{self._stem}-f{self._files}.{ending.lower() if _ENDING.fullmatch(ending) else 'bin'}"
            try:
                with self._new(kept) as file:
                    whole = _copied(source, file)
            except OSError as error:
                raise DragomanError(
                    f"The file could not be stored: {error}.", cure="Free space on the disk."
                ) from error
        if not whole:
            (self._folder / kept).unlink(missing_ok=True)
            raise BadRequest("The file is too large.", cure=f"At most {KEPT_BYTES:,} bytes are kept.")
        known = media_type if _MEDIA_TYPE.fullmatch(media_type) else "application/octet-stream"
        return Artifact(file=kept, name=_shown_name(name) or kept, media_type=known)

    def _new(self, name: str) -> IO[bytes]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.fdopen(os.open(self._folder / name, _WRITE, 0o600), "wb")


def _opened(workspace: Path, path: Path) -> int:
    """Open a regular file of the workspace for reading. Raises `BadRequest` when it is not one."""
    try:
        return open_beneath(workspace, (path.relative_to(workspace) if path.is_absolute() else path).parts)
    except (OSError, ValueError) as error:
        raise BadRequest(
            f"{str(path)[:200]!r} is not a regular file in the workspace.", cure="Name one that is."
        ) from error


def _copied(source: IO[bytes], to: IO[bytes]) -> bool:
    """Copy, and return False when the source exceeds the limit: a file may grow while it is read."""
    left = KEPT_BYTES
    while data := source.read(min(1 << 20, left + 1)):
        left -= len(data)
        if left < 0:
            return False
        to.write(data)
    return True


def _shown_name(name: str) -> str:
    """Return the name for people: one line, without a path."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return plain(last)[:NAME_CHARS]
