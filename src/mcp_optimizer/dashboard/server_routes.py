"""Manages servers on the dashboard: their state, their logs, and forms that add, remove, switch and restart them.

Built by the composition root; `guard` decides who may see it and who may submit its forms. Changes go to the server
file, which the gateway then reads; the last one can be undone until the file is changed otherwise. Does not know how an
edit changes the text.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.config.serverfile.file_edits import (
    Edit,
    change_file,
    entries_in,
    file_text,
    with_entry,
    with_server_on,
    with_tool_on,
    without_entry,
)
from mcp_optimizer.config.serverfile.parser import refuse_unusable
from mcp_optimizer.config.serverfile.variables import secrets_used
from mcp_optimizer.dashboard.guard import Guard, form_of, sent_parts
from mcp_optimizer.dashboard.html import join
from mcp_optimizer.dashboard.page_parts import message_page, named, server_page_href
from mcp_optimizer.dashboard.server_pages import (
    PATH,
    NewServer,
    ServerPage,
    ServerPageContext,
    ServerShown,
    ServersPage,
    log_part,
    new_server,
    now_part,
    removal_page,
    server_page,
    servers_page,
)
from mcp_optimizer.dashboard.visitor import ActRecorder, Visitor, visitor_of
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CatalogError, ConfigurationError, OptimizerError
from mcp_optimizer.identity.logins import Logins
from mcp_optimizer.metrics.weights import by_server, total, weights
from mcp_optimizer.upstream.state import UpstreamState

if TYPE_CHECKING:
    from mcp_optimizer.identity.secrets import Secrets

_NOTHING_TO_UNDO = "There is nothing to undo here."
_FILE_CHANGED = "The server file has been changed since, outside this page: undo that there, and nothing is lost."


@dataclass(frozen=True)
class LastChange:
    """One change of the file made on the dashboard."""

    told: str
    """The change in words: `disabled time`."""
    at_ms: int
    before: str = field(repr=False)
    after: str = field(repr=False)


class FileChanges:
    """Makes one change at a time. The last one can be undone until the file is changed otherwise."""

    def __init__(self, path: Path, take_in: Callable[[], Awaitable[object]]) -> None:
        """`take_in`: makes the gateway read the file again at once."""
        self.path = path
        self.last: LastChange | None = None
        self._take_in = take_in
        self._turn = asyncio.Lock()

    async def apply(self, told: str, edit: Edit) -> bool:
        """Changes the file; returns whether that made a difference. Raises ConfigurationError."""
        async with self._turn:
            change = await asyncio.to_thread(self._applied, told, edit)
            if change is None:
                return False
            self.last = change
            await self._take_in()
            return True

    async def undo(self, shown_at: str = "") -> str:
        """Restores the text before the last change; returns what was undone. Raises ConfigurationError.

        `shown_at`: the time of the change that the visitor saw and means, if the form states it.
        """
        async with self._turn:
            if (last := self.last) is None:
                raise ConfigurationError(_NOTHING_TO_UNDO)
            if shown_at and shown_at != str(last.at_ms):
                raise ConfigurationError(
                    f"The last change is another one now: {last.told}. Look again before you undo it."
                )

            def restored(text: str) -> str:
                if text != last.after:
                    # The file was changed otherwise, so this change can never be undone.
                    self.last = None
                    raise ConfigurationError(_FILE_CHANGED)
                return last.before

            await asyncio.to_thread(change_file, self.path, restored)
            self.last = None
            await self._take_in()
            return last.told

    def _applied(self, told: str, edit: Edit) -> LastChange | None:
        made: list[LastChange] = []

        def noted(text: str) -> str:
            after = edit(text)
            made.append(LastChange(told, time.time_ns() // 1_000_000, text, after))
            return after

        return made[0] if change_file(self.path, noted) else None


_FIXED = "Servers cannot be changed here: they are not from a server file, or dashboard_changes is off."
_NO_SECRETS = "Values are kept as secrets in the database, and there is none (--database none)."
_NO_ANSWER = "The database does not answer. Try again shortly."
_TOO_LARGE = "The form is too large."


@dataclass(frozen=True)
class ServerSources:
    """The parts that the server pages use."""

    states: Callable[[], Sequence[UpstreamState]]
    log: Callable[[str], list[str]]
    restart: Callable[[str], None]
    snapshot: Callable[[], Snapshot]
    logins: Logins
    changes: FileChanges | None
    """None if the server file cannot be changed on the dashboard."""
    broken: Callable[[], str]
    """The mistake in the current files, if there is one."""
    secrets: Callable[[], Secrets] | None
    acts: ActRecorder
    version: str


class ServerRoutes:
    """Responds with pages, and changes the servers that they show."""

    def __init__(self, sources: ServerSources, guard: Guard) -> None:
        self._sources = sources
        self._guard = guard

    def routes(self) -> list[Route]:
        page, action = self._guard.private, self._guard.action
        return [
            Route(PATH, page(self._all), methods=["GET"]),
            Route(PATH, action(self._add), methods=["POST"]),
            Route(f"{PATH}/{{rest:path}}", page(self._one), methods=["GET"]),
            Route(f"{PATH}/{{rest:path}}", action(self._act), methods=["POST"]),
        ]

    # Pages.

    async def _all(self, request: Request) -> Response:
        return await self._servers(request)

    async def _servers(
        self, request: Request, problem: str = "", entered: Mapping[str, str] | None = None, status: int = 200
    ) -> Response:
        servers = await self._shown(self._sources.states())
        servers.sort(key=lambda one: (ServerStatus(one.status).is_in_order, one.is_disabled, one.name))
        values = ServersPage(self._around(request, problem), servers, entered or {})
        return HTMLResponse(await asyncio.to_thread(servers_page, values), status_code=status)

    async def _one(self, request: Request) -> Response:
        """`/servers/NAME`, `/servers/NAME/now` for the page's script, and `/servers/NAME/remove`, which asks."""
        name, *more = sent_parts(request, PATH)
        if more == ["now"]:
            values = await self._values(request, name)
            if values is None:
                return PlainTextResponse("There is no such server.", status_code=404)
            return HTMLResponse(join([now_part(values), log_part(values)]))
        if more == ["remove"] and (values := await self._values(request, name)) is not None:
            if not values.around.offers_changes:
                return RedirectResponse(server_page_href(name), status_code=303)
            return HTMLResponse(removal_page(values.server, values.around))
        # For visitors who reopen the address of a form's response.
        return RedirectResponse(server_page_href(name), 303) if more else await self._server(request, name)

    async def _server(self, request: Request, name: str, problem: str = "", status: int = 200) -> Response:
        values = await self._values(request, name, problem)
        if values is None:
            told = f"There is no server called {named(name)}. It may have been removed."
            page = message_page("No such server", problem or told, version=self._sources.version,
                                visitor=visitor_of(request))  # fmt: skip
            return HTMLResponse(page, status_code=404)
        return HTMLResponse(server_page(values), status_code=status)

    async def _values(self, request: Request, name: str, problem: str = "") -> ServerPage | None:
        found = [state for state in self._sources.states() if state.name == name]
        shown = await self._shown(found)
        try:
            log = self._sources.log(name) if shown else []
        except ConfigurationError:
            # The server was removed meanwhile.
            return None
        return ServerPage(self._around(request, problem), shown[0], log) if shown else None

    def _around(self, request: Request, problem: str = "") -> ServerPageContext:
        sources = self._sources
        last = sources.changes.last if sources.changes is not None else None
        return ServerPageContext(
            sources.version,
            visitor_of(request),
            time.time_ns() // 1_000_000,
            sources.changes is not None,
            keeps_secrets=sources.secrets is not None,
            broken=sources.broken(),
            undo=(last.told, last.at_ms) if last is not None else None,
            problem=problem,
        )

    async def _shown(self, states: Sequence[UpstreamState]) -> list[ServerShown]:
        try:
            logins = {
                login.server: login.state for login in await self._sources.logins.statuses(s.spec for s in states)
            }
        except OptimizerError:
            # The page is useful without logins.
            logins = {}
        names = {state.name for state in states}
        # In a thread: going through a hundred thousand tools takes longer than a call should wait.
        sizes = await asyncio.to_thread(_sizes, self._sources.snapshot(), names)
        return [_server_shown(state, logins.get(state.name, ""), sizes.get(state.name, (0, 0))) for state in states]

    # Changes.

    async def _add(self, request: Request) -> Response:
        fields = await form_of(request)
        if fields is None:
            return await self._servers(request, _TOO_LARGE, status=413)
        sources, changes = self._sources, self._sources.changes
        try:
            if changes is None:
                raise ConfigurationError(_FIXED)
            wanted = new_server(fields)
            refuse_unusable(wanted.name, wanted.entry, changes.path, os.environ)
            # Checked before its secrets could replace those of another entry.
            _refuse_known(wanted, await asyncio.to_thread(lambda: entries_in(file_text(changes.path))))
            await self._store(wanted.secrets, visitor_of(request))
            await changes.apply(f"added {wanted.name}", lambda text: with_entry(text, wanted.name, wanted.entry))
        except ConfigurationError as problem:
            return await self._servers(request, str(problem), fields, 400)
        except CatalogError:
            return await self._servers(request, _NO_ANSWER, fields, 503)
        sources.acts.record(visitor_of(request), "server/add", server=wanted.name)
        return RedirectResponse(server_page_href(wanted.name), status_code=303)

    async def _store(self, values: Mapping[str, str], visitor: Visitor) -> None:
        if not values:
            return
        if self._sources.secrets is None:
            raise ConfigurationError(_NO_SECRETS)
        secrets = self._sources.secrets()
        for name, value in values.items():
            await secrets.set(name, value)
            self._sources.acts.record(visitor, "secret/set", tool=name)

    async def _act(self, request: Request) -> Response:
        """`/servers/undo`, and `/servers/NAME/` with enable, disable, restart or remove."""
        name, *action = sent_parts(request, PATH)
        if not action and name == "undo":
            return await self._undo(request)
        if len(action) != 1 or action[0] not in _ACTIONS:
            return await self._servers(request, "There is no such page.", status=404)
        fields = await form_of(request)
        if fields is None:
            return await self._servers(request, _TOO_LARGE, status=413)
        try:
            tool = fields.get("tool", "") if action[0] in _OF_TOOLS else ""
            return await self._done(request, name, action[0], tool)
        except ConfigurationError as problem:
            return await self._server(request, name, str(problem), 400)

    async def _done(self, request: Request, name: str, action: str, tool: str) -> Response:
        sources = self._sources
        if action == "restart":
            sources.restart(name)
        else:
            if sources.changes is None:
                raise ConfigurationError(_FIXED)
            about = f"{tool} of {name}" if tool else name
            await sources.changes.apply(f"{_ACTIONS[action]} {named(about)}", _edit(action, name, tool))
        sources.acts.record(visitor_of(request), f"server/{action}", server=name, tool=tool)
        return RedirectResponse(PATH if action == "remove" else server_page_href(name), status_code=303)

    async def _undo(self, request: Request) -> Response:
        if self._sources.changes is None:
            return await self._servers(request, _FIXED, status=400)
        fields = await form_of(request) or {}
        try:
            told = await self._sources.changes.undo(fields.get("at", ""))
        except ConfigurationError as problem:
            return await self._servers(request, str(problem), status=409)
        self._sources.acts.record(visitor_of(request), "server/undo", tool=told)
        return RedirectResponse(PATH, status_code=303)


