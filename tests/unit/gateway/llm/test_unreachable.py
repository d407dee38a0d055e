"""Errors of failed connections: a plain sentence that names the host, and a cure."""

from __future__ import annotations

import errno
import re
import socket
import ssl

import aiohttp
import httpx
import pytest
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.http_exceptions import BadStatusLine, TransferEncodingError
from pydantic_ai import exceptions as theirs

from gateway.llm.pydantic_ai.errors import from_library
from gateway.llm.unreachable import unreachable

KEY = ConnectionKey(
    host="models.example", port=443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None
)
RAW = re.compile(r"Error\b|Exception|ssl:|status_code|body:|\{|\[|Errno|<|>|None")
"""Text that must not appear in an error for people."""


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def requested(error: httpx.RequestError) -> httpx.RequestError:
    error.request = httpx.Request("POST", "https://api.models.example/v1/messages")
    return error


def tls(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason.lower())
    error.reason = reason
    return error


def answered_by(data: bytes) -> ssl.SSLError:
    """Return the error of a handshake with a server that answers this."""
    incoming = ssl.MemoryBIO()
    incoming.write(data)
    client = ssl.create_default_context().wrap_bio(incoming, ssl.MemoryBIO(), server_hostname="models.example")
    with pytest.raises(ssl.SSLError) as caught:
        client.do_handshake()
    return caught.value


def payload_error() -> Exception:
    return caused(
        aiohttp.ClientPayloadError("Response payload is not completed: <TransferEncodingError: 400>"),
        TransferEncodingError("Not enough data to satisfy transfer length header."),
    )


@pytest.mark.parametrize(
    ("error", "says", "retryable"),
    [
        (payload_error(), "broke off the connection", True),
        (aiohttp.ServerDisconnectedError(), "broke off the connection", True),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "broke off the connection", True),
        (
            aiohttp.ClientConnectorError(KEY, ConnectionRefusedError(errno.ECONNREFUSED, "refused")),
            "refuses connections",
            True,
        ),
        (aiohttp.ClientConnectorError(KEY, OSError(errno.ENETUNREACH, "unreachable")), "There is no way to", True),
        (aiohttp.ClientConnectorError(KEY, OSError(errno.EPERM, "not permitted")), "cannot be reached", True),
        (
            aiohttp.ClientConnectorDNSError(KEY, socket.gaierror(socket.EAI_NONAME, "Name or service not known")),
            "cannot be found",
            True,
        ),
        (
            aiohttp.ClientConnectorCertificateError(KEY, ssl.SSLCertVerificationError("self-signed")),
            "is not trusted",
            False,
        ),
        (aiohttp.ClientConnectorSSLError(KEY, tls("WRONG_VERSION_NUMBER")), "encrypted connection", False),
        (aiohttp.ClientConnectorSSLError(KEY, tls("NO_PROTOCOLS_AVAILABLE")), "encrypted connection", False),
        (caused(httpx.ConnectError("x"), tls("UNSUPPORTED_PROTOCOL")), "encrypted connection", False),
        (aiohttp.ClientConnectorSSLError(KEY, ssl.SSLEOFError(8, "EOF")), "broke off the connection", True),
        (caused(httpx.ConnectError("x"), ssl.SSLZeroReturnError(6, "end")), "broke off the connection", True),
        (caused(aiohttp.ClientOSError(1), tls("SSLV3_ALERT_BAD_RECORD_MAC")), "broke off the connection", True),
        (caused(httpx.ReadError("x"), tls("BAD_LENGTH")), "broke off the connection", True),
        (caused(aiohttp.ClientError("x"), BadStatusLine("SSH-2.0")), "does not speak HTTP", True),
        (TimeoutError(), "did not answer in time", True),
        (
            caused(RuntimeError("x"), ExceptionGroup("all", [ConnectionRefusedError(errno.ECONNREFUSED, "no")])),
            "refuses connections",
            True,
        ),
        (ValueError("{'raw': 1}"), "The connection to", True),
    ],
)
def test_a_failed_connection_is_a_plain_sentence(error: Exception, says: str, retryable: bool) -> None:
    found = unreachable(error, "models.example")

    assert says in found.message
    assert "models.example" in found.message
    assert found.cure
    assert found.retryable is retryable
    assert not RAW.search(str(found).replace("[model]", ""))


@pytest.mark.parametrize(
    ("data", "offered"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", True), (b"\x15\x03\x03\x00\x02\x02\x28", False)],
)
def test_http_is_offered_to_a_server_without_tls_alone(data: bytes, offered: bool) -> None:
    found = unreachable(aiohttp.ClientConnectorSSLError(KEY, answered_by(data)), "models.example")

    assert "encrypted connection" in found.message
    assert ("http://" in found.cure) is offered
    assert not found.retryable


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            theirs.ModelHTTPError(
                401, "claude", {"error": {"type": "authentication_error", "message": "bad x-api-key"}}
            ),
            "The key for anthropic is refused (401: bad x-api-key).",
        ),
        (theirs.ModelHTTPError(500, "claude", None), "The model's server anthropic failed (500: no reason given)."),
        (
            theirs.ModelHTTPError(503, "claude", "<html><title>Down</title></html>"),
            "The model's server anthropic failed (503: a web page, “Down”).",
        ),
        (
            caused(
                theirs.ModelConnectionError("claude", "Connection error."),
                caused(requested(httpx.ConnectError("[Errno 111]")), ConnectionRefusedError(errno.ECONNREFUSED, "no")),
            ),
            "The model's server api.models.example refuses connections: no program listens there.",
        ),
        (
            caused(
                theirs.ModelConnectionError("claude", "Connection error."),
                requested(httpx.RemoteProtocolError("peer closed connection <x>")),
            ),
            "The model's server api.models.example broke off the connection.",
        ),
        (
            theirs.ModelConnectionError("claude", "Connection error."),
            "The connection to the model's server anthropic failed.",
        ),
        (
            theirs.ModelServerError("claude", "status_code: 500, body: {}", body={"error": {"message": "Overheated"}}),
            "anthropic:claude cannot answer now (Overheated).",
        ),
    ],
)
def test_a_librarys_error_is_a_plain_sentence(error: Exception, says: str) -> None:
    found = from_library(error, "anthropic:claude", "the-key")

    assert found.message == says
    assert found.cure
    assert not RAW.search(str(found).replace("[model]", ""))
