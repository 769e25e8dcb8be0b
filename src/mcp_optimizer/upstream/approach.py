"""In which era and over which transport a server is spoken to, and what is tried when that fails. For supervisors."""

from __future__ import annotations

from mcp_optimizer.upstream.diagnostics import Diagnostics
from mcp_optimizer.upstream.spec import ServerSpec, Transport

_NOT_STREAMABLE = (400, 404, 405)
"""HTTP statuses of a server that may speak the SSE transport instead."""


class Approach:
    """Some legacy servers exit when probed, and some URLs without a type are SSE."""

    def __init__(self, spec: ServerSpec) -> None:
        self._declared = spec.transport
        self._is_certain = spec.transport_is_certain
        self._exits_when_probed = False
        self.transport = spec.transport

    @property
    def is_legacy(self) -> bool:
        """Whether to begin with `initialize`. The SSE transport is older than modern MCP: nothing to probe for."""
        return self._exits_when_probed or self.transport is Transport.SSE

    def try_another(self, diagnostics: Diagnostics) -> bool:
        """After a start that failed: whether there is another way to try at once."""
        if self._declared is Transport.STDIO:
            # If legacy fails too, the next run starts with modern again.
            hung_up = diagnostics.child is not None and diagnostics.child.hung_up
            self._exits_when_probed = not self._exits_when_probed and hung_up
            return self._exits_when_probed
        refused = diagnostics.http_status in _NOT_STREAMABLE
        if self.transport is Transport.HTTP and not self._is_certain and refused:
            self.transport = Transport.SSE
            return True
        self.transport = self._declared
        return False
