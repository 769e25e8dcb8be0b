"""Computes what a command prints, the same in a running gateway and in one started for the command.

Called by the listener and by commands. Nothing here counts as a client's use of the gateway: no events, no savings, no
learning. The policy decides and the audit records as for any caller. Arguments given as `key=value` are read by the
types in the tool's schema.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mcp_optimizer.app.control import command_requests
from mcp_optimizer.app.control.command_facts import (
    found_facts,
    meant_facts,
    missing_facts,
    result_facts,
    save_script,
    script_rows,
    server_facts,
    session_facts,
    tool_facts,
    tool_rows,
)
from mcp_optimizer.catalog.tool_forms import Detail, ToolForms
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.own_tools import SCRIPTS_OFF
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import ConfigurationError, InvalidRequest, quoted
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.resolving import on_server, resolve
from mcp_optimizer.largejson.raw import has_large, plain
from mcp_optimizer.profiles.lists import ToolLists
from mcp_optimizer.profiles.tiers import ProfileName
from mcp_optimizer.upstream.state import ServerSessions, UpstreamState

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from mcp_optimizer.scripts.stored import Runner, StoredScripts

_TRUTH_WORDS = {"true": True, "false": False}


def typed_arguments(pairs: Iterable[tuple[str, str]], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Repeated keys become a list. A value whose type the schema omits stays text; the tool checks it itself."""
    properties = properties_of(schema)
    found: dict[str, Any] = {}
    for key, text in pairs:
        about = properties.get(key)
        about = about if isinstance(about, Mapping) else {}
        kinds = _argument_kinds(about)
        if "array" in kinds and "string" not in kinds and not text.lstrip().startswith("["):
            items = about.get("items")
            item = _argument_value(key, text, _argument_kinds(items) if isinstance(items, Mapping) else set())
            found[key] = [*found.get(key, []), item]
        elif key in found:
            raise InvalidRequest(f"The argument {quoted(key)} is given twice, and it is no list.")
        else:
            found[key] = _argument_value(key, text, kinds)
    return found


def _argument_kinds(schema: Mapping[str, Any]) -> set[str]:
    kinds = schema.get("type")
    return {kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)}


