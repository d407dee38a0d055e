"""Reader and writer of HTTP/1.1 heads for an egress proxy. Pure.

Requests are read strictly: an ambiguous one is refused. Each connection carries one request, so nothing that follows it
can be mistaken for another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

Framing: TypeAlias = int | Literal["none", "chunked", "until-end"]
"""Length of a body: none, a number of bytes, chunked, or until its sender closes."""
Headers: TypeAlias = Sequence[tuple[str, str]]

_REQUEST = re.compile(r"([A-Z]{1,20}) ([!-~]+) HTTP/1\.1")
_STATUS = re.compile(r"HTTP/1\.[01] ([1-5][0-9]{2})(?: ([\t -~\x80-\xff]*))?")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?([^#]*)")
_LENGTH = re.compile(r"[0-9]{1,15}")
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "http2-settings"}
)
"""Headers that are not forwarded; those about the body are rewritten."""
_PHRASES = {
    400: "Bad Request",
    403: "Forbidden",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    505: "HTTP Version Not Supported",
}

CONNECTED = b"HTTP/1.1 200 Connected\r\n\r\n"


class MalformedError(Exception):
    """Request that is not forwarded: the status of its response, and why in one sentence."""

    def __init__(self, status: int, why: str) -> None:
        """Store both."""
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Request to an egress proxy."""

    method: str
    scheme: str
    """`http` or any other scheme of the URL; empty for CONNECT."""
    host: str
    """Requested host, not vetted: `host` or `host:port`."""
    path: str
    """Path and query. Empty for CONNECT."""
    headers: Headers
    """Headers to forward."""
    body: Framing

    def head(self, host: str) -> bytes:
        """Return the head for the server; `host` is the value of the Host header."""
        return _head(f"{self.method} {self.path} HTTP/1.1", [("Host", host), *self.headers], self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Head of a server's response."""

    status: int
    phrase: str
    headers: Headers
    body: Framing

    @property
    def is_interim(self) -> bool:
        """Return True if another response follows, as after `100 Continue`."""
        return self.status < 200

    def head(self) -> bytes:
        """Return the head for the client."""
        line = f"HTTP/1.1 {self.status} {self.phrase}"
        return _head(line, self.headers, self.body, close=not self.is_interim)


def read_request(head: bytes) -> Request:
    """Parse a request's head, including the empty line at its end. Raises `MalformedError`."""
    first, *lines = _lines(head)
    line = _REQUEST.fullmatch(first)
    if line is None:
        is_old = re.fullmatch(r".* HTTP/[0-9.]+", first) and not first.endswith("HTTP/1.1")
        raise MalformedError(505 if is_old else 400, "It is not a request of HTTP/1.1.")
    headers = [_header(text) for text in lines]
    method, target = line[1], line[2]
    body = _request_body(headers)
    if method == "CONNECT":
        if body not in {"none", 0}:
            raise MalformedError(400, "CONNECT has no body.")
        return Request(method=method, scheme="", host=target, path="", headers=(), body="none")
    if method not in METHODS:
        raise MalformedError(405, f"The method {method} is not supported.")
    url = _URL.fullmatch(target)
    if url is None:
        raise MalformedError(400, "This is a proxy: it takes whole addresses, as in http://example.org/.")
    path = url[3] if url[3].startswith("/") else f"/{url[3]}"
    kept = [header for header in _end_to_end(headers) if header[0].lower() != "host"]
    return Request(method=method, scheme=url[1].lower(), host=url[2] or "", path=path, headers=kept, body=body)


def read_response(head: bytes, *, method: str) -> Response:
    """Parse the head of the response to a request of that method. Raises `ValueError` with the reason.

    Invalid headers are left out: servers are sloppier than browsers, and nothing follows on the connection that they
    could be mistaken for.
    """
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    line = _STATUS.fullmatch(first)
    if line is None or line[1] == "101":
        raise ValueError("It did not answer with HTTP/1.1.")
    headers = [(found[1], found[2].rstrip()) for text in lines if (found := _HEADER.fullmatch(text))]
    status = int(line[1])
    kept, body = list(_end_to_end(headers)), _response_body(headers)
    if method == "HEAD" or status < 200 or status in {204, 304}:
        if isinstance(body, int) and status >= 200:  # the length that the body would have had is still sent
            kept.append(("Content-Length", str(body)))
        body = "none"
    return Response(status=status, phrase=line[2] or "", headers=kept, body=body)


def answer(status: int, text: str, *, method: str = "") -> bytes:
    """Return a whole response of our own: one line of plain text, then the connection closes."""
    body = f"{text}\n".encode()
    headers = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
    ]
    head = _head(f"HTTP/1.1 {status} {_PHRASES[status]}", headers, len(body))
    return head if method == "HEAD" else head + body


def _lines(head: bytes) -> list[str]:
    text = head.decode("latin-1").removesuffix("\r\n\r\n")
    lines = text.split("\r\n")
    if any(char in line for line in lines for char in "\r\n\0"):
        raise MalformedError(400, "Its lines do not end with CR LF.")
    return lines


def _header(line: str) -> tuple[str, str]:
    found = _HEADER.fullmatch(line)
    if found is None:  # also a folded line, which begins with a space
        raise MalformedError(400, "A line of its head is not a header.")
    return found[1], found[2].rstrip()


def _values(headers: Headers, name: str) -> list[str]:
    return [value for key, value in headers if key.lower() == name]


def _request_body(headers: Headers) -> Framing:
    lengths, codings = _values(headers, "content-length"), _values(headers, "transfer-encoding")
    if len(lengths) + len(codings) > 1:
        raise MalformedError(400, "It says more than once how long its body is.")
    if codings and codings[0].lower() != "chunked":
        raise MalformedError(400, "Its body is coded in another way than chunked.")
    if lengths and _LENGTH.fullmatch(lengths[0]) is None:
        raise MalformedError(400, "Its Content-Length is not a number.")
    if codings:
        return "chunked"
    return int(lengths[0]) if lengths else "none"


def _response_body(headers: Headers) -> Framing:
    codings = _values(headers, "transfer-encoding")
    if codings:
        if [coding.lower() for coding in codings] != ["chunked"]:
            raise ValueError("Its body is coded in another way than chunked.")
        return "chunked"
    lengths = set(_values(headers, "content-length"))
    if not lengths:
        return "until-end"
    if len(lengths) > 1 or _LENGTH.fullmatch(min(lengths)) is None:
        raise ValueError("Its Content-Length is not one number.")
    return int(min(lengths))


def _end_to_end(headers: Headers) -> Iterable[tuple[str, str]]:
    """Yield the headers without hop-by-hop ones and those that a Connection header names."""
    named = {part.strip().lower() for value in _values(headers, "connection") for part in value.split(",")}
    for name, value in headers:
        low = name.lower()
        if low not in _HOP_BY_HOP and low not in named and not low.startswith("proxy-"):
            yield name, value


def _head(line: str, headers: Headers, body: Framing, *, close: bool = True) -> bytes:
    written = [line, *(f"{name}: {value}" for name, value in headers)]
    if body == "chunked":
        written.append("Transfer-Encoding: chunked")
    elif isinstance(body, int):
        written.append(f"Content-Length: {body}")
    if close:
        written.append("Connection: close")
    return ("\r\n".join(written) + "\r\n\r\n").encode("latin-1")
