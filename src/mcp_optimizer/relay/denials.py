"""Records in the audit that a caller named something of a server that it may not use.

The caller is told that there is no such thing; only the audit knows better. Called by the relay.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from mcp_optimizer.audit.recording import recording, used_by
from mcp_optimizer.audit.trail import AuditTrail
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.decisions import Decision, Effect, RiskClass
from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.errors import CallRefused
from mcp_optimizer.policy.access import THE_CALLERS_SERVERS, refusal

A_RULE: Final = "a rule of the settings"

_READING: Final = RiskClass(Risk.READ, "default")


def record_denial(
    trail: AuditTrail | None, caller: Caller, method: str, params: Mapping[str, Any], server: str
) -> None:
    """`server`: the one that was meant."""
    decision, used = Decision(Effect.DENY, _because(caller, server), _READING), used_by(params)
    arguments = {key: value for key, value in params.items() if key != "_meta"}
    with suppress(CallRefused), recording(trail, caller, method) as record:
        record.about(server, used, arguments=arguments)
        record.decided(decision)
        raise refusal(decision, server, used)


def _because(caller: Caller, server: str) -> str:
    limits = (caller.principal.servers, caller.narrowed)
    is_its_own = any(servers is not None and server not in servers for servers in limits)
    return THE_CALLERS_SERVERS if is_its_own else A_RULE
