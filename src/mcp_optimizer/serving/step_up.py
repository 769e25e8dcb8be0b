"""Which scopes a message of a caller with a token needs, so that a client can get a token that has them.

Asked at the door over HTTP, because a client learns of missing scopes only by the response's status. Refuses nothing
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcp_types import JSONRPCRequest

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.own_tools import CALLING, OWN_NAMES
from mcp_optimizer.domain.principal import Principal, Risk
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.serving.own_arguments import text_in

_LONGEST = 10_000
"""Characters of a name that is looked up."""

ScopesFor = Callable[[Principal, Risk], Sequence[str]]


class StepUp:
    """The scopes of calls, by the class of the tool; everything else only reads."""

    def __init__(self, gateway: Gateway, scopes_for: ScopesFor, *, transparent: bool) -> None:
        self._gateway = gateway
        self._scopes_for = scopes_for
        self._own: tuple[str, ...] = () if transparent else OWN_NAMES

    def __call__(self, caller: Caller, message: object) -> Sequence[str]:
        if not isinstance(message, JSONRPCRequest):
            return ()
        params = message.params
        is_call = message.method == "tools/call" and isinstance(params, Mapping)
        return self._scopes_for(caller.principal, self._risk(caller, params or {}) if is_call else Risk.READ)

    def _risk(self, caller: Caller, params: Mapping[str, Any]) -> Risk:
        name, server = params.get("name"), None
        if name in self._own:
            arguments = params.get("arguments")
            if name not in CALLING or not isinstance(arguments, Mapping):
                return Risk.READ
            try:
                name, server = (
                    text_in(arguments, key, _LONGEST, required=False, between=" ")
                    for key in ("tool_name", "server_name")
                )
            except InvalidRequest:
                return Risk.READ
        if not isinstance(name, str):
            return Risk.READ
        # What cannot be found out here is found out when the tool is called, which needs the scopes as well.
        return self._gateway.permissions.risk_of(self._gateway.snapshot, name, server or None, caller)
