"""Why a server does not run, as a value on which programs decide.

The texts for people are made where the failure is noticed: for an entry in `config/serverfile`, for a running server in
`upstream/diagnostics`.
"""

from __future__ import annotations

from enum import StrEnum


class FailureKind(StrEnum):
    """Why a server did not start, or why it ended."""

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
    """It answers, or writes to stdout, something other than MCP messages."""
    EXITED = "exited"
    """Its process ended, or closed its stdout."""
    UNREACHABLE = "unreachable"
    """Nothing answers at its URL."""
    HOST = "host"
    """The host of its URL has no address."""
    TLS = "tls"
    """No trusted connection could be made: a certificate problem, or no TLS at all."""
    UNAUTHORISED = "unauthorised"
    """It answered with HTTP status 401: it needs credentials, or different ones."""
    FORBIDDEN = "forbidden"
    """It answered with HTTP status 403: its credentials do not allow this."""
    NOT_FOUND = "not_found"
    """It answered with HTTP status 404: its URL has the wrong path."""
    TRANSPORT = "transport"
    """It answered with HTTP status 405 or 406: it probably speaks the other transport."""
    LOGIN = "login"
    """It needs a login that only a person can make."""
    REFUSED = "refused"
    """It answered with an error."""
    FAULT = "fault"
    """A fault of the gateway ended its session."""
    CLOSED = "closed"
    """The connection ended for an unknown or other reason."""
