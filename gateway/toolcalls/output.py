"""Output buffer of a running tool: shown live, head and tail (bytes, lines) kept for the result. Used by `execution`.

Memory does not grow with the output. Short output has no file. Longer output is written to a file in full, for people.
After the call its beginning is copied to where tools can read it. A copy made earlier would be read by a running `grep
-r`, which then searches its own output.
"""

from __future__ import annotations

import codecs
import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from gateway.domain.text import cut
from gateway.domain.tools import ToolResult
from gateway.ports import Clock
from gateway.system.redaction import Redactor

OnText: TypeAlias = Callable[[int, str], None]
"""Handler of live text: takes the offset in characters and the text from there on."""

OpenCopy: TypeAlias = Callable[[str], int | None]
"""Create the copy of that name and return its descriptor; None when it cannot be created."""

HALF_BYTES = 25_600
"""Bytes of the head, and of the tail."""
HALF_LINES = 1_000
"""Lines of the head, and of the tail."""
FILE_BYTES = 64 * 2**20
"""Bytes of the file with the whole output."""
COPY_BYTES = 4 * 2**20
"""Bytes of the copy for tools."""
LIVE_CHARS = 256 * 1024
"""Characters shown live in full; beyond them only the last are shown now and then."""
LIVE_TAIL_BYTES = 8_192
"""Bytes that one such live update shows."""
LIVE_EVERY_S = 1.0
"""Seconds between such live updates."""
CONTINUATION = bytes(range(0x80, 0xC0))
"""Continuation bytes of UTF-8."""
FILE_NOTE = f"\n… the output went on; this file holds its first {FILE_BYTES:,} bytes …\n"
COPY_NOTE = f"\n… the output went on; this file holds its first {COPY_BYTES:,} bytes …\n"


TEXT_CHARS = 70_000
"""Characters of a result's text. A buffer's text is shorter, even where `[hidden]` replaced a shorter secret."""
HINT_CHARS = 4_000
"""Characters of a result's hint."""
CODE_CHARS = 100
"""Characters of a result's code."""


def too_long(text: str) -> bool:
    """Return True when a tool's returned text must be cut like its output."""
    most = 2 * HALF_BYTES
    return len(text) > most or text.count("\n") >= 2 * HALF_LINES or len(text.encode(errors="replace")) > most


def bounded(result: ToolResult) -> ToolResult:
    """Return the result with text, hint and code within their limits; the same object when they are already.

    Apply to every result of every tool, refusals and errors too.
    """
    over = len(result.text) > TEXT_CHARS
    if not over and len(result.hint) <= HINT_CHARS and len(result.code) <= CODE_CHARS:
        return result
    text, dropped = _without_middle(result.text) if over else (result.text, 0)
    return replace(
        result,
        text=text,
        dropped_bytes=result.dropped_bytes + dropped,
        hint=cut(result.hint, HINT_CHARS),
        code=cut(result.code, CODE_CHARS),
    )


def _without_middle(text: str) -> tuple[str, int]:
    half = TEXT_CHARS // 2 - CODE_CHARS
    dropped = len(text[half:-half].encode(errors="replace"))
    return f"{text[:half]}\n… {dropped:,} bytes left out …\n{text[-half:]}", dropped


