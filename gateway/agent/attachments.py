"""Before a model is asked: the files that came with its turn's messages are read into the session's workspace.

What became of each is stored before the model is told of it. Nothing that a sender chose is ever a path.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import os
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gateway.domain.ids import SessionId
from gateway.domain.messages import Attachment, Conversation, FetchedFile, Received
from gateway.domain.sessions import works_in
from gateway.domain.tools import INBOX, PICTURES
from gateway.domain.turns import Lease
from gateway.domain.views import TurnView
from gateway.errors import DragomanError, FetchFailed
from gateway.ports import Channel, TurnJournal
from gateway.system.logging_setup import log
from gateway.system.redaction import Redactor

FILE_AT_MOST = 25_000_000
MESSAGE_AT_MOST = 50_000_000
FILES_AT_MOST = 10
"""Of one message."""
FILE_WITHIN_S = 60.0
ALL_WITHIN_S = 180.0
"""For all files that a model waits for at once."""
AGAIN_AFTER_S = 1.0
HEAD_BYTES = 4_096
UNKNOWN = "application/octet-stream"

_BEGINS: Mapping[bytes, str] = MappingProxyType(
    {
        b"\x89PNG\r\n\x1a\n": "image/png",
        b"\xff\xd8\xff": "image/jpeg",
        b"GIF87a": "image/gif",
        b"GIF89a": "image/gif",
        b"%PDF-": "application/pdf",
        b"PK\x03\x04": "application/zip",
    }
)
_ENDINGS: Mapping[str, str] = MappingProxyType({**PICTURES, "application/pdf": ".pdf"})
"""Of what is known by its first bytes, however it was called."""
_ENDING = re.compile(r"\.[A-Za-z0-9]{1,8}")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,126}")


class _TooLarge(Exception):
    """More came than is taken."""


@dataclass(slots=True, kw_only=True)
class Attachments:
    """Fetches what came with messages."""

    channels: Mapping[str, Channel]
    workspaces: Callable[[SessionId], Path]
    """A session's workspace; made when it is asked for. Raises `DragomanError` when it cannot be used."""
    journal: TurnJournal
    redactor: Redactor
    file_within_s: float = FILE_WITHIN_S
    all_within_s: float = ALL_WITHIN_S
    again_after_s: float = AGAIN_AFTER_S
    _log: Any = field(default_factory=lambda: log("attachments"))

    async def fetch(self, view: TurnView, lease: Lease) -> TurnView:
        """Fetch what came with the messages that no model has read yet, and return the turn with what became of it.

        A message is looked at once, for good; after a crash in between its files are fetched again, in place of those
        that are there. What was said beside the bot is left where it is. A file that cannot be had is a sentence in
        its place, never an error. Raises `LeaseLost` and `StoreError`.
        """
        waiting = [one for one in view.inputs if _wanted(one)]
        if not waiting:
            return view
        ends = asyncio.get_running_loop().time() + self.all_within_s
        found: dict[str, tuple[FetchedFile, ...]] = {}
        for received in waiting:
            files = await self._of_message(received, view, ends)
            await self.journal.brought(lease, received.id, files)
            found[received.id] = files
        inputs = tuple(replace(one, files=found.get(one.id, one.files)) for one in view.inputs)
        return replace(view, inputs=inputs)

    async def _of_message(self, received: Received, view: TurnView, ends: float) -> tuple[FetchedFile, ...]:
        """Fetch the files of one message, one after the other."""
        files: list[FetchedFile] = []
        left = MESSAGE_AT_MOST
        try:
            with _inbox(self.workspaces(works_in(view.session))) as folder:
                for k, file in enumerate(received.message.attachments, 1):
                    if k > FILES_AT_MOST:
                        files.append(_missing(file, f"Only {FILES_AT_MOST} files of a message are taken."))
                        continue
                    target = _Target(folder=folder, stem=f"{received.id}-{k}", room=min(FILE_AT_MOST, left))
                    one = await self._one(file, received.message.conversation, target, ends)
                    left -= one.size if one.path else 0
                    files.append(one)
        except (DragomanError, OSError) as error:
            why = f"The workspace cannot take files: {_why(error)}"
            self._log.warning("files not fetched", message=received.id, error=str(error))
            files += [_missing(file, why) for file in received.message.attachments[len(files) :]]
        return tuple(files)

    async def _one(self, file: Attachment, where: Conversation, target: _Target, ends: float) -> FetchedFile:
        """Fetch one file; a failure is its trouble."""
        if file.size > target.room:
            return _missing(file, _too_large(target.room))
        channel = self.channels.get(where.channel)
        if channel is None:
            return _missing(file, "Files of this channel cannot be read here.")
        try:
            async with asyncio.timeout_at(min(asyncio.get_running_loop().time() + self.file_within_s, ends)):
                await self._twice(channel, where, file, target)
            return target.keep(file)
        except _TooLarge:
            return _missing(file, _too_large(target.room))
        except TimeoutError:
            return _missing(file, "It took too long to fetch.")
        except OSError as error:
            self._log.warning("a file is not kept", source=file.source, error=str(error))
            return _missing(file, f"It could not be written: {_why(error)}")
        except FetchFailed as failed:
            self._log.warning("a file is not fetched", source=file.source, error=str(failed))
            return _missing(file, self.redactor.text(failed.message))
        except Exception:  # noqa: BLE001 - a channel that breaks over one file must not end the turn (house rule 9)
            self._log.exception("a channel broke while fetching", channel=where.channel)
            return _missing(file, "The channel failed to fetch it.")
        finally:
            target.drop()

    async def _twice(self, channel: Channel, where: Conversation, file: Attachment, target: _Target) -> None:
        """Fetch into the target; once more when that may help."""
        target.begin()
        try:
            await channel.fetch(where, file, target.write)
        except FetchFailed as failed:
            if not failed.retryable:
                raise
        else:
            return
        await asyncio.sleep(self.again_after_s)
        target.begin()
        await channel.fetch(where, file, target.write)


