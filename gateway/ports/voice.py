"""Protocols of the server for recordings and speech. Implemented by `gateway.llm`, used by `gateway.agent`."""

from __future__ import annotations

from typing import BinaryIO, Protocol


class Speaker(Protocol):
    """Server that reads text aloud."""

    async def speak(self, text: str) -> bytes:
        """Return the text as speech: Opus in an Ogg file. Safe to repeat. Raises `ModelError`."""
        ...


class Transcriber(Protocol):
    """Server that transcribes recordings."""

    async def transcribe(self, recording: BinaryIO, name: str) -> str:
        """Return the words of a recording, unchecked, possibly empty. Safe to repeat.

        `name`: a file name, whose suffix is of the recording's type. Raises `ModelError`.
        """
        ...
