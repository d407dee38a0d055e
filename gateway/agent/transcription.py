"""Transcriber of recordings that came with messages, and its notices to senders. Used by `attachments`.

A transcript is the text of a message, never of a command, and no answer to a card or a question.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from gateway.domain.messages import Attachment, Conversation, FetchedFile
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.text import cut, mended, plain, visible
from gateway.domain.turns import TurnKind
from gateway.domain.views import TurnView
from gateway.errors import ModelError
from gateway.ports import Transcriber
from gateway.system.logging_setup import log
from gateway.system.redaction import Redactor
from gateway.system.safe_open import open_beneath

SECONDS_AT_MOST = 30 * 60
"""Seconds of a recording that is transcribed."""
HEARD_CHARS = 20_000
"""Characters of a transcript that are kept."""
HEAD_BYTES = 16

HEARD = "Heard: {text}"
NO_SERVER = (
    "No server listens to voice messages here. To have them transcribed, set [voice] base_url; "
    "the recording is in the workspace."
)
NOT_HEARD = "The voice message was not transcribed: {why}"
TOO_LONG = f"It is longer than {SECONDS_AT_MOST // 60} minutes."
EMPTY = "It is empty."
NO_AUDIO = "It is no recording of a known type."
NO_TIME = "The voice server took too long. Send it again in a moment."
NO_WORDS = "No words were heard in it."
GUESTS = "The voice server failed. An owner finds the reason in the log."

_MARKUP = re.compile(r"([\\`*_\[\]<>|~&])")


@dataclass(slots=True, kw_only=True)
class Listener:
    """Listener to recordings. One per node."""

    transcriber: Transcriber | None
    """None: no server is configured."""
    redactor: Redactor

    async def hear(self, view: TurnView, file: Attachment, found: FetchedFile, workspace: Path) -> FetchedFile:
        """Return the fetched file with its transcript, or the reason for a missing one; any other file unchanged.

        A failure is a reason, never an error. Repeating is safe: nothing is stored here.
        """
        if not is_recording(file) or not found.path or view.turn.kind is TurnKind.COMMAND:
            return found
        if self.transcriber is None:
            return replace(found, unheard=NO_SERVER if file.spoken else "")
        if found.size == 0 or file.seconds > SECONDS_AT_MOST:
            return replace(found, unheard=NOT_HEARD.format(why=TOO_LONG if found.size else EMPTY))
        try:
            text = await self._transcript(self.transcriber, workspace, found.path)
        except ModelError as failed:
            log("voice").warning("not transcribed", error=str(failed))
            why = str(failed) if view.session.root_kind is SessionKind.MAIN else GUESTS
            return replace(found, unheard=NOT_HEARD.format(why=self.redactor.text(why)))
        heard = cut(plain(self.redactor.text(mended(text[: 4 * HEARD_CHARS]))), HEARD_CHARS)
        if not visible(heard):
            return replace(found, unheard=NOT_HEARD.format(why=NO_WORDS))
        return replace(found, heard=heard)

    async def _transcript(self, transcriber: Transcriber, workspace: Path, path: str) -> str:
        """Transcribe a file of the workspace. A tool may have replaced it since the fetch."""
        try:
            with os.fdopen(open_beneath(workspace, PurePosixPath(path).parts), "rb") as recording:
                suffix = suffix_of(_head(recording))
                if not suffix:
                    raise ModelError(NO_AUDIO)
                return await transcriber.transcribe(recording, f"recording{suffix}")
        except OSError as error:
            raise ModelError("It is not in the workspace any more.") from error


def is_recording(file: Attachment) -> bool:
    """Return whether a file is to be transcribed, by its sender's word alone."""
    return file.spoken or file.media_type.strip().lower().startswith("audio/")


def suffix_of(head: bytes) -> str:
    """Return the suffix of a recording by its first bytes; empty for anything else."""
    if head[4:8] == b"ftyp":
        return ".m4a"
    if head[:4] == b"RIFF":
        return ".wav" if head[8:12] == b"WAVE" else ""
    if head[:1] == b"\xff" and len(head) > 1 and head[1] & 0xE0 == 0xE0:
        return ".mp3" if head[1] & 0x06 else ".aac"  # a layer of 0 is ADTS
    known = {b"OggS": ".ogg", b"ID3": ".mp3", b"fLaC": ".flac", b"\x1aE\xdf\xa3": ".webm", b"#!AMR": ".amr"}
    return next((suffix for begin, suffix in known.items() if head.startswith(begin)), "")


def shown_back(where: Conversation, files: Sequence[FetchedFile]) -> list[NewSlot]:
    """Return the slot that shows the transcript of a message, and the parts without one; none without recordings."""
    lines = [HEARD.format(text=as_text(one.heard)) if one.heard else one.unheard for one in files]
    text = "\n\n".join(filter(None, lines))
    return [NewSlot(conversation=where, kind=SlotKind.REPLY, text=text)] if text else []


def as_text(line: str) -> str:
    """Return a line as Markdown that shows exactly its characters."""
    return _MARKUP.sub(r"\\\1", line)


def _head(recording: BinaryIO) -> bytes:
    head = recording.read(HEAD_BYTES)
    with suppress(OSError):
        recording.seek(0)
    return head
