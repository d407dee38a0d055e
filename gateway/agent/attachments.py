"""Fetcher of attachments: files of a turn's messages, written to the session's workspace. Used by `turn`, `pictures`.

Each file's outcome is stored before the model learns of it. No name that a sender chose becomes a path.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gateway.agent.transcription import NO_TIME, NOT_HEARD, Listener, is_recording, shown_back
from gateway.domain.ids import SessionId
from gateway.domain.messages import Attachment, Conversation, FetchedFile, Received
from gateway.domain.sessions import works_in
from gateway.domain.text import as_code
from gateway.domain.tools import INBOX, PICTURES
from gateway.domain.turns import Lease
from gateway.domain.views import TurnView
from gateway.errors import DragomanError, FetchFailed
from gateway.ports import Channel, TurnJournal
from gateway.system.logging_setup import log
from gateway.system.redaction import Redactor

FILE_AT_MOST = 25_000_000
"""Bytes of one file."""
MESSAGE_AT_MOST = 50_000_000
"""Bytes of one message's files together."""
FILES_AT_MOST = 10
"""Files of one message."""
FILE_WITHIN_S = 60.0
"""Timeout in seconds for one file."""
ALL_WITHIN_S = 180.0
"""Timeout in seconds for all files that one model request waits for."""
HEARD_WITHIN_S = 180.0
"""Timeout in seconds for all transcripts that one model request waits for."""
AGAIN_AFTER_S = 1.0
"""Backoff in seconds before the one retry of a fetch."""
HEAD_BYTES = 4_096
"""First bytes of a file, by which its type is detected."""
UNKNOWN = "application/octet-stream"

KEPT = "The file of your message is in the workspace as {paths}."
ALL_KEPT = "The files of your message are in the workspace, in their order: {paths}."
MISSING = "A file of your message is not in the workspace: {why}"

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
"""Suffixes of the types detected by their first bytes; the file's own name does not count."""
_ENDING = re.compile(r"\.[A-Za-z0-9]{1,8}")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,126}")


class _TooLarge(Exception):
    """The file exceeds its limit of bytes."""


@dataclass(slots=True, kw_only=True)
class Attachments:
    """Fetcher of the files that come with messages."""

    channels: Mapping[str, Channel]
    workspaces: Callable[[SessionId], Path]
    """Return a session's workspace, created when missing. Raises `DragomanError` when it cannot be used."""
    journal: TurnJournal
    redactor: Redactor
    listener: Listener | None = None
    """Listener to recordings; None: they are files like any other."""
    file_within_s: float = FILE_WITHIN_S
    all_within_s: float = ALL_WITHIN_S
    heard_within_s: float = HEARD_WITHIN_S
    again_after_s: float = AGAIN_AFTER_S
    _log: Any = field(default_factory=lambda: log("attachments"))

    async def fetch(self, view: TurnView, lease: Lease) -> TurnView:
        """Fetch the files of messages that no model has read yet; return the turn with the outcome of each.

        Each message is processed once; after a crash in between its files are fetched again and replace earlier ones.
        Files of messages not addressed to the bot are not fetched. A failed fetch is a text in the file's place, never
        an error. Raises `LeaseLost` and `StoreError`.
        """
        waiting = [one for one in view.inputs if _wanted(one)]
        if not waiting:
            return view
        ends = asyncio.get_running_loop().time() + self.all_within_s
        found, heard_by = dict[str, tuple[FetchedFile, ...]](), 0.0
        for received in waiting:
            files = await self._of_message(received, view, ends)
            heard_by = heard_by or asyncio.get_running_loop().time() + self.heard_within_s
            files = await self._heard(received, view, files, heard_by)
            await self.journal.record_fetched(lease, received.id, files, shown_back(view.turn.conversation, files))
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

    async def _heard(
        self, received: Received, view: TurnView, files: tuple[FetchedFile, ...], ends: float
    ) -> tuple[FetchedFile, ...]:
        """Transcribe the recordings among a message's files, one after the other, until `ends` of the loop's time."""
        listener, heard = self.listener, list[FetchedFile]()
        if listener is None or not any(is_recording(one) for one in received.message.attachments):
            return files
        try:
            workspace = self.workspaces(works_in(view.session))
        except DragomanError:
            return files  # nothing was fetched either
        for file, found in zip(received.message.attachments, files, strict=True):
            try:
                async with asyncio.timeout_at(ends):
                    heard.append(await listener.hear(view, file, found, workspace))
            except TimeoutError:
                heard.append(replace(found, unheard=NOT_HEARD.format(why=NO_TIME)))
        return tuple(heard)

    async def _one(self, file: Attachment, where: Conversation, target: _Target, ends: float) -> FetchedFile:
        """Fetch one file; a failure becomes its `trouble`."""
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
            self._log.warning("a file is not written", source=file.source, error=str(error))
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
        """Fetch into the target, with one retry for a retryable failure."""
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
    """Return True when the message's files are to be fetched now."""
    unread = received.given is None and received.files is None
    return unread and not received.context and bool(received.message.attachments)


