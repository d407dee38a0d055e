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


def unreachable(error: BaseException, server: str, *, retry_after_s: float | None = None) -> ModelError:
    """Return the error of a failed connection to a model's server, without the text of the original error."""
    causes = list(_causes(error))
    for applies, (what, cure, retryable) in _EXPLANATIONS:
        if any(applies(one) for one in causes):
            return ModelError(what.format(server=server), cure=cure, retryable=retryable, retry_after_s=retry_after_s)
    return ModelError(
        f"The connection to the model's server {server} failed.",
        cure="Check [model] base_url and the network; Dragoman's log tells more.",
        retryable=True,
        retry_after_s=retry_after_s,
    )


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


_BROKE_OFF = ("The model's server {server} broke off the connection.", "Ask again in a moment.", True)
_UNENCRYPTED = "No encrypted connection to the model's server {server} can be made."
_NETWORK = "Check [model] base_url and the network."
_EXPLANATIONS: tuple[tuple[Callable[[BaseException], bool], tuple[str, str, bool]], ...] = (
    (
        _kind(ssl.CertificateError),
        (
            "The certificate of the model's server {server} is not trusted.",
            "Check [model] base_url, and the certificates this machine trusts.",
            False,
        ),
    ),
    (_is_cut_tls, _BROKE_OFF),
    (
        _is_plain_http,
        (_UNENCRYPTED, "Check [model] base_url: https:// where the server takes it, else http://.", False),
    ),
    (
        _is_failed_handshake,
        (_UNENCRYPTED, "Check [model] base_url, and which versions of TLS the server takes.", False),
    ),
    (_kind(ssl.SSLError), _BROKE_OFF),
    (
        _kind(socket.gaierror),
        (
            "The name of the model's server {server} cannot be found.",
            "Check [model] base_url, and the DNS of this machine.",
            True,
        ),
    ),
    (
        _kind(ConnectionRefusedError),
        (
            "The model's server {server} refuses connections: no program listens there.",
            "Start the server, or check [model] base_url.",
            True,
        ),
    ),
    (_is_unrouted, ("There is no way to the model's server {server}.", _NETWORK, True)),
    (
        _kind(TimeoutError),
        ("The model's server {server} did not answer in time.", "Ask again in a moment.", True),
    ),
    (_named(_TIMED_OUT), ("The model's server {server} did not answer in time.", "Ask again in a moment.", True)),
    (_kind(ConnectionResetError, BrokenPipeError, ConnectionAbortedError), _BROKE_OFF),
    (_named(_BROKEN_OFF), _BROKE_OFF),
    (
        _named(_NO_HTTP),
        ("The model's server {server} does not speak HTTP.", "Check the port in [model] base_url.", True),
    ),
    (_named(_NO_CONNECTION), ("The model's server {server} cannot be reached.", _NETWORK, True)),
)
"""Explanations in order: message, cure, whether to retry. The first that matches the error or a cause is used."""
