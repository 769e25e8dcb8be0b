"""The three ways in which a request to a server ends without a result.

Refused: the server said no, and is well. Lost: this one exchange broke, and nothing is known of the server. Gone: the
server, or the session with it, is no more. Whoever mixes them up restarts healthy servers, or waits for dead ones.
"""

from __future__ import annotations

from typing import Any


class RpcError(Exception):
    """Refused: the server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class ExchangeLost(Exception):
    """Lost: this exchange broke. `was_sent`: whether the server can have received the request."""

    def __init__(self, reason: str, *, was_sent: bool = True) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class RpcTimeout(ExchangeLost):
    """Lost: no answer came in time."""

    def __init__(self, method: str, seconds: float, *, in_all: bool = False) -> None:
        super().__init__(f"{method} was not answered within {seconds:g} s")
        self.seconds = seconds
        self.in_all = in_all
        """It went on reporting progress, or asking, until the longest time that any call may take was over."""


class ServerGone(Exception):
    """Gone: there is no connection to the server any more."""
