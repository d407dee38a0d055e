"""Uploads: files that people add on the page, kept until their message's turn fetches them. Used by `upload_requests`.

A file exists under its client's key only when all of it is durable: it is written beside, synced, and renamed. So a
crash leaves no half file, and a repeated upload finds the first one. No name that a person chose becomes a path.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
from collections.abc import AsyncIterable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, cast

from gateway.agent.attachments import FILE_AT_MOST, FILES_AT_MOST, MESSAGE_AT_MOST
from gateway.domain.ids import OwnerName
from gateway.domain.messages import Attachment
from gateway.domain.text import plain
from gateway.errors import BadRequest, FetchFailed, StoreFull, TooLarge
from gateway.ports import Clock
from gateway.system.flushing import flush
from gateway.system.logging_setup import log
from gateway.system.safe_open import open_beneath

KEPT_FOR = timedelta(days=7)
"""Time for which a file waits for its message, and then for its turn."""
FETCHED_KEPT_FOR = timedelta(days=1)
"""Time for which a fetched file is kept: a crash may cut the turn that fetched it."""
OWNER_AT_MOST = 2_000_000_000
"""Bytes of all files of one owner together."""
NAME_AT_MOST = 255
"""Characters of a file's name, as for other channels."""
UNNAMED = "file"
HEAD_AT_MOST = 8_192
PIECE = 65_536
_PART = ".part"
GONE = "The file is not kept any more."
ADD_AGAIN = "Add it again."


