"""Errors of failed connections to model servers, as a sentence that names the host, with a cure. Pure."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import cast

from gateway.errors import ModelError

CAUSES_AT_MOST = 20
"""Number of causes of an error that are examined."""
_NO_WAY = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
_BROKEN_OFF = frozenset(
    {
        *("ClientPayloadError", "TransferEncodingError", "ContentLengthError", "ServerDisconnectedError"),
        *("ClientConnectionResetError", "RemoteProtocolError", "ReadError", "WriteError", "IncompleteRead"),
    }
)
"""Class names of aiohttp and httpx for a connection lost during an answer."""
_TIMED_OUT = frozenset({"ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout", "APITimeoutError"})
_NO_HTTP = frozenset({"BadStatusLine", "BadHttpMessage", "InvalidHeader", "LocalProtocolError", "ClientResponseError"})
_NO_CONNECTION = frozenset({"ClientConnectorError", "ClientOSError", "ConnectError", "ClientProxyConnectionError"})
_CONNECTING = frozenset({"ClientConnectorError", "ConnectError"})
"""Class names of aiohttp and httpx for a connection that was never made."""
_PLAIN_HTTP = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST"})
"""OpenSSL's reasons for a server that answers without encryption."""
_DAMAGED = "BAD_RECORD_MAC"


def unreachable(
    error: BaseException,
    server: str,
    *,
    retry_after_s: float | None = None,
    kind: str = "model's",
    table: str = "model",
) -> ModelError:
    """Return the error of a failed connection to a server, without the text of the original error.

    `kind`: the server's adjective in the message; `table`: the configuration's table that has its `base_url`.
    """
    causes = list(_causes(error))
    matching = (found for applies, found in _EXPLANATIONS if any(applies(one) for one in causes))
    what, cure, retryable = next(matching, _UNKNOWN)
    return ModelError(
        what.format(server=f"{kind} server {server}"),
        cure=cure.format(table=table),
        retryable=retryable,
        retry_after_s=retry_after_s,
    )


def in_words(error: BaseException) -> str:
    """Return why a connection could not be made, for the middle of a sentence."""
    causes = list(_causes(error))
    matching = (words for applies, words in _REASONS if any(applies(one) for one in causes))
    return next(matching, "the connection failed")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, the nearest first."""
    left: list[BaseException | None] = [error]
    for _ in range(CAUSES_AT_MOST):
        if not left:
            return
        one = left.pop(0)
        if one is None:
            continue
        yield one
        inner = getattr(one, "os_error", None)
        left += [one.__cause__ or one.__context__, inner if isinstance(inner, BaseException) else None]
        if isinstance(one, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", one).exceptions


def _named(names: frozenset[str]) -> Callable[[BaseException], bool]:
    """Match the class of an error or a base class by name: the library that raised it is not known here."""
    return lambda error: any(kind.__name__ in names for kind in type(error).__mro__)


def _kind(*kinds: type[BaseException]) -> Callable[[BaseException], bool]:
    return lambda error: isinstance(error, kinds)


def _is_unrouted(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _NO_WAY


def _is_cut_tls(error: BaseException) -> bool:
    """Match an encrypted connection that was lost or damaged, at any time."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return True
    return _DAMAGED in _tls_reason(error)


def _is_plain_http(error: BaseException) -> bool:
    return _tls_reason(error) in _PLAIN_HTTP


def _tls_reason(error: BaseException) -> str:
    """Return OpenSSL's reason; empty for other errors, also for aiohttp's own subclass, which has none."""
    return str(getattr(error, "reason", None) or "") if isinstance(error, ssl.SSLError) else ""


def _is_failed_handshake(error: BaseException) -> bool:
    """Match the libraries' error of a connection that could not be made because of its encryption."""
    return _named(_CONNECTING)(error) and any(isinstance(cause, ssl.SSLError) for cause in _causes(error))


_BROKE_OFF = ("The {server} broke off the connection.", "Ask again in a moment.", True)
_UNENCRYPTED = "No encrypted connection to the {server} can be made."
_NETWORK = "Check [{table}] base_url and the network."
_EXPLANATIONS: tuple[tuple[Callable[[BaseException], bool], tuple[str, str, bool]], ...] = (
    (
        _kind(ssl.CertificateError),
        (
            "The certificate of the {server} is not trusted.",
            "Check [{table}] base_url, and the certificates this machine trusts.",
            False,
        ),
    ),
    (_is_cut_tls, _BROKE_OFF),
    (
        _is_plain_http,
        (_UNENCRYPTED, "Check [{table}] base_url: https:// where the server takes it, else http://.", False),
    ),
    (
        _is_failed_handshake,
        (_UNENCRYPTED, "Check [{table}] base_url, and which versions of TLS the server takes.", False),
    ),
    (_kind(ssl.SSLError), _BROKE_OFF),
    (
        _kind(socket.gaierror),
        (
            "The name of the {server} cannot be found.",
            "Check [{table}] base_url, and the DNS of this machine.",
            True,
        ),
    ),
    (
        _kind(ConnectionRefusedError),
        (
            "The {server} refuses connections: no program listens there.",
            "Start the server, or check [{table}] base_url.",
            True,
        ),
    ),
    (_is_unrouted, ("There is no way to the {server}.", _NETWORK, True)),
    (
        _kind(TimeoutError),
        ("The {server} did not answer in time.", "Ask again in a moment.", True),
    ),
    (_named(_TIMED_OUT), ("The {server} did not answer in time.", "Ask again in a moment.", True)),
    (_kind(ConnectionResetError, BrokenPipeError, ConnectionAbortedError), _BROKE_OFF),
    (_named(_BROKEN_OFF), _BROKE_OFF),
    (
        _named(_NO_HTTP),
        ("The {server} does not speak HTTP.", "Check the port in [{table}] base_url.", True),
    ),
    (_named(_NO_CONNECTION), ("The {server} cannot be reached.", _NETWORK, True)),
)
"""Explanations in order: message, cure, whether to retry. The first that matches the error or a cause is used."""
_UNKNOWN = (
    "The connection to the {server} failed.",
    "Check [{table}] base_url and the network; see Dragoman's log.",
    True,
)
_REASONS: tuple[tuple[Callable[[BaseException], bool], str], ...] = (
    (_kind(ssl.SSLError), "no encrypted connection can be made"),
    (_kind(socket.gaierror), "its name cannot be found"),
    (_kind(ConnectionRefusedError), "it refuses connections"),
    (_is_unrouted, "there is no way to it"),
    (_kind(TimeoutError), "it did not answer in time"),
)
"""Reasons in order; the first that matches the error or a cause is used."""
