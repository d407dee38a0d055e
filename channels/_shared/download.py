"""On the way in: the bytes of a file that a platform gives out, passed on as they come."""

from __future__ import annotations

from collections.abc import Callable

import aiohttp

from channels._shared.http import PIECE_BYTES, UNANSWERED, what
from gateway.errors import FetchFailed


def check(platform: str, answer: aiohttp.ClientResponse) -> None:
    """Raise `FetchFailed` for an answer that has no file in it, or one that is packed."""
    status = answer.status
    if status != 200:
        later = status == 429 or status >= 500
        raise FetchFailed(f"{platform} did not give the file (status {status}).", retryable=later)
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise FetchFailed(f"{platform} gave the file packed, though it was asked for it as it is.")


async def pour(platform: str, answer: aiohttp.ClientResponse, size: int, write: Callable[[bytes], None]) -> None:
    """Write a file in pieces of at most 64 KiB. `size`: bytes that it has, as somebody said; 0 when nobody did.

    Raises `FetchFailed` for one that breaks off, and what `write` raises.
    """
    read = 0
    while piece := await _piece(platform, answer):
        read += len(piece)
        write(piece)
    if not _ends(answer) and read < size:
        raise FetchFailed(f"The file broke off after {read:,} of {size:,} bytes.", retryable=True)


async def _piece(platform: str, answer: aiohttp.ClientResponse) -> bytes:
    try:
        return await answer.content.read(PIECE_BYTES)
    except UNANSWERED as error:
        why = what(error)
    # Here, not above: what is raised in an `except` block keeps the other error, and its address, with it.
    raise FetchFailed(f"A file from {platform} broke off: {why}.", retryable=True)


def _ends(answer: aiohttp.ClientResponse) -> bool:
    """Whether the end of the body is told apart from a connection that broke."""
    return answer.content_length is not None or "Transfer-Encoding" in answer.headers
