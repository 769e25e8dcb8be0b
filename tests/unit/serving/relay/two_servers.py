"""A relay over the servers `notes` and `payroll`; a client called like one of them may use only that one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import Client

from mcp_optimizer.access.audit.trail import AuditTrail
from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.serving.relay.server import Relay
from mcp_optimizer.serving.server import build_server
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.catalogs import RecordingPool, gateway_over, spec

LISTS: dict[str, dict[str, Any]] = {
    "prompts/list": {"prompts": [{"name": "sum"}]},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": [{"name": "t", "uriTemplate": "note:///{id}"}]},
}


class WatchedPool(RecordingPool):
    """Both servers have the same to offer; notes which resources are watched, and calls that are no lists."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: list[tuple[str, str]] = []

    async def call(self, server: str, method: str, params: dict[str, Any], caller: Caller = LOCAL) -> dict[str, Any]:
        if method in LISTS:
            extra = {"prompts": [{"name": "sum"}, {"name": f"only {server}"}]} if method == "prompts/list" else {}
            return {**LISTS[method], **extra}
        self.calls.append((server, method, params))
        answers: dict[str, dict[str, Any]] = {
            "resources/read": {"contents": []},
            "completion/complete": {"completion": {"values": []}},
        }
        return answers.get(method, {"messages": []})

    async def watch_resource(self, server: str, uri: str, caller: Caller = LOCAL) -> None:
        self.watched.append((server, uri))

    async def unwatch_resource(self, server: str, uri: str, caller: Caller = LOCAL) -> None:
        self.watched.remove((server, uri))


def states() -> dict[str, UpstreamState]:
    capabilities: dict[str, Any] = {"prompts": {}, "resources": {"subscribe": True}, "completions": {}}
    return {
        name: UpstreamState(spec(name), ServerStatus.RUNNING, capabilities=capabilities)
        for name in ("notes", "payroll")
    }


class TwoServers:
    """The relay, and clients of it."""

    def __init__(
        self, trail: AuditTrail | None = None, take_turn: Callable[[Caller], None] = lambda _caller: None
    ) -> None:
        self.pool = WatchedPool()
        self.relay = Relay(self.pool, states, permits=_is_its_own, trail=trail, take_turn=take_turn)

    def update(self, server: str, uri: str) -> None:
        """A server reports that its resource changed."""
        self.relay.on_notice(server, "notifications/resources/updated", {"uri": uri})

    @asynccontextmanager
    async def client(self, name: str, mode: str, told: list[str] | None = None) -> AsyncIterator[Client]:
        """`told`: where the URIs of changed resources are noted that a legacy client is told of."""

        async def note(message: Any) -> None:
            if told is not None and isinstance(message, types.ResourceUpdatedNotification):
                told.append(message.params.uri)

        server = build_server(await gateway_over(), "1.2.3", self.relay)
        info = types.Implementation(name=name, version="1")
        async with Client(server, mode=mode, client_info=info, message_handler=note, cache=None) as client:
            yield client


def _is_its_own(caller: Caller, server: str) -> bool:
    return caller.client == server
