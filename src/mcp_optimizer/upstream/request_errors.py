"""The errors of a request to a server that ends without a result.

Refused: the server responded with an error and is alive; if it requires a login, only a person can help. Lost: this one
exchange broke, and the server may be alive. Gone: the server or its session has ended. Confusing them would restart
healthy servers, or wait for dead ones.
"""

from __future__ import annotations

from typing import Any

_LOGIN_NEEDED = -32001
"""From the range that the protocol leaves to implementations."""


class RpcError(Exception):
    """Refused: the server responded with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class LoginNeeded(RpcError):
    """Refused: the server requires a login that only a person can make. The message says how."""

    def __init__(self, message: str) -> None:
        super().__init__(_LOGIN_NEEDED, message)


class ExchangeLost(Exception):
    """Lost: this exchange broke. `was_sent` says whether the server may have received the request."""

    def __init__(self, reason: str, *, was_sent: bool = True) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class RpcTimeout(ExchangeLost):
    """Lost: no response came in time."""

    def __init__(self, method: str, seconds: float, *, in_all: bool = False) -> None:
        super().__init__(f"{method} was not answered within {seconds:g} s")
        self.seconds = seconds
        self.in_all = in_all
        """Whether it kept reporting progress, or asking, until the maximum duration of any call."""


class ServerGone(Exception):
    """Gone: the connection to the server has ended."""
