"""Errors of browser actions, translated from playwright's messages, which carry call logs. Used by every action.

A `Trouble` becomes the call's result.
"""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import ip_address

from gateway.domain.text import one_line
from gateway.domain.tools import ResultStatus, ToolResult

PLACE = "take a `screenshot`, then give a place in it as the ref, as in 310,42"
"""Cure for everything that no ref can do."""
SNAPSHOT = "Take a new snapshot: refs are good until the page changes."
_NET: tuple[tuple[str, str, str], ...] = (
    ("NAME_NOT_RESOLVED", "There is no host of that name.", "Check how it is written."),
    ("CONNECTION_REFUSED", "The host refuses connections.", "Check the address and its port, or try later."),
    ("TUNNEL_CONNECTION_FAILED", "The host could not be reached.", "Check the address, or try later."),
    ("PROXY_CONNECTION_FAILED", "The browser's way out is closed.", "Close the pages and open the address again."),
    ("TIMED_OUT", "The host did not answer in time.", "Try again later."),
    ("CERT_", "The host's certificate is not valid, so nothing was read.", "Check the address."),
    ("SSL_", "The host speaks no usable TLS.", "Check the address and whether it is http or https."),
    ("TOO_MANY_REDIRECTS", "The address only leads in circles.", "Open another address of that host."),
    ("EMPTY_RESPONSE", "The host closed the connection without an answer.", "Try again later."),
    ("INVALID_RESPONSE", "The host answered something that is not HTTP.", "Check the address and its port."),
    ("UNSAFE_PORT", "Browsers do not open that port.", "Use another port."),
    ("ABORTED", "The page was not loaded: the load was stopped.", "Take a snapshot to see what is there."),
)
"""Part of Chromium's `net::ERR_…`, our text, the hint."""
_WORDS: tuple[tuple[str, str, str, str], ...] = (
    ("Target crashed", "crashed", "The page's tab crashed.", "Open the page again."),
    ("has been closed", "closed", "The tab was closed meanwhile.", "Use `tabs` to see what is open, or open a page."),
    ("Unknown key", "key", "There is no such key.", "Name it as in Enter, Escape, ArrowDown, a or Control+a."),
    ("intercepts pointer events", "covered", "Another element covers it.", f"Close what is in front, or {PLACE}."),
    ("did not find some options", "options", "The list has no such option.", "Choose one that the snapshot shows."),
    ("not a <select>", "kind", "It is not a list to choose from.", "Click it, and click the option it opens."),
    ("not an <input>", "kind", "Nothing can be written into it.", "Name the ref of a text field."),
    ("Malformed value", "value", "The field does not take such a value.", "Write dates as 2026-12-31, times as 13:45."),
    ("HTMLInputElement", "kind", "It takes no file.", "Name the ref of the field or button that chooses a file."),
    ("not a checkbox", "kind", "It is no box to tick.", "Click it."),
    ("Cannot type text", "value", "The field takes numbers only.", "Write digits."),
    ("not visible", "hidden", "It does not show on the page.", SNAPSHOT),
    ("not stable", "moving", "It does not stand still.", f"Wait, use the keyboard, or {PLACE}."),
    ("not enabled", "disabled", "It is switched off on the page.", "Fill in what the page waits for first."),
    ("not editable", "disabled", "It can only be read.", "Name the ref of a field that can be written."),
    ("outside of the viewport", "hidden", "It cannot be brought into view.", f"Scroll, or {PLACE}."),
    ("Invalid frame in aria-ref", "ref", "The ref is of a page that is not shown any more.", SNAPSHOT),
    ("not attached", "ref", "The page took it away.", SNAPSHOT),
)
"""Part of playwright's message, our code, our text, the hint. The first match wins."""


class Trouble(Exception):
    """A failed action; its text goes to the model unchanged."""

    def __init__(self, code: str, text: str, hint: str = "") -> None:
        """Take a stable code, one sentence, and a hint."""
        super().__init__(text)
        self.code, self.text, self.hint = code, text, hint

    def result(self, more: str = "", *, untrusted: bool) -> ToolResult:
        """Return the call's result, with `more` on the lines below."""
        text = f"{self.text}\n{more}" if more else self.text
        return ToolResult(status=ResultStatus.ERROR, text=text, code=self.code, hint=self.hint, untrusted=untrusted)


def meaning(message: str) -> Trouble:
    """Translate a message of playwright. Must not pass on its call log, addresses and paths."""
    if found := re.search(r"net::ERR_([A-Z0-9_]+)", message):
        for end, text, hint in _NET:
            if end in found[1]:
                return Trouble("load", text, hint)
        return Trouble("load", f"The page could not be loaded ({found[1]}).", "Check the address, or try later.")
    for piece, code, text, hint in _WORDS:
        if piece in message:
            return Trouble(code, text, hint)
    if "Timeout" in message:
        return Trouble("timeout", "The page did not do it in time.", SNAPSHOT)
    first = re.sub(r"^[A-Za-z]+\.[a-z_]+: ", "", message.partition("\n")[0])
    return Trouble("browser", f"The browser could not do that: {one_line(first, 200)}", SNAPSHOT)


def cure_of(host: str) -> str:
    """Return the hint for a refused `host:port`: the owner's setting, or that no setting permits the address."""
    with suppress(ValueError):
        address = ip_address(host.rpartition(":")[0].strip("[]"))
        if not (address.is_private or address.is_loopback) or address.is_link_local or address.is_unspecified:
            return "Nobody can allow that address; name another one."
    return f'If it is a host of your own network, the owner can add it: [tools.browser] hosts = ["{host}"]'
