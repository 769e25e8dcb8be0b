"""Skills: one list of all servers' skills, any skill by its URI, and the folders of those that let clients read them.

Files are resources, which the relay reads. What a client gets is as its server sent it, except for URIs that several
servers use, and with the server's name (`gateway/skills`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult

from mcp_optimizer.access.audit.recording import recording
from mcp_optimizer.access.audit.trail import AuditTrail
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.extensions import SKILLS, extension_of
from mcp_optimizer.domain.pins import HeldTool
from mcp_optimizer.domain.skills import Skill, catalog_name, skill_in
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.errors import InvalidRequest, UpstreamRefusal, quoted
from mcp_optimizer.gateway.found_tools import held_error
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.results.metadata import without_ours
from mcp_optimizer.serving.extensions.announcing import Method, Settings, text_in
from mcp_optimizer.serving.relay.connected import Context
from mcp_optimizer.serving.relay.listings import page
from mcp_optimizer.serving.relay.server import Relay
from mcp_optimizer.upstream.listing import read_skill
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.state import UpstreamState

_DIRECTORY = "directoryRead"
_FRESH_SECONDS = 2.0
"""Maximum seconds for which a list waits for servers whose lists are too old; a later request gets what they list."""

_TTL_MS = 60_000

Objection = Callable[[UpstreamState, Definition], Awaitable[HeldTool | None]]
"""Why a skill that is not listed in this form may not be used; None if it may."""


class SkillMethods:
    """Answers requests about skills."""

    identifier = SKILLS
    is_modern_only = False

    def __init__(
        self, gateway: Gateway, relay: Relay, pool: UpstreamPool, objection: Objection, trail: AuditTrail | None = None
    ) -> None:
        self._gateway = gateway
        self._relay = relay
        self._pool = pool
        self._objection = objection
        self._trail = trail
        self.methods: Mapping[str, Method] = {
            "skills/list": self._list,
            "skills/get": self._get,
            "resources/directory/read": self._directory,
        }

    def declared(self, settings: Iterable[Settings], caller: Caller) -> Settings | None:
        del caller
        having = list(settings)
        if not having:
            return None
        return {_DIRECTORY: True} if any(one.get(_DIRECTORY) is True for one in having) else {}

    def listening(self, ctx: Context, call_next: CallNext, caller: Caller) -> Awaitable[HandlerResult]:
        del caller
        return call_next(ctx)

    def _having(self, caller: Caller, setting: str = "") -> dict[str, UpstreamState]:
        """The servers with skills that exist for a caller, with this setting if one is named."""
        permits, found = self._gateway.permissions.views.permits_reading, dict[str, UpstreamState]()
        for name, state in self._gateway.snapshot.states.items():
            declared = (
                extension_of(state.capabilities, SKILLS) if state.is_available and permits(caller, name) else None
            )
            if declared is not None and (not setting or declared.get(setting) is True):
                found[name] = state
        return found

    async def _list(self, _ctx: Context, params: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        await self._relay.first_start.tools()
        await self._made_fresh(self._having(caller))
        view, having = await self._gateway.seen_by(caller), self._having(caller)
        found = await asyncio.to_thread(page, view.skills, "skills", params, self._gateway.skills.entry)
        known = [state.listing.skills for state in having.values() if state.listing.skills is not None]
        now, is_whole = time.monotonic(), view is self._gateway.snapshot and len(known) == len(having)
        left = min((one.until - now for one in known), default=_TTL_MS / 1_000)
        scope = "public" if is_whole and all(one.scope == "public" for one in known) else "private"
        return {**found, "ttlMs": max(0, round(left * 1_000)), "cacheScope": scope}

    async def _made_fresh(self, having: Mapping[str, UpstreamState]) -> None:
        """Have the servers list again whose lists are older than they said: no notification tells of skills."""
        now = time.monotonic()
        old = {name: state.listing.skills for name, state in having.items() if _is_old(state, now)}
        for name in old:
            self._pool.list_again(name)
        while old and time.monotonic() < now + _FRESH_SECONDS:
            await asyncio.sleep(0.05)
            states = self._gateway.snapshot.states
            old = {
                name: before for name, before in old.items() if name in states and states[name].listing.skills is before
            }
        await self._gateway.taken_in()

    async def _get(self, ctx: Context, params: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        uri = text_in(params, "uri", self._gateway.limits.identifier)
        await self._relay.first_start.tools()
        having, refusal = self._having(caller), None
        for server, own in await self._relay.places(ctx, uri):
            if server not in having:
                continue
            try:
                return await self._got(having[server], own, caller)
            except UpstreamRefusal as error:
                refusal = refusal or error
        raise refusal or InvalidRequest(f"No skill is served at {quoted(uri)}.")

    async def _got(self, state: UpstreamState, own: str, caller: Caller) -> dict[str, Any]:
        """A skill as its server has it now, if it is approved in this form."""
        server = state.name
        await self._gateway.skills.permitted(caller, server, own)
        if not self._gateway.permissions.views.permits_skill(caller, server, catalog_name(own)):
            raise InvalidRequest(f"No skill is served at {quoted(own)}.")
        with recording(self._trail, caller, "skills/get") as record:
            record.about(server, own)
            self._gateway.permissions.take_turn(caller)
            # Without the client: a session of a legacy client's own would be legacy, where some servers have no skills.
            asked = self._pool.call(server, "skills/get", {"uri": own}, caller._replace(link=None))
            result = without_ours(await asked)
            entry = result.get("skill")
            definition, skill = self._usable(server, entry, own)
            if definition.definition_hash not in {one.record.definition_hash for one in self._gateway.snapshot.skills}:
                self._pool.list_again(server)
                if (held := await self._objection(state, definition)) is not None:
                    raise held_error(held)
                self._gateway.skills.remember(server, skill)
            assert isinstance(entry, dict)
            shown = {**result, "skill": self._gateway.skills.named(server, entry)}
            return record.result({"ttlMs": 0, "cacheScope": "private", **shown})

    def _usable(self, server: str, entry: Any, own: str) -> tuple[Definition, Skill]:
        try:
            definition = read_skill(entry, self._gateway.limits)
        except ValueError as problem:
            text = f"The server's skill cannot be used: {problem}."
            raise UpstreamRefusal(server, types.INTERNAL_ERROR, text) from None
        skill = skill_in(definition)
        if skill is None or skill.uri != own:
            raise UpstreamRefusal(server, types.INTERNAL_ERROR, "The server answered with another skill.")
        return definition, skill

    async def _directory(self, ctx: Context, params: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        uri = text_in(params, "uri", self._gateway.limits.identifier)
        await self._relay.first_start.tools()
        having, refusal = self._having(caller, _DIRECTORY), None
        for server, own in await self._relay.places(ctx, uri):
            if server not in having:
                continue
            try:
                result = await self._relay.read_at(ctx, server, own, with_client=False)
            except UpstreamRefusal as error:
                refusal = refusal or error
                continue
            return self._with_public_children(server, result, is_renamed=own != uri)
        raise refusal or InvalidRequest(f"{quoted(uri)} is not a directory that can be read.")

    def _with_public_children(self, server: str, result: dict[str, Any], *, is_renamed: bool) -> dict[str, Any]:
        children, names = result.get("resources"), self._gateway.pages.schemes
        if not isinstance(children, list):
            return result
        public = names.public if is_renamed else self._gateway.skills.public
        shown = [
            {**child, "uri": public(server, child["uri"])}
            if isinstance(child, dict) and isinstance(child.get("uri"), str)
            else child
            for child in children
        ]
        return {**result, "resources": shown}


def _is_old(state: UpstreamState, now: float) -> bool:
    return state.listing.skills is not None and state.listing.skills.until <= now