def _wanted(received: Received) -> bool:
    """Whether its files are to be fetched now."""
    unread = received.given is None and received.files is None
    return unread and not received.context and bool(received.message.attachments)


def _missing(file: Attachment, why: str) -> FetchedFile:
    return FetchedFile(path="", size=max(file.size, 0), media_type=stated(file.media_type), trouble=why)


def _too_large(room: int) -> str:
    if room < FILE_AT_MOST:
        return f"The files of the message have more than {MESSAGE_AT_MOST // 1_000_000} MB together."
    return f"It has more than {FILE_AT_MOST // 1_000_000} MB."


def _why(error: Exception) -> str:
    """Say it without the names of this machine's folders."""
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return "the disk is full." if full else f"{(error.strerror or 'it failed').lower()}."
    return "its folder cannot be used."


# --- the file -----------------------------------------------------------------------------------


@contextmanager
def _inbox(workspace: Path) -> Generator[int]:
    """Open the folder, made when it is not there. Where a tool put a link in its place, that is not followed."""
    how = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    root = os.open(workspace, how)
    try:
        with suppress(FileExistsError):
            os.mkdir(INBOX, 0o700, dir_fd=root)
        folder = os.open(INBOX, how, dir_fd=root)
    finally:
        os.close(root)
    try:
        yield folder
    finally:
        os.close(folder)


@dataclass(slots=True, kw_only=True)
class _Target:
    """One file on its way: written under a name of its own, which it loses when it is whole."""

    folder: int
    """The inbox, open."""
    stem: str
    room: int
    """Bytes that it may have."""
    _fd: int | None = None
    _size: int = 0
    _head: bytes = b""

    @property
    def _partial(self) -> str:
        return f".{self.stem}.part"

    def begin(self) -> None:
        """Begin an empty one. What an earlier try left, or a tool put there, is taken away."""
        self.drop()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._partial, flags, 0o600, dir_fd=self.folder)
        self._size, self._head = 0, b""

    def write(self, data: bytes) -> None:
        """Take a piece. Raises `_TooLarge`, and `OSError` when the disk does not take it."""
        if self._fd is None:
            raise ValueError("the file is closed")
        self._size += len(data)
        if self._size > self.room:
            raise _TooLarge
        self._head += data[: HEAD_BYTES - len(self._head)]
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def keep(self, file: Attachment) -> FetchedFile:
        """Give the whole file its name, in place of one that is there."""
        media_type = sniffed(self._head, file.media_type)
        name = f"{self.stem}{ending(file.name, media_type)}"
        os.rename(self._partial, name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        return FetchedFile(path=f"{INBOX}/{name}", size=self._size, media_type=media_type)

    def drop(self) -> None:
        """Close it, and take away what is not whole. Twice is safe."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        with suppress(OSError):
            os.unlink(self._partial, dir_fd=self.folder)


# --- what it is: pure ---------------------------------------------------------------------------


def sniffed(head: bytes, said: str) -> str:
    """Return the media type by the first bytes, else what the platform said, unless the bytes belie that."""
    said = stated(said)
    for begin, media_type in _BEGINS.items():
        if head.startswith(begin):
            # Documents are archives too, and then the platform knows more.
            inside = media_type == "application/zip" and said.startswith(("application/vnd.", "application/epub"))
            return said if inside else media_type
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if _is_text(head):
        known = said.startswith("text/") or said in ("application/json", "application/xml")
        return said if known else "text/plain"
    belied = said in _BEGINS.values() or said == "image/webp" or said.startswith("text/")
    return UNKNOWN if belied else said


def stated(media_type: str) -> str:
    """Return a media type as anybody may have written it, if it is one; else that of anything."""
    plain = media_type.partition(";")[0].strip().lower()
    return plain if _MEDIA_TYPE.fullmatch(plain) else UNKNOWN


def ending(name: str, media_type: str) -> str:
    """Return how a file's name ends: by its type where the bytes told it, else a short plain ending of its own name."""
    if media_type in _ENDINGS:
        return _ENDINGS[media_type]
    own = _ENDING.fullmatch(f".{name.rpartition('.')[2]}") if "." in name else None
    if own is not None:
        return own[0].lower()
    return {"text/plain": ".txt", "application/zip": ".zip"}.get(media_type, "")


def _is_text(head: bytes) -> bool:
    """Whether it reads as UTF-8 without what no text has; its last character may be cut in half."""
    if b"\x00" in head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
