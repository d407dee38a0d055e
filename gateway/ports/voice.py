"""Protocol of the server that turns recordings into text. Implemented by `gateway.llm`, used by `gateway.agent`."""

from __future__ import annotations

from typing import BinaryIO, Protocol


class Transcriber(Protocol):
    """Server that transcribes recordings."""

    async def transcribe(self, recording: BinaryIO, name: str) -> str:
        """Return the words of a recording, unchecked, possibly empty. Safe to repeat.

        `name`: a file name, whose suffix is of the recording's type. Raises `ModelError`.
        """
        ...
