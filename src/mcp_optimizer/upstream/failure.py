"""Why a server is not running: a kind for programs to decide by, and a text for people. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import httpx2

from mcp_optimizer.runtime.logs import first_of
from mcp_optimizer.upstream.endings import ExchangeLost, LoginNeeded, RpcError, RpcTimeout

_STATUS_ADVICE = {
    401: " (not authorised: check its headers)",
    403: " (forbidden: check its headers)",
    404: " (not found: check its url)",
    405: " (wrong method: check its url and type)",
}


class FailureKind(StrEnum):
    """What kept a server from running, or ended it."""

    ENTRY = "entry"
    """Its entry in the server file cannot be used."""
    VARIABLE = "variable"
    """Its entry uses an environment variable that is not set."""
    UNSTORED = "secret"
    """Its entry uses a secret that is not stored, or cannot be read."""
    COMMAND = "command"
    """Its command was not found."""
    SILENT = "silent"
    """It did not answer in time."""
    NOT_MCP = "not_mcp"
    """It writes something else than MCP messages to stdout."""
    EXITED = "exited"
    """Its process ended, or closed its stdout."""
    UNREACHABLE = "unreachable"
    """Nothing answers at its URL."""
    UNAUTHORISED = "unauthorised"
    """It answered with HTTP status 401 or 403."""
    LOGIN = "login"
    """It wants a login that only a person can make."""
    REFUSED = "refused"
    """It answered with an error."""
    FAULT = "fault"
    """A fault of the gateway ended its session."""
    CLOSED = "closed"
    """The connection ended for a reason that is not known, or for another one."""


@dataclass(frozen=True)
class Failure:
    """The kind of a failure, and its text, which completes "The server is down: ..."."""

    kind: FailureKind
    text: str

    def __str__(self) -> str:
        return self.text


CONNECTION_CLOSED = Failure(FailureKind.CLOSED, "the connection was closed")


def refused_with(status: int) -> Failure:
    """The failure of a server that answers with this HTTP status."""
    kind = FailureKind.UNAUTHORISED if status in (401, 403) else FailureKind.REFUSED
    return Failure(kind, f"it answers with HTTP status {status}{_STATUS_ADVICE.get(status, '')}")


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
