"""The errors with which a credential is rejected; `door` says them in terms of HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_optimizer.errors import OptimizerError


class Rejected(OptimizerError):
    """A credential that is no good. The message is for whoever sent it and quotes nothing of it."""


class ScopesMissing(OptimizerError):
    """A good token without the scopes that every call needs."""

    def __init__(self, scopes: Sequence[str]) -> None:
        super().__init__("The token has too few scopes.")
        self.scopes = tuple(scopes)


class CannotVerify(OptimizerError):
    """Nobody can say just now whether a credential is good. Trying again later may help."""