_ACTIONS = {"enable": "enabled", "disable": "disabled", "remove": "removed", "restart": "restarted"}


_OF_TOOLS = ("enable", "disable")
"""Actions that also apply to a single tool."""


def _refuse_known(wanted: NewServer, entries: Mapping[str, Any]) -> None:
    if wanted.name in entries:
        raise ConfigurationError(f"There is already a server called {wanted.name}.")
    if used := sorted(secrets_used(entries) & set(wanted.secrets)):
        raise ConfigurationError(f"Another server uses the secret {used[0]}. Choose another name for this server.")


def _edit(action: str, name: str, tool: str) -> Callable[[str], str]:
    """How an action changes the text of the server file."""
    if action == "remove":
        return lambda text: without_entry(text, name)
    is_on = action == "enable"
    if tool:
        return lambda text: with_tool_on(text, name, tool, is_on)
    return lambda text: with_server_on(text, name, is_on)


def _sizes(snapshot: Snapshot, names: set[str]) -> dict[str, tuple[int, int]]:
    own = by_server(weights(snapshot))
    return {name: (len(own[name]), total(own[name])) for name in names if name in own}


def _server_shown(state: UpstreamState, login: str, size: tuple[int, int]) -> ServerShown:
    spec = state.spec
    shown = ServerShown(
        spec.name,
        state.status.value,
        spec.target,
        spec.transport.value,
        "" if spec.disabled else state.reason,
        state.server_version,
        state.protocol_version,
        round(state.since * 1_000) if state.since else None,
        state.restarts,
        *size,
        login,
    )
    return replace(shown, is_disabled=spec.disabled, can_run=not spec.problem, turned_off=spec.tools.turned_off)
