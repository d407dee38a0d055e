"""Log of calls, and their faults: a test's script looks at each call and may give it a fault."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.telegram.checks import Json

SHOWING = frozenset(
    {"sendMessage", "sendDocument", "sendPhoto", "sendPoll", "sendVoice", "sendMessageDraft", "sendChatAction"}
    | {"editMessageText", "editMessageCaption", "editMessageReplyMarkup"}
)
"""The methods that a ban holds up."""


@dataclass(slots=True)
class Call:
    """One call, and how it was answered."""

    n: int
    """Its place among all calls of all bots, from 0."""
    at_s: float
    """`time.monotonic()` when it had been read."""
    bot: int
    method: str
    parameters: Json
    chat: int | str | None
    status: int = 0
    """0 while it is not answered, and for good when it never was."""
    answer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answered_s: float = 0.0
    acted: bool = False
    """True when it took effect, whatever the bot heard of that."""
    fault: Fault | None = None

    @property
    def ok(self) -> bool:
        """Return True if it was answered with success."""
        return self.status == 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of one call. Make one with the functions below."""

    wait_s: float = 0.0
    """Delay before it acts."""
    acts: bool = True
    hold_s: float = 0.0
    """Delay between its act and the answer."""
    status: int = 0
    """0: the answer that it has by itself."""
    body: bytes = b""
    content_type: str = "application/json"
    closes: bool = False
    """The connection is closed without an answer."""

    def answer(self) -> Json:
        """The body as JSON, as far as it is that."""
        return json.loads(self.body) if self.content_type == "application/json" else {}


def error(status: int, description: str, **parameters: int) -> Fault:
    """Refused in Telegram's words, without effect."""
    answer: Json = {"ok": False, "error_code": status, "description": description}
    if parameters:
        answer["parameters"] = parameters
    return Fault(acts=False, status=status, body=json.dumps(answer).encode())


def too_many(retry_after: int) -> Fault:
    """Refused for now."""
    return error(429, f"Too Many Requests: retry after {retry_after}", retry_after=retry_after)


def broken(status: int = 500) -> Fault:
    """Telegram's own failure, without effect."""
    return error(status, "Internal Server Error")


def page(status: int = 502, *, acts: bool = False) -> Fault:
    """An answer by something in between, which is not JSON."""
    html = f"<html>\r\n<head><title>{status}</title></head>\r\n<body>nginx</body>\r\n</html>\r\n".encode()
    return Fault(acts=acts, status=status, body=html, content_type="text/html")


def drop() -> Fault:
    """The connection is closed, without effect."""
    return Fault(acts=False, closes=True)


def cut() -> Fault:
    """The call takes effect, and the connection is closed before the answer."""
    return Fault(closes=True)


def slow(wait_s: float = 0.0, *, hold_s: float = 0.0) -> Fault:
    """Late: before it takes effect, or after."""
    return Fault(wait_s=wait_s, hold_s=hold_s)


def silent(*, acts: bool) -> Fault:
    """Never answered."""
    return Fault(acts=acts, hold_s=1e9)
