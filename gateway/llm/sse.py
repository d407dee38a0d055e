"""Splitter of server-sent events. Stands between a model server's bytes and the answer parser. Pure."""

from __future__ import annotations

EVENT_BYTES = 4 * 1024 * 1024
"""Bytes of one event: four times the longest answer of models. Parsing it takes 0.1 s at worst, and a thread would not
help, since the JSON parser holds the interpreter lock."""
_BOM = b"\xef\xbb\xbf"
_A_LINE = 16
"""Bytes that each line of an event counts in addition: there may be many empty ones."""


class EventTooLong(ValueError):
    """Event that is longer than allowed."""


class EventSplitter:
    """Incremental splitter of one `text/event-stream` into its events' data, for bytes split anywhere.

    Lines may end in LF, CR LF or CR. Only `data` fields are kept; comments, names, ids and `retry` are skipped.
    """

    def __init__(self, max_event_bytes: int = EVENT_BYTES) -> None:
        """Start before the first byte; refuse events longer than `max_event_bytes`."""
        self._max = max_event_bytes
        self._tail: list[bytes] = []  # of an unfinished line
        self._tail_bytes = 0
        self._data: list[bytes] = []  # of an unfinished event
        self._data_bytes = 0
        self._held_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[bytes]:
        """Add the next bytes and return the data of the events that end in them. Raises `EventTooLong`."""
        if self._held_cr or b"\r" in data:
            data = self._with_plain_ends(data)
        if b"\n" not in data:
            self._keep(data)
            return []
        lines = (b"".join(self._tail) + data).split(b"\n")
        self._tail.clear()
        self._tail_bytes = 0
        self._keep(lines.pop())
        return self._events(lines)

    def end(self) -> list[bytes]:
        """Return the last event if the server sent no blank line after it."""
        line = b"".join(self._tail)
        self._tail.clear()
        self._held_cr = False
        return self._events([line, b""])

    def _with_plain_ends(self, data: bytes) -> bytes:
        """Normalise line ends to LF; a final CR is held back, since it may be the first half of CR LF."""
        if self._held_cr:
            data = b"\r" + data
        self._held_cr = data.endswith(b"\r")
        if self._held_cr:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, part: bytes) -> None:
        if part:
            self._tail.append(part)
            self._tail_bytes += len(part)
        if self._tail_bytes > self._max:
            raise EventTooLong

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for raw in lines:
            line = raw
            if self._at_start and line:
                line = line.removeprefix(_BOM)
                self._at_start = False
            if line.startswith(b"data:"):
                self._add(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._data_bytes = 0
        return events

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._data_bytes += len(value) + _A_LINE
        if self._data_bytes > self._max:
            raise EventTooLong
