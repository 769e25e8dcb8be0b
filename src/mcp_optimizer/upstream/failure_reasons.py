"""Why a server is not running: a kind for programs to decide by, and a text for people. Frozen values."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import httpx2

from mcp_optimizer.runtime.logs import first_of
from mcp_optimizer.runtime.outgoing import written_distance
from mcp_optimizer.upstream.endings import ExchangeLost, LoginNeeded, RpcError, RpcTimeout
from mcp_optimizer.upstream.failure import FailureKind

_SHOWN_ADDRESS = 200
_STATUS_ADVICE = {
    401: " (not authorised: check its headers)",
    403: " (forbidden: it knows its caller, and does not let it in)",
    404: " (not found: check its url)",
    405: " (wrong method: check its url and type)",
    406: " (not acceptable: check its type)",
}


@dataclass(frozen=True)
class Failure:
    """The kind of a failure, and its text, which completes "The server is down: ..."."""

    kind: FailureKind
    text: str

    def __str__(self) -> str:
        return self.text


CONNECTION_CLOSED = Failure(FailureKind.CLOSED, "the connection was closed")


_KINDS_OF_STATUS = {
    401: FailureKind.UNAUTHORISED,
    403: FailureKind.FORBIDDEN,
    404: FailureKind.NOT_FOUND,
    405: FailureKind.TRANSPORT,
    406: FailureKind.TRANSPORT,
}


def refused_with(status: int, content_type: str = "") -> Failure:
    """The failure of a server that answers with this HTTP status, and something that is not MCP."""
    if status < 400 and is_page(content_type):
        return Failure(FailureKind.NOT_MCP, "it answers with a web page instead of MCP")
    kind = _KINDS_OF_STATUS.get(status, FailureKind.REFUSED)
    return Failure(kind, f"it answers with HTTP status {status}{_STATUS_ADVICE.get(status, '')}")


def redirected(url: str, location: str) -> str:
    """What to do about a server that sends us elsewhere. Its word is no reason to go nearer than it is itself."""
    shown = location if len(location) <= _SHOWN_ADDRESS else f"{location[: _SHOWN_ADDRESS - 1]}…"
    try:
        target, own = (written_distance(urlsplit(one).hostname or "") for one in (urljoin(url, location), url))
    except ValueError:
        return f"it redirects to {shown}, which is no address"
    if target < own:
        return f"it redirects to {shown}, on this machine or network, which is not followed: ask its operator"
    return f"it redirects to {shown}: use that url"


def is_page(content_type: str) -> bool:
    """Whether an answer is made for a browser."""
    return content_type.lower().startswith(("text/html", "application/xhtml"))


class CommandNotFound(FileNotFoundError):
    """No program has the name of a server's command."""


def fault_of_ours(error: BaseException) -> Failure:
    """The failure of a server whose session ended by an error that nobody expected."""
    return Failure(FailureKind.FAULT, f"a fault of the gateway ({type(first_of(error)).__name__}); its log says more")


def explained(error: BaseException, start_timeout: float) -> Failure:
    """Why a server did not start, from the error that ended its start."""
    error = first_of(error)
    text = str(error) or type(error).__name__
    if isinstance(error, TimeoutError | RpcTimeout):
        return Failure(FailureKind.SILENT, f"it did not answer within {start_timeout:g} s")
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | ExchangeLost) and (found := _unreached(error)):
        return found
    if isinstance(error, httpx2.ConnectError):
        return Failure(FailureKind.UNREACHABLE, "nothing answers at its url")
    if isinstance(error, LoginNeeded):
        return Failure(FailureKind.LOGIN, error.message)
    if isinstance(error, RpcError):
        return Failure(FailureKind.REFUSED, f"it refused: {error.message}")
    return Failure(_kind_of(error), text)


def _kind_of(error: BaseException) -> FailureKind:
    if isinstance(error, CommandNotFound):
        return FailureKind.COMMAND
    if isinstance(error, ExchangeLost) and not error.was_sent:
        return FailureKind.UNREACHABLE
    return FailureKind.ENTRY if isinstance(error, OSError) else FailureKind.CLOSED


def _unreached(error: BaseException) -> Failure | None:
    """Why no connection could be made, if the system said so: ours is only the last error of a chain."""
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            return Failure(FailureKind.HOST, "the host of its url has no address")
        if isinstance(cause, ssl.SSLCertVerificationError):
            said = cause.verify_message.rstrip(".") or "it cannot be verified"
            return Failure(FailureKind.TLS, f"its certificate is not trusted: {said}")
        if isinstance(cause, ssl.SSLError):
            if cause.reason in _NOT_TLS:
                return Failure(FailureKind.TLS, "it does not speak TLS at this port")
            return Failure(FailureKind.TLS, f"no TLS connection could be made ({cause.reason or 'no reason given'})")
    return None


_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_LONGEST_CHAIN = 10


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__