def _argument_value(key: str, text: str, kinds: set[str]) -> Any:
    if not kinds or "string" in kinds:
        return text
    if "boolean" in kinds and text.lower() in _TRUTH_WORDS:
        return _TRUTH_WORDS[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        wanted = " or ".join(sorted(kinds))
        raise InvalidRequest(f"The argument {quoted(key)} has to be of type {wanted}, as JSON.") from None


_LONGEST_WAIT = 600.0
_COMMAND_LINE = Caller(client="mcp-optimizer command line")
"""A command runs as the user who started the gateway."""


class Operations(Protocol):
    """What a person can do to a running gateway."""

    def restart(self, server: str) -> None:
        """End a server after its calls, and start it again."""
        ...

    def log(self, server: str) -> list[str]:
        """The last lines of a server's log, without its secrets."""
        ...

    async def reload(self) -> DataclassInstance:
        """Reload the files; returns what changed, and what is wrong with them."""
        ...


class Invite(Protocol):
    """Makes a one-time address that signs one browser in as the owner."""

    async def __call__(self, *, by_address: bool) -> str: ...


@dataclass(frozen=True)
class AnswerSources:
    """The parts that answers are read from."""

    gateway: Gateway
    forms: ToolForms
    lists: ToolLists
    states: Callable[[], list[UpstreamState]]
    settled: Callable[[float], Awaitable[None]]
    detail: Detail
    profile: ProfileName
    about: Mapping[str, Any]
    """The unchanging part of a status: the server file, the address."""
    sessions: Callable[[str], ServerSessions]
    """Those with one server."""
    clients: Callable[[], int] | None = None
    """How many clients on stdio have joined; None for a gateway that is not shared."""
    operations: Operations | None = None
    entrance: Invite | None = None
    """None without a dashboard."""
    scripts: StoredScripts | None = None
    runner: Runner | None = None
    """Both are None where scripts are off."""


def _covers(request: command_requests.Request, server: str) -> bool:
    """Whether the answer to a request would have something of a server, if it ran."""
    if isinstance(request, command_requests.ToolsRequest) and request.server is not None:
        return request.server == server
    # These are about one tool, which was found.
    one_tool = (command_requests.CallRequest, command_requests.ShowRequest, command_requests.ResolveRequest)
    return not isinstance(request, one_tool)


class Answers:
    """Answers each kind of request with the values that its command prints."""

    def __init__(self, sources: AnswerSources) -> None:
        self._of = sources
        self._started = time.time()

    async def answer(self, request: command_requests.Request) -> dict[str, Any]:
        """The answer, and the missing servers that it would cover."""
        if request.wait:
            await self._of.settled(min(request.wait, _LONGEST_WAIT))
        value = await self._value(request)
        missing = missing_facts(self._of.gateway.snapshot)
        return {"value": value, "missing": [state for state in missing if _covers(request, state["name"])]}

    def _server(self, state: UpstreamState) -> dict[str, Any]:
        facts = server_facts(self._of.gateway.snapshot, state)
        if self._of.clients is not None:
            # Elsewhere, only one client is on stdio, or clients have sessions and no processes.
            facts |= session_facts(self._of.sessions(state.name))
        return facts

    async def _value(self, request: command_requests.Request) -> Any:
        match request:
            case command_requests.FindRequest():
                return await self._find(request)
            case command_requests.ToolsRequest():
                return self._tools(request)
            case command_requests.CallRequest():
                return await self._call(request)
            case command_requests.ReadRequest():
                return await self._read(request)
            case command_requests.ServersRequest():
                return [self._server(state) for state in self._of.states()]
            case command_requests.ShowRequest():
                tool = self._of.gateway.resolve(request.tool)
                of = self._of
                return await asyncio.to_thread(tool_facts, tool, of.forms, of.lists, of.profile)
            case command_requests.ResolveRequest():
                snapshot, name = self._of.gateway.snapshot, request.tool
                return meant_facts(
                    resolve(snapshot, name) if request.server is None else on_server(snapshot, name, request.server)
                )
            case command_requests.StatusRequest():
                return self._status()
            case command_requests.RestartRequest():
                self._known(request.server)
                self._operations.restart(request.server)
                return None
            case command_requests.LogsRequest():
                names = self._names if request.server is None else [self._known(request.server)]
                return {name: self._operations.log(name) for name in names}
            case command_requests.ReloadRequest():
                return asdict(await self._operations.reload())
            case command_requests.DashboardRequest():
                return await self._entrance(by_address=request.by_address)
            case command_requests.SaveScriptRequest():
                return await save_script(self._scripts, request)
            case command_requests.ScriptsRequest():
                return await script_rows(self._scripts)
            case command_requests.RunScriptRequest():
                return await self._run_script(request)
            case command_requests.TryScriptRequest():
                return await self._try_script(request)

    async def _entrance(self, *, by_address: bool) -> dict[str, Any]:
        if self._of.entrance is None:
            raise InvalidRequest("This gateway has no dashboard: it serves on stdio, or with --no-dashboard.")
        return {"address": await self._of.entrance(by_address=by_address)}

    async def _find(self, request: command_requests.FindRequest) -> dict[str, Any]:
        gateway = self._of.gateway
        # Created here, in the event loop, because the thread below needs it to exist.
        await gateway.seen_by(_COMMAND_LINE)
        wanted = (request.query, request.keywords, request.limit, self._of.detail, _COMMAND_LINE)
        return found_facts(await gateway.in_turn(_COMMAND_LINE, partial(gateway.find, *wanted)))

    def _tools(self, request: command_requests.ToolsRequest) -> list[dict[str, Any]]:
        if request.server is not None and request.server not in self._of.gateway.snapshot.states:
            self._known(request.server)
        running = self._of.gateway.snapshot.running
        return tool_rows([tool for tool in running if request.server in (None, tool.server)])

    async def _call(self, request: command_requests.CallRequest) -> dict[str, Any]:
        gateway, arguments = self._of.gateway, request.arguments
        if request.plain:
            tool = gateway.resolve(request.tool, request.server)
            arguments = {**(arguments or {}), **typed_arguments(request.plain, tool.record.details.input_schema)}
        result = await gateway.call(request.tool, arguments, request.server, _COMMAND_LINE, request.select)
        return result_facts(await asyncio.to_thread(plain, result) if has_large(result) else result)

    async def _run_script(self, request: command_requests.RunScriptRequest) -> dict[str, Any]:
        scripts = self._scripts
        await scripts.refresh()
        await self._of.gateway.taken_in()
        return await self._call(
            command_requests.CallRequest(
                tool=request.name,
                arguments=request.arguments,
                plain=request.plain,
                server=scripts.server,
                select=request.select,
            )
        )

    async def _try_script(self, request: command_requests.TryScriptRequest) -> dict[str, Any]:
        if self._of.runner is None:
            raise ConfigurationError(SCRIPTS_OFF)
        await self._of.gateway.taken_in()
        return result_facts(
            await self._of.runner.run(request.script, _COMMAND_LINE, may_change=list(request.may_change))
        )

    async def _read(self, request: command_requests.ReadRequest) -> dict[str, Any]:
        return result_facts(
            await self._of.gateway.results.read(
                request.result_id,
                _COMMAND_LINE,
                offset=request.offset,
                limit=request.limit,
                select=request.select,
                search=request.search,
            )
        )

    def _status(self) -> dict[str, Any]:
        states = self._of.states()
        counts = {status.value: sum(state.status is status for state in states) for status in ServerStatus}
        return {
            **self._of.about,
            "pid": os.getpid(),
            "started": self._started,
            "servers": {status: count for status, count in counts.items() if count},
            "tools": len(self._of.gateway.snapshot.running),
            **({"clients": self._of.clients()} if self._of.clients is not None else {}),
        }

    @property
    def _operations(self) -> Operations:
        if self._of.operations is None:
            raise InvalidRequest("Only a gateway that is serving can do this.")
        return self._of.operations

    @property
    def _scripts(self) -> StoredScripts:
        if self._of.scripts is None:
            raise ConfigurationError(SCRIPTS_OFF)
        return self._of.scripts

    @property
    def _names(self) -> list[str]:
        return [state.name for state in self._of.states()]

    def _known(self, server: str) -> str:
        if server not in self._names:
            names = ", ".join(self._names) or "none"
            raise InvalidRequest(f"Unknown server {quoted(server)}. Servers: {names}.")
        return server