class OutputBuffer:
    """`ports.Output` of one call: keeps the first and the last 1,000 lines or 25,600 bytes. Close it after the tool.

    Not thread-safe. A write to the file blocks for a moment; it goes to the system's page cache.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        clock: Clock,
        redactor: Redactor,
        on_text: OnText | None = None,
        copy: OpenCopy | None = None,
    ) -> None:
        """Take the destination of a long output: `name` in `folder`, created when needed, and a `copy` made at the end.

        `on_text` is called from `write`: first with all text, after 256 Ki characters at most once a second with the
        last part. An older file of the same name (of a call that runs again) is replaced. `redactor` hides secrets in
        shown and returned text, also those split between writes or cut in two. In the file, which may be long and
        binary, it hides configured secrets only, not text that merely looks like one.
        """
        self._redactor = redactor
        self._head = bytearray()
        self._head_lines = 0
        self._head_full = False
        self._tail = bytearray()
        self._tail_lines = 0
        self._total = 0
        self._file = _WholeFile(folder / name, redactor, copy)
        self._live = _LiveText(clock, _TextRedactor(redactor, on_text)) if on_text else None

    @property
    def dropped_bytes(self) -> int:
        """Number of bytes that `text` leaves out."""
        return self._total - len(self._head) - len(self._kept_tail())

    @property
    def full_output(self) -> str:
        """Name of the file with the whole output (up to 64 MiB); empty when there is none."""
        return self._file.path.name if self._file.usable else ""

    @property
    def has_copy(self) -> bool:
        """True when the copy was made; never before the buffer is closed."""
        return self._file.copied

    @property
    def copy_is_cut(self) -> bool:
        """True when the copy has only the beginning of the output."""
        return self._file.copied and self._file.size > COPY_BYTES

    def write(self, data: bytes) -> None:
        """Append output. Never fails: a file that cannot be written is given up."""
        self._total += len(data)
        if self._live:
            self._live.add(data)
        if self._file.begun:
            self._file.write(data)
        self._add_tail(data if self._head_full else self._add_head(data))

    def show_held(self) -> None:
        """Show live what is held back because a secret may begin in it; only what may begin a configured one stays.

        For a prompt without a line break: the program waits, so nothing more will come.
        """
        if self._live:
            self._live.show_held()

    def text(self) -> str:
        """Return head and tail, invalid UTF-8 replaced, with a line between that counts the bytes left out."""
        dropped = self.dropped_bytes
        if not dropped:
            return self._redactor.text((self._head + self._tail).decode(errors="replace"))
        head = self._redactor.text(self._head.decode(errors="replace"))
        head = head[: len(head) - self._redactor.pending(head, by_lines=True)]
        kept = self._kept_tail()
        tail = kept.decode(errors="replace")
        tail = tail[self._redactor.begins_inside(tail, in_line=not self._tail.endswith(b"\n" + kept)) :]
        tail = self._redactor.text(tail)
        return f"{head}{'' if head.endswith(chr(10)) else chr(10)}… {dropped:,} bytes left out …\n{tail}"

    def close(self) -> None:
        """Close the file, copy it and show the last text live. Idempotent; later output is kept in memory only."""
        self._file.close()
        if self._live:
            self._live.close()

    def _add_head(self, data: bytes) -> bytes:
        """Fill the head and return the rest, for the tail."""
        room = HALF_BYTES - len(self._head)
        end = min(len(data), room)
        lines = data.count(b"\n", 0, end)
        if self._head_lines + lines >= HALF_LINES:
            end = _after_line(data, HALF_LINES - self._head_lines)
            lines = HALF_LINES - self._head_lines
        self._head += data[:end]
        self._head_lines += lines
        self._head_full = len(self._head) >= HALF_BYTES or self._head_lines >= HALF_LINES
        if not self._head_full:
            return b""
        cut = _unfinished(self._head)
        held = bytes(self._head[len(self._head) - cut :])
        del self._head[len(self._head) - cut :]
        return held + data[end:]

    def _add_tail(self, data: bytes) -> None:
        if not data:
            return
        if not self._file.begun:
            self._tail += data
            self._tail_lines += data.count(b"\n")
            if len(self._tail) <= HALF_BYTES and self._tail_lines + (not self._tail.endswith(b"\n")) <= HALF_LINES:
                return
            self._file.begin(self._head + self._tail)
        else:
            self._tail += data[-HALF_BYTES:]
        if len(self._tail) > 4 * HALF_BYTES:
            del self._tail[:-HALF_BYTES]

    def _kept_tail(self) -> bytearray:
        """Return the last bytes and lines within the limits, from a whole character on."""
        if not self._file.begun:
            return self._tail
        tail = self._tail[-HALF_BYTES:]
        lines = tail.count(b"\n") + (not tail.endswith(b"\n"))
        if lines > HALF_LINES:
            return tail[_after_line(tail, lines - HALF_LINES) :]
        start = 0
        while start < 3 and tail[start] & 0xC0 == 0x80:
            start += 1
        return tail[start:]


class _WholeFile:
    """File with the whole output, private to the daemon. A failing disk never fails the call."""

    def __init__(self, path: Path, redactor: Redactor, copy: OpenCopy | None) -> None:
        self.path = path
        self._unsecret = _BytesRedactor(redactor)
        self._open_copy = copy
        self.begun = False
        self.usable = False
        self.copied = False
        self.size = 0
        """Bytes in the file."""
        self._fd: int | None = None
        self._full = False
        self._taken = 0

    def begin(self, data: bytes | bytearray) -> None:
        """Create the file with all output so far. Call once."""
        self.begun = True
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, 0o600)
        except OSError:
            return
        self.usable = True
        self.write(data)

    def write(self, data: bytes | bytearray) -> None:
        """Append data up to the limit, then one note that it was reached."""
        if self._fd is None or self._full:
            return
        room = FILE_BYTES - self._taken
        self._taken += len(data)
        self._put(self._unsecret.add(data[:room]))
        if len(data) > room:
            self._full = True
            self._put(FILE_NOTE.encode())  # drop held text: it may be a secret cut here

    def close(self) -> None:
        """Complete the file, make the copy and close both. Idempotent."""
        if not self._full:
            self._put(self._unsecret.end())
        if self._fd is not None and self._open_copy and (copy := self._open_copy(self.path.name)) is not None:
            self.copied = _copied(self._fd, copy)
        self._end()

    def _end(self) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
        self._fd = None

    def _put(self, data: bytes) -> None:
        if self._fd is None:
            return
        if _all_written(self._fd, data):
            self.size += len(data)
            return
        # Remove a partial file: it would pass for a whole one, and a full disk needs the space.
        self._end()
        self.usable = False
        with contextlib.suppress(OSError):
            self.path.unlink()


def _copied(source: int, copy: int) -> bool:
    """Write the first bytes of a file to a new one, and close that; return False, and empty it, when that fails.

    Do not unlink it: the name may be another file's by now.
    """
    try:
        data = os.pread(source, COPY_BYTES + 1, 0)
        cut = data[:COPY_BYTES] + COPY_NOTE.encode() if len(data) > COPY_BYTES else data
        if _all_written(copy, cut):
            return True
        os.ftruncate(copy, 0)
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            os.close(copy)
    return False


def _all_written(fd: int, data: bytes) -> bool:
    """Write all data; return False when the disk does not take it."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError:
        return False
    return True


