"""Log of calls, and their faults: a test's script looks at each call and may give it a fault."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.slack.checks import Json


@dataclass(slots=True)
class Call:
    """One call, and how it was answered."""

    n: int
    """Its place among all calls of all workspaces, from 0."""
    at_s: float
    """`time.monotonic()` when it had been read."""
    team: str
    method: str
    parameters: Json
    channel: str = ""
    """The conversation that it names, if any."""
    status: int = 0
    """0 while it is not answered, and for good when it never was."""
    answer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answered_s: float = 0.0
    acted: bool = False
    """True when it took effect, whatever the app heard of that."""
    fault: Fault | None = None

    @property
    def ok(self) -> bool:
        """Return True if it was answered with success."""
        return self.status == 200 and bool(self.answer.get("ok"))

    @property
    def error(self) -> str:
        """The code that it was refused with; empty for none."""
        return str(self.answer.get("error", ""))


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
    headers: tuple[tuple[str, str], ...] = ()
    closes: bool = False
    """The connection is closed without an answer."""
    tears: bool = False
    """… in the middle of the answer's body."""

    def answer(self) -> Json:
        """The body as JSON, as far as it is that."""
        return json.loads(self.body) if self.content_type == "application/json" else {}


def error(code: str, **more: Any) -> Fault:
    """Refused in Slack's words, without effect; status 200."""
    return Fault(acts=False, status=200, body=json.dumps({"ok": False, "error": code, **more}).encode())


def too_many(retry_after: int) -> Fault:
    """Refused for now: https://docs.slack.dev/apis/web-api/rate-limits. Whole seconds."""
    body = json.dumps({"ok": False, "error": "ratelimited"}).encode()
    return Fault(acts=False, status=429, body=body, headers=(("Retry-After", str(retry_after)),))


def broken(status: int = 500, *, acts: bool = False) -> Fault:
    """Slack's own failure."""
    return Fault(acts=acts, status=status, body=json.dumps({"ok": False, "error": "internal_error"}).encode())


def page(status: int = 502, *, acts: bool = False) -> Fault:
    """An answer by something in between, which is not JSON."""
    html = f"<!DOCTYPE html>\n<html><head><title>{status}</title></head><body>upstream error</body></html>\n".encode()
    return Fault(acts=acts, status=status, body=html, content_type="text/html")


def drop() -> Fault:
    """The connection is closed, without effect."""
    return Fault(acts=False, closes=True)


def cut() -> Fault:
    """The call takes effect, and the connection is closed before the answer."""
    return Fault(closes=True)


def torn() -> Fault:
    """The call takes effect, and the connection is closed in the middle of the answer's body."""
    return Fault(tears=True)


def slow(wait_s: float = 0.0, *, hold_s: float = 0.0) -> Fault:
    """Late: before it takes effect, or after."""
    return Fault(wait_s=wait_s, hold_s=hold_s)


def silent(*, acts: bool) -> Fault:
    """Never answered."""
    return Fault(acts=acts, hold_s=1e9)
