"""The errors for a rejected credential; `door` turns them into HTTP responses."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_optimizer.errors import OptimizerError


class Rejected(OptimizerError):
    """The credential is not valid. The message goes to its sender and never quotes it."""


class ScopesMissing(OptimizerError):
    """The token is valid but lacks the scopes that every call needs."""

    def __init__(self, scopes: Sequence[str]) -> None:
        super().__init__("The token has too few scopes.")
        self.scopes = tuple(scopes)


class CannotVerify(OptimizerError):
    """The credential cannot be verified at the moment. Trying again later may help."""