class _BytesRedactor:
    """Streaming redactor of configured secrets in bytes. Decodes as Latin-1, which maps any bytes to text and back."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def add(self, data: bytes | bytearray) -> bytes:
        """Append data; return all but a possible beginning of a secret."""
        text = self._held + data.decode("latin-1")
        end = len(text) - self._redactor.pending_known(text)
        self._held = text[end:]
        return self._without(text[:end])

    def end(self) -> bytes:
        """Return the held rest."""
        held, self._held = self._held, ""
        return self._without(held)

    def _without(self, text: str) -> bytes:
        return self._redactor.known(text)[0].encode("latin-1")


class _TextRedactor:
    """Streaming redactor of live text. Holds the end of a line back while it may be the beginning of a secret."""

    def __init__(self, redactor: Redactor, on_text: OnText) -> None:
        self._redactor = redactor
        self._on_text = on_text
        self._held = ""
        self._next = 0
        self._hidden = 0
        """Characters by which the passed text became shorter."""

    def add(self, start: int, text: str, *, gap: bool) -> None:
        """Append the text at an offset. `gap`: text before it was left out."""
        if gap:
            skipped = self._redactor.begins_inside(text)
            self._held, text = "", text[skipped:]
            start += skipped
        self._next = start + len(text)
        self._held += text
        if not self._redactor.may_wait(self._held, text):
            self._hand_on(len(self._held) - self._redactor.pending(self._held, by_lines=True))

    def show_held(self) -> None:
        """Pass on all but a possible beginning of a configured secret."""
        self._hand_on(len(self._held) - self._redactor.pending_known(self._held))

    def end(self) -> None:
        """Pass the held rest on."""
        self._hand_on(len(self._held))

    def _hand_on(self, length: int) -> None:
        if not length:
            return
        start, shown = self._next - len(self._held), self._redactor.text(self._held[:length])
        self._held = self._held[length:]
        self._on_text(start - self._hidden, shown)
        self._hidden += length - len(shown)


class _LiveText:
    """Live text for people who watch: all of it up to a limit, then now and then the last part.

    Past the limit only shown text is decoded: replacing the bytes of a binary flood costs five times as much as
    counting them. With counting, invalid bytes may shift an offset a little; offsets never decrease.
    """

    def __init__(self, clock: Clock, unsecret: _TextRedactor) -> None:
        self._clock = clock
        self._unsecret = unsecret
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._chars = 0
        self._shown = 0
        self._last = b""
        self._unseen_bytes = 0
        self._shown_at = clock.monotonic()
        self._closed = False

    def show_held(self) -> None:
        """Show the text that the redactor holds back."""
        if self._chars < LIVE_CHARS:
            self._unsecret.show_held()

    def add(self, data: bytes) -> None:
        """Append output, and show it when an update is due."""
        if self._chars < LIVE_CHARS:
            self._show(self._decoder.decode(data))
            return
        if not self._last:
            data = self._decoder.getstate()[0] + data
        self._unseen_bytes += len(data)
        self._chars += len(data.translate(None, CONTINUATION))
        self._last = (self._last + data[-LIVE_TAIL_BYTES:])[-LIVE_TAIL_BYTES:]
        if self._clock.monotonic() - self._shown_at >= LIVE_EVERY_S:
            self._show_last()

    def close(self) -> None:
        """Show the held text. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._last:
            self._show_last()
        elif self._chars < LIVE_CHARS:
            self._show(self._decoder.decode(b"", True))
        self._unsecret.end()

    def _show(self, text: str) -> None:
        if text:
            self._chars += len(text)
            self._tell(self._chars - len(text), text, gap=False)

    def _show_last(self) -> None:
        if not self._unseen_bytes:
            return
        gap = self._unseen_bytes > len(self._last)
        held = 0 if self._closed else min(_unfinished(self._last), self._unseen_bytes)
        text = self._last[-self._unseen_bytes : len(self._last) - held].lstrip(CONTINUATION).decode(errors="replace")
        self._unseen_bytes = held
        if text:
            self._tell(max(self._shown, self._chars - len(text)) if gap else self._shown, text, gap=gap)

    def _tell(self, start: int, text: str, *, gap: bool) -> None:
        self._shown = max(self._chars, start + len(text))
        self._shown_at = self._clock.monotonic()
        self._unsecret.add(start, text, gap=gap)


def _after_line(data: bytes | bytearray, lines: int) -> int:
    """Return the offset after `lines` line ends."""
    at = 0
    for _ in range(lines):
        at = data.index(b"\n", at) + 1
    return at


def _unfinished(data: bytes | bytearray) -> int:
    """Return the number of bytes at the end that belong to an incomplete UTF-8 character."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if needs > back else 0
    return 0
