"""Logging setup: JSON lines with context ids, redacted at the sink. Called once at start; `log` is used everywhere."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO, cast

import structlog

from gateway.system.redaction import Redactor


class _LossyStream:
    """Stream wrapper that drops text it cannot write, as on a full disk, instead of failing.

    The log is for people; the store records what was done, and who allowed it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


OF_OURS = ("channels", "agent_tools")
"""Packages with standard library loggers at the configured level. All other libraries log only warnings and errors."""


def set_up_logs(level: str, redactor: Redactor) -> None:
    """Send every log of the process to standard error, redacted: as JSON lines, at a terminal as plain ones."""
    number = logging.getLevelNamesMapping()[level.upper()]
    stream = cast("TextIO", _LossyStream(sys.stderr))
    last: Any = _terminal_line if sys.stderr.isatty() else structlog.processors.JSONRenderer(ensure_ascii=False)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redactor,
        last,
    ]
    structlog.configure(
        processors=shared,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[_library_event, *shared[1:]]))
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)
    for ours in OF_OURS:
        logging.getLogger(ours).setLevel(number)


def _terminal_line(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> str:
    """Render one line for a terminal: time, level, event, then the other fields by name."""
    at, level = str(event.pop("timestamp", ""))[11:19], event.pop("level", "")
    what, trace = event.pop("event", ""), str(event.pop("exception", ""))
    line = f"{at} {level:8}{what}  {' '.join(f'{key}={value}' for key, value in sorted(event.items()))}"
    return "\n".join(_escaped(one).rstrip() for one in [line, *trace.splitlines()])


def _escaped(line: str) -> str:
    """Escape characters that could control a terminal: the line contains text of people."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)


def _library_event(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    record = event.pop("_record", None)
    event.pop("_from_structlog", None)
    if record is not None:
        event["logger"] = record.name
        if record.exc_info:
            event["exc_info"] = record.exc_info
    return event


def log(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return a logger for a module; session, turn and call ids come from the context."""
    return structlog.get_logger(module=name)


TOLD_AT_MOST = 20
"""Maximum log lines of one throttle in a period."""
TOLD_AGAIN_S = 60.0
"""Length of that period in seconds."""


class LogThrottle:
    """Rate limit for log lines that strangers can trigger: 20 a minute, then one with the number of omitted lines.

    One connection to the HTTP server once filled a log with 10 MB a second.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """Store a monotonic clock, in seconds."""
        self._now = now
        self._until = now()
        self._remaining = 0
        self._omitted = 0

    def tell(self, say: Callable[..., object], event: str, **words: object) -> None:
        """Log the event, or count it. `say` is a logger's method. The next logged event states the number of omitted
        ones.
        """
        if self._now() >= self._until:
            self._until, self._remaining = self._now() + TOLD_AGAIN_S, TOLD_AT_MOST
        if not self._remaining:
            self._omitted += 1
            return
        if self._omitted:
            words["left_out"] = self._omitted
        self._remaining, self._omitted = self._remaining - 1, 0
        say(event, **words)