def _missing(file: Attachment, why: str) -> FetchedFile:
    return FetchedFile(path="", size=max(file.size, 0), media_type=stated(file.media_type), trouble=why)


def _too_large(room: int) -> str:
    if room < FILE_AT_MOST:
        return f"The files of the message have more than {MESSAGE_AT_MOST // 1_000_000} MB together."
    return f"It has more than {FILE_AT_MOST // 1_000_000} MB."


def _why(error: Exception) -> str:
    """Return the reason without names of this machine's folders."""
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return "the disk is full." if full else f"{(error.strerror or 'it failed').lower()}."
    return "its folder cannot be used."


# --- the file -----------------------------------------------------------------------------------


@contextmanager
def _inbox(workspace: Path) -> Generator[int]:
    """Open the inbox, created when missing. A link that a tool put in its place is not followed."""
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
    """File being fetched, written under a temporary name until it is complete."""

    folder: int
    """Descriptor of the inbox."""
    stem: str
    room: int
    """Limit in bytes."""
    _fd: int | None = None
    _size: int = 0
    _head: bytes = b""

    @property
    def _partial(self) -> str:
        return f".{self.stem}.part"

    def begin(self) -> None:
        """Create the file empty. Remove what an earlier attempt or a tool left in its place."""
        self.drop()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._partial, flags, 0o600, dir_fd=self.folder)
        self._size, self._head = 0, b""

    def write(self, data: bytes) -> None:
        """Append data. Raises `_TooLarge`, and `OSError` when the disk does not take it."""
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
        """Rename the complete file to its final name, replacing an existing one."""
        media_type = sniffed(self._head, file.media_type)
        name = f"{self.stem}{ending(file.name, media_type)}"
        os.rename(self._partial, name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        return FetchedFile(path=f"{INBOX}/{name}", size=self._size, media_type=media_type)

    def drop(self) -> None:
        """Close the file and remove a partial one. Idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        with suppress(OSError):
            os.unlink(self._partial, dir_fd=self.folder)


# --- media types and names: pure ----------------------------------------------------------------


def sniffed(head: bytes, said: str) -> str:
    """Return the media type by the first bytes, else the platform's, unless the bytes contradict it."""
    said = stated(said)
    for begin, media_type in _BEGINS.items():
        if head.startswith(begin):
            # Documents are ZIP archives too; the platform's type is more specific.
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
    """Return a media type of any source in plain form; `UNKNOWN` when it is not valid."""
    plain = media_type.partition(";")[0].strip().lower()
    return plain if _MEDIA_TYPE.fullmatch(plain) else UNKNOWN


def ending(name: str, media_type: str) -> str:
    """Return a file's suffix: by its detected type, else a short plain suffix of its own name."""
    if media_type in _ENDINGS:
        return _ENDINGS[media_type]
    own = _ENDING.fullmatch(f".{name.rpartition('.')[2]}") if "." in name else None
    if own is not None:
        return own[0].lower()
    return {"text/plain": ".txt", "application/zip": ".zip"}.get(media_type, "")


def _is_text(head: bytes) -> bool:
    """Return True for UTF-8 without NUL bytes; the last character may be cut."""
    if b"\x00" in head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


# --- text for a person, in turns that no model reads: pure ---------------------------------------


def files_told(view: TurnView) -> str:
    """Return a text with the paths of files not announced yet, and why others are missing; empty without any.

    Names that senders chose are left out: the text becomes part of what models read, where such names are data.
    """
    unread = [received for received in view.inputs if received.given is None and not received.context]
    found = [file for received in unread for file in received.files or ()]
    missing = [MISSING.format(why=file.trouble or "It was not fetched.") for file in found if not file.path]
    return "\n".join([*_located([as_code(file.path) for file in found if file.path]), *missing])


def _located(paths: Sequence[str]) -> list[str]:
    if not paths:
        return []
    return [(KEPT if len(paths) == 1 else ALL_KEPT).format(paths=", ".join(paths))]