@dataclass(slots=True, kw_only=True)
class Uploads:
    """Files below one folder, a folder for each owner. A file begins with one line of JSON: its name and media type.

    The modification time of a file is the time until which it is kept.
    """

    folder: Path
    clock: Clock
    _writing: set[str] = field(default_factory=set[str])
    """Names of partial files that are being written."""
    _log: Any = field(default_factory=lambda: log("uploads"))

    async def take(
        self, owner: OwnerName, key: str, name: str, media_type: str, body: AsyncIterable[bytes], size: int = 0
    ) -> Attachment:
        """Store a file; return once it is durable. A known key keeps its first content, and `body` is not read.

        `size`: bytes as announced, 0 when unknown. Raises `TooLarge`, `BadRequest` for an empty file, `StoreFull`,
        and the errors of `body`.
        """
        folder = self.folder_of(owner)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if (found := self._known(folder, key)) is not None:
                return found
            _check_size(size)
            if _held(folder) + size > OWNER_AT_MOST:
                raise StoreFull(
                    f"Your files here have {OWNER_AT_MOST // 10**9} GB together.",
                    cure=f"Older ones go after {KEPT_FOR.days} days; add this one then.",
                )
            return await self._written(folder, key, _head(name, media_type), body)
        except ConnectionError:
            raise
        except OSError as error:
            self._log.warning("a file is not kept", error=str(error))
            raise StoreFull(
                "The file cannot be written.", cure="Free space on the disk of the state folder, then try again."
            ) from error

    async def _written(self, folder: Path, key: str, head: bytes, body: AsyncIterable[bytes]) -> Attachment:
        """Write a file beside its place, and rename it when all of it is durable."""
        part = folder / f".{secrets.token_hex(8)}{_PART}"
        self._writing.add(part.name)
        try:
            with _created(part) as file:
                file.write(head)
                size = await _copied(body, file)
                if size == 0:
                    raise BadRequest("The file is empty.", cure="Choose one with content.")
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
            if self._known(folder, key) is None:  # nothing runs between this look and the rename
                self._keep_for(part, KEPT_FOR)
                part.rename(folder / key)
            await asyncio.to_thread(flush, folder)
        finally:
            part.unlink(missing_ok=True)
            self._writing.discard(part.name)
        found = self._known(folder, key)
        if found is None:
            raise BadRequest(GONE, cure=ADD_AGAIN)
        return found

    def claim(
        self, owner: OwnerName, keys: Sequence[str], elsewhere: Mapping[str, Attachment] = MappingProxyType({})
    ) -> tuple[Attachment, ...]:
        """Return the files of a message, and keep those that are here for its turn.

        `elsewhere`: by key, files that are on other nodes. Raises `BadRequest` for a missing one.
        """
        if len(keys) > FILES_AT_MOST:
            raise BadRequest(f"A message has at most {FILES_AT_MOST} files.", cure="Send them in several messages.")
        folder, found = self.folder_of(owner), list[Attachment]()
        for key in dict.fromkeys(keys):
            one = self._known(folder, key)
            if one is not None:
                self._keep_for(folder / key, KEPT_FOR)
            elif (one := elsewhere.get(key)) is None:
                raise BadRequest("A file of this message is not here.", cure=ADD_AGAIN)
            found.append(one)
        if sum(one.size for one in found) > MESSAGE_AT_MOST:
            most = f"{MESSAGE_AT_MOST // 1_000_000} MB"
            raise TooLarge(f"The files have more than {most} together.", cure="Send them in several messages.")
        return tuple(found)

    def known(self, owner: OwnerName, key: str) -> bool:
        """Return whether a file is here."""
        return self._known(self.folder_of(owner), key) is not None

    def opened(self, owner: OwnerName, key: str) -> BinaryIO:
        """Open a file at its content; the caller closes it. Raises `FetchFailed`."""
        try:
            file = os.fdopen(open_beneath(self.folder_of(owner), [key]), "rb")
        except (OSError, ValueError):
            raise FetchFailed(GONE, cure="Send it again.") from None
        file.readline(HEAD_AT_MOST)
        return file

    async def fetch(self, owner: OwnerName, key: str, write: Callable[[bytes], None]) -> None:
        """Pass a file to `write` in pieces. Raises `FetchFailed`, and the errors of `write`."""
        with self.opened(owner, key) as file:
            while piece := file.read(PIECE):
                write(piece)
                await asyncio.sleep(0)
        self.fetched(owner, key)

    def fetched(self, owner: OwnerName, key: str) -> None:
        """Keep a file for another day, after its fetch."""
        with suppress(OSError):
            self._keep_for(self.folder_of(owner) / key, FETCHED_KEPT_FOR)

    def drop(self, owner: OwnerName, key: str) -> None:
        """Remove a file. Idempotent."""
        with suppress(OSError):
            (self.folder_of(owner) / key).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove files whose time has passed, and partial ones that nobody writes."""
        now = self.clock.now().timestamp()
        for path in self._files():
            with suppress(OSError):
                left = path.name.endswith(_PART) and path.name not in self._writing
                if left or (not path.name.endswith(_PART) and path.stat().st_mtime < now):
                    path.unlink()

    def _files(self) -> Iterator[Path]:
        with suppress(OSError):
            for folder in list(self.folder.iterdir()):
                yield from list(folder.iterdir())

    def folder_of(self, owner: OwnerName) -> Path:
        """Return the folder of an owner's files, which need not exist."""
        return self.folder / hashlib.sha256(owner.encode()).hexdigest()[:32]

    def _keep_for(self, path: Path, span: timedelta) -> None:
        until = (self.clock.now() + span).timestamp()
        os.utime(path, (until, until))

    def _known(self, folder: Path, key: str) -> Attachment | None:
        """Return a stored file; None when there is none with this key."""
        try:
            with os.fdopen(open_beneath(folder, [key]), "rb") as file:
                line = file.readline(HEAD_AT_MOST)
                size = os.fstat(file.fileno()).st_size - len(line)
            told = cast("dict[str, str]", json.loads(line))
            return Attachment(source=key, name=told["name"], media_type=told["type"], size=size)
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _check_size(size: int) -> None:
    if size > FILE_AT_MOST:
        most = f"{FILE_AT_MOST // 1_000_000} MB"
        raise TooLarge(f"The file has more than {most}.", cure="Send a smaller one, or parts of it.")


def _head(name: str, media_type: str) -> bytes:
    shown = plain(name[: 4 * NAME_AT_MOST])[:NAME_AT_MOST].rstrip() or UNNAMED
    return json.dumps({"name": shown, "type": plain(media_type)[:NAME_AT_MOST]}).encode() + b"\n"


def _created(part: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(part, flags, 0o600), "wb")


async def _copied(body: AsyncIterable[bytes], file: BinaryIO) -> int:
    """Write the body piece by piece, and return its bytes. Raises `TooLarge` as soon as there are too many."""
    size = 0
    async for piece in body:
        size += len(piece)
        _check_size(size)
        file.write(piece)
    return size


def _held(folder: Path) -> int:
    with suppress(OSError), os.scandir(folder) as found:
        return sum(one.stat(follow_symlinks=False).st_size for one in found)
    return 0
