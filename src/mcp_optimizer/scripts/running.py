"""Runs one script for one caller and makes its result. Called by serving, the library and the command line.

Knows no transport. What a script does outside its worker is calls of tools, and each of them is a call of the gateway
for the same caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.script_mode import ScriptMode
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.scripts.names import Toolbox, Toolboxes


class ScriptRunner:
    """Runs scripts."""

    def __init__(self, gateway: Gateway, mode: ScriptMode, limits: Limits = DEFAULT_LIMITS) -> None:
        self._gateway = gateway
        self._mode = mode
        self._limits = limits
        self._toolboxes = Toolboxes()

    async def toolbox(self, caller: Caller) -> Toolbox:
        """The tools that a caller's script may name."""
        return self._toolboxes.of(await self._gateway.seen_by(caller))

    async def run(
        self,
        script: str,
        caller: Caller,
        *,
        may_change: Sequence[str] = (),
        arguments: Mapping[str, Any] | None = None,
        mode: ScriptMode | None = None,
    ) -> dict[str, Any]:
        """The script's result as a tool's result. `may_change` names the tools that change something and may be called;
        `arguments` are variables of the script; `mode` is that of the settings if not given.
        """
        raise NotImplementedError
