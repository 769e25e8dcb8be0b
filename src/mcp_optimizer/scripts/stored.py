"""Provides stored scripts as the tools of a built-in server: defines, publishes, saves and runs them.

Every gateway on a database checks it for changes every two seconds, so a script saved or deleted at one gateway soon
changes at all. The gateway decides whether a caller may call a script, and about each call that the script makes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from mcp_optimizer.access.policy.policy import Policy
from mcp_optimizer.catalog import CatalogTool, LiveCatalog, Snapshot
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.caller import Caller, Risk
from mcp_optimizer.domain.own_tools import ScriptMode
from mcp_optimizer.domain.stored_script import SCRIPTS, StoredScript, UsedTool
from mcp_optimizer.domain.tools import Definition, McpTool, ServerStatus
from mcp_optimizer.errors import CatalogError, InvalidRequest, listed, quoted
from mcp_optimizer.gateway.servers import BuiltInServers
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.scripts.names import Toolbox
from mcp_optimizer.scripts.problems import CheckResult
from mcp_optimizer.scripts.saving import AvailableTools, WantedScript, prepared
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.state import UpstreamState

logger = logging.getLogger(__name__)


# Makes a tool of a stored script: its definition, the check of its arguments, and whether it can be called now. A
# script can be called if the tools that it uses exist and are unchanged.

_HINTS: Final[Mapping[Risk, Mapping[str, bool]]] = {
    Risk.READ: {"readOnlyHint": True},
    Risk.WRITE: {"readOnlyHint": False, "destructiveHint": False},
    Risk.DESTRUCTIVE: {"readOnlyHint": False, "destructiveHint": True},
}


def free_name(configured: Iterable[str]) -> str:
    """The name of the server for stored scripts: `scripts`, unless one of the user's servers has that name."""
    taken = {name.casefold() for name in configured}
    names = (SCRIPTS, f"stored_{SCRIPTS}", *(f"stored_{SCRIPTS}_{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def definition_of(script: StoredScript) -> Definition:
    """The script's definition for the catalog."""
    tool = McpTool(
        name=script.name,
        description=script.description,
        inputSchema=script.input_schema,
        annotations=dict(_HINTS[script.risk]),
    )
    return Definition.of(tool)


def check_arguments(script: StoredScript, arguments: Mapping[str, Any]) -> None:
    """Raises InvalidRequest. Calls of directly registered tools are not checked before this."""
    taken = {one.name: one for one in script.parameters}
    for name, value in arguments.items():
        if name not in taken:
            raise InvalidRequest(
                f"{script.name} has no parameter {quoted(name)}. It has: {listed(list(taken)) or 'none'}."
            )
        if not taken[name].type.admits(value):
            raise InvalidRequest(f"The parameter {name} of {script.name} must be of the type {taken[name].type}.")
    if missing := [one.name for one in script.parameters if one.is_required and one.name not in arguments]:
        raise InvalidRequest(f"{script.name} needs {listed(missing)}.")


def advice(script: StoredScript) -> str:
    """How to repair a script that does not fit the tools any more."""
    return (
        f"Change it and save it again: mcp-optimizer script show {script.name} --source, then "
        f"mcp-optimizer script save {script.name} FILE --replace."
    )


class ScriptState(StrEnum):
    """The state of a stored script."""

    READY = "ready"
    WAITING = "waiting"
    """A server that it uses is not available now."""
    BROKEN = "broken"
    """A tool that it uses has changed: the script must be saved again."""
    NOT_ALLOWED = "not allowed"
    """It changes something, but scripts may only read at this gateway."""
    ELSEWHERE = "elsewhere"
    """None of its servers is configured at this gateway: it was made for others."""


@dataclass(frozen=True)
class ScriptStanding:
    """A script's state, the reason, and the tools that changed but still fit by name and class."""

    state: ScriptState = ScriptState.READY
    reason: str = ""
    changed: tuple[CatalogTool, ...] = ()


def standing(
    script: StoredScript, snapshot: Snapshot, risk_of: Callable[[CatalogTool], Risk], mode: ScriptMode
) -> ScriptStanding:
    """The standing of a script with the tools of a snapshot."""
    servers = {used.server for used in script.uses}
    if servers and servers.isdisjoint(snapshot.states):
        named = ", ".join(map(quoted, sorted(servers)))
        return ScriptStanding(ScriptState.ELSEWHERE, f"It uses servers that are not configured here: {named}.")
    if script.risk is not Risk.READ and mode is not ScriptMode.WRITE:
        reason = f'It can change something, and scripts may only read here (scripts = "{mode}").'
        return ScriptStanding(ScriptState.NOT_ALLOWED, reason)
    changed, missing = [], {state.name for state in snapshot.missing()}
    for used in script.uses:
        tool = _tool_of(snapshot, used)
        if tool is None:
            return _why_missing(used, snapshot, is_missing=used.server in missing)
        if worse := _why_worse(script, used, risk_of(tool)):
            return ScriptStanding(ScriptState.BROKEN, worse)
        if tool.record.definition_hash != used.definition_hash:
            changed.append(tool)
    return ScriptStanding(changed=tuple(changed))


def _tool_of(snapshot: Snapshot, used: UsedTool) -> CatalogTool | None:
    position = snapshot.names.position(used.server, used.tool)
    return None if position is None else snapshot.tools[position]


def _why_missing(used: UsedTool, snapshot: Snapshot, *, is_missing: bool) -> ScriptStanding:
    """Why a tool is missing."""
    state = snapshot.states.get(used.server)
    if state is None:
        return ScriptStanding(ScriptState.BROKEN, f"Its server {quoted(used.server)} was removed.")
    if (used.server, used.tool) in snapshot.held:
        advice = f"mcp-optimizer trust diff {used.server}"
        return ScriptStanding(ScriptState.WAITING, f"{quoted(used.name)} changed and waits for approval: {advice}.")
    if is_missing or not state.is_available:
        why = f": {state.reason}" if state.reason else ""
        return ScriptStanding(ScriptState.WAITING, f"Its server {quoted(used.server)} is {state.status}{why}.")
    return ScriptStanding(ScriptState.BROKEN, f"{quoted(used.server)} has no tool {quoted(used.tool)} any more.")


def _why_worse(script: StoredScript, used: UsedTool, risk: Risk) -> str:
    """Why a tool may now do more than was agreed to when the script was saved; "" if it may not."""
    agreed = script.risk if used.may_change else Risk.READ
    if agreed.covers(risk):
        return ""
    return f"{quoted(used.name)} counts as {risk} now, and the script was saved as one that does no more than {agreed}."


_PAUSE = 2.0
"""Seconds between two checks for scripts that other gateways saved or deleted."""

_WARNED = 60.0
_MOST_PROBLEMS = 3
_MOST_REMEMBERED = 1_000


class ScriptStore(Protocol):
    """Where scripts are kept."""

    async def mark(self) -> object: ...
    async def all(self, most: int) -> list[StoredScript]: ...
    async def save(self, script: StoredScript, most: int, *, replaces: bool) -> str: ...
    async def delete(self, name: str) -> bool: ...


class Runner(Protocol):
    """Runs a script for a caller."""

    async def run(
        self,
        script: str,
        caller: Caller,
        *,
        may_change: Sequence[str] = (),
        arguments: Mapping[str, Any] | None = None,
        mode: ScriptMode | None = None,
    ) -> dict[str, Any]: ...


Check = Callable[[StoredScript, Toolbox], Awaitable[CheckResult]]
"""The problems of a script with the tools as they are now."""


async def no_check(_script: StoredScript, _toolbox: Toolbox) -> CheckResult:
    """A check that finds nothing, for use without a checker. Tool names and classes are still compared."""
    return CheckResult()


@dataclass(frozen=True)
class ScriptSources:
    """The parts that stored scripts need. `configured` returns the names of the user's servers."""

    stored: Callable[[], Awaitable[ScriptStore | None]]
    catalog: LiveCatalog
    built_in: BuiltInServers
    policy: Policy
    runner: Runner
    configured: Callable[[], Iterable[str]]
    mode: ScriptMode
    limits: Limits = DEFAULT_LIMITS
    check: Check = no_check


class StoredScripts:
    """The stored scripts of one gateway."""

    def __init__(self, sources: ScriptSources, pause: float = _PAUSE) -> None:
        self._of = sources
        self._pause = pause
        self._scripts: dict[str, StoredScript] = {}
        self._mark: object = None
        self._listed: tuple[StoredScript, ...] = ()
        self._server = ""
        self._checked: dict[tuple[object, ...], str] = {}
        self._looks = BackgroundTasks(logger, "Cannot look for stored scripts")
        self._turn = asyncio.Lock()
        self._warned_at = float("-inf")

    @property
    def server(self) -> str:
        """The name of the server that provides the scripts as tools."""
        return self._server or free_name(self._of.configured())

    def start(self) -> None:
        """Reads the scripts in the background, now and every two seconds."""
        self._looks.spawn(self._look())

    async def stop(self) -> None:
        await self._looks.close()

    def on_state(self, state: UpstreamState) -> None:
        """Renames the scripts' server if one of the user's servers takes its name.

        Called before the catalog is updated, so that no script is ever taken for a tool of the user's server.
        """
        if state.name == self._server:
            self._withdraw()
            self._publish()

    # Reading and publishing.

    async def _look(self) -> None:
        while True:
            try:
                await self.refresh()
            except CatalogError as error:
                if time.monotonic() - self._warned_at > _WARNED:
                    self._warned_at = time.monotonic()
                    logger.warning("Stored scripts cannot be read: %s. Those known so far are used.", error)
            await asyncio.sleep(self._pause)

    async def refresh(self) -> None:
        """Reads changes from the database and updates the catalog."""
        async with self._turn:
            stored = await self._of.stored()
            if stored is not None:
                mark = await stored.mark()
                if mark != self._mark:
                    found = await stored.all(self._of.limits.stored_scripts)
                    self._scripts, self._mark = {script.name: script for script in found}, mark
            self._publish()

    def _publish(self) -> None:
        """Puts the scripts made for the configured servers into the catalog, if they are not there yet."""
        shown = tuple(one for one in self._scripts.values() if self._standing(one).state is not ScriptState.ELSEWHERE)
        if shown == self._listed and bool(self._server) == bool(shown):
            return
        self._listed = shown
        if not shown:
            self._withdraw()
            return
        if not self._server:
            self._server = free_name(self._of.configured())
            self._of.built_in.serve(self._server, self.call)
        spec = ServerSpec(name=self._server, transport=Transport.STDIO)
        listing = Listing(tuple(map(definition_of, shown)))
        self._of.catalog.on_state(UpstreamState(spec, ServerStatus.RUNNING, listing))

    def _withdraw(self) -> None:
        if self._server:
            self._of.built_in.end(self._server)
            self._of.catalog.forget(self._server)
            self._server = ""
            self._listed = ()

    # Calling.

    async def call(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Runs a script for a caller who may call it."""
        script = self._scripts.get(name)
        if script is None:
            raise InvalidRequest(f"There is no stored script {quoted(name)} any more.")
        check_arguments(script, arguments)
        found = await self.standing(script)
        if found.state is not ScriptState.READY:
            raise InvalidRequest(f"The stored script {quoted(name)} is not run. {found.reason}")
        mode = ScriptMode.READ if script.risk is Risk.READ else ScriptMode.WRITE
        given = script.with_defaults(arguments)
        return await self._of.runner.run(
            script.source, caller, may_change=script.may_change, arguments=given, mode=mode
        )

    async def standing(self, script: StoredScript) -> ScriptStanding:
        """Whether a script fits the tools as they are now; it is checked again if one of them changed."""
        found = self._standing(script)
        if found.changed and (problem := await self._problem(script, found.changed)):
            return ScriptStanding(ScriptState.BROKEN, problem)
        if found.state is ScriptState.BROKEN:
            return ScriptStanding(ScriptState.BROKEN, f"{found.reason} {advice(script)}")
        return found

    def _standing(self, script: StoredScript) -> ScriptStanding:
        return standing(script, self._of.catalog.snapshot, self._risk_of, self._of.mode)

    async def _problem(self, script: StoredScript, changed: Sequence[CatalogTool]) -> str:
        """The problem of a script after these tools changed; remembered until they change again."""
        key = (script.name, script.saved_at_ms, *(tool.record.definition_hash for tool in changed))
        if (known := self._checked.get(key)) is not None:
            return known
        checked = await self._of.check(script, self._toolbox(self._of.catalog.snapshot))
        said = " ".join(checked.refusals[:_MOST_PROBLEMS])
        names = listed([quoted(tool.name) for tool in changed], _MOST_PROBLEMS)
        told = f"Since it was saved, {names} changed, and it does not fit any more: {said} {advice(script)}"
        told = told if said else ""
        if len(self._checked) >= _MOST_REMEMBERED:
            self._checked.clear()
        self._checked[key] = told
        return told

    def _toolbox(self, snapshot: Snapshot) -> Toolbox:
        return Toolbox([tool for tool in snapshot.running if tool.server != self._server])

    def _risk_of(self, tool: CatalogTool) -> Risk:
        return self._of.policy.risk(tool.server, tool.record.name, tool.record.hints).risk

    # Managing, for people.

    async def save(self, wanted: WantedScript, *, replaces: bool) -> StoredScript:
        """Checks a script and keeps it; it can be called as soon as this returns. Raises InvalidRequest with what to
        change.
        """
        snapshot, limits = self._of.catalog.snapshot, self._of.limits
        toolbox = self._toolbox(snapshot)
        around = AvailableTools(snapshot, toolbox, self._risk_of, self._of.mode, limits, self.server)
        script = prepared(wanted, around)
        if refusals := (await self._of.check(script, toolbox)).refusals:
            raise InvalidRequest(f"The script is not saved. {' '.join(refusals[:_MOST_PROBLEMS])}")
        refused = await (await self._store()).save(script, limits.stored_scripts, replaces=replaces)
        if refused == "name":
            raise InvalidRequest(f"There is a stored script {quoted(script.name)} already. Replace it with --replace.")
        if refused:
            raise InvalidRequest(
                f"There are {limits.stored_scripts:,} stored scripts already (limits.stored_scripts). Delete one that "
                "nobody needs: mcp-optimizer script delete NAME."
            )
        await self.refresh()
        return self._scripts.get(script.name, script)

    async def all(self) -> list[tuple[StoredScript, ScriptStanding]]:
        """Every script, with its state."""
        await self.refresh()
        return [(script, await self.standing(script)) for script in self._scripts.values()]

    async def _store(self) -> ScriptStore:
        stored = await self._of.stored()
        if stored is None:
            raise CatalogError("Scripts are kept in the database, and there is none: it is off, or cannot be opened.")
        return stored
