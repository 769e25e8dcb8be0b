"""The tool that a name means: exactly one, or an error that helps.

A name with a server's name in it is that server's tool or nothing: it is never given to another, and least of all while
the server is down. Called by the gateway; reads a snapshot, and looks at no more of it than it must.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from mcp_optimizer.catalog.snapshot import Snapshot
from mcp_optimizer.catalog.tools import CatalogTool
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import AmbiguousTool, InvalidRequest, ServerUnavailable, UnknownTool, listed, quoted
from mcp_optimizer.search.words import name_key

_NEAREST = 3
_BY_WORDS = 50
_BY_LETTERS = 100
_COMPARED = 64
"""Characters of a name that are compared with others: comparing takes the square of it."""

_LONGEST_SPELLING = 500
"""Characters of a name that may be another spelling of a tool's."""


def resolve(snapshot: Snapshot, name: str) -> CatalogTool:
    """The tool that a name means, in any spelling that can mean only one."""
    if (tool := exact(snapshot, name)) is not None:
        return tool
    if meant := snapshot.names.servers.meant(name):
        raise _no_tool_of(snapshot, name, meant)
    if snapshot.names.servers.is_ours(name):
        raise InvalidRequest(_ours(snapshot, name))
    candidates = snapshot.at(snapshot.names.called(name)) or _spelt_like(snapshot, name)
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise AmbiguousTool(name, [tool.name for tool in candidates])
    raise UnknownTool(name, nearest_names(snapshot, name))


def exact(snapshot: Snapshot, name: str) -> CatalogTool | None:
    """The tool that is listed under a name, or whose server the name begins with; None if there is none.

    A name stays good with its server in it when the other server that has such a tool goes away.
    """
    # First: public names are made so that none of them speaks of another server.
    if (tool := snapshot.by_name.get(name)) is not None:
        return tool
    meant = snapshot.names.servers.meant(name)
    if len(meant) > 1:
        candidates = [tool for server in meant if (tool := _on_server(snapshot, name, server)) is not None]
        if candidates:
            raise AmbiguousTool(name, [tool.name for tool in candidates])
        return None
    return next((_on_server(snapshot, name, server) for server in meant), None)


def called(snapshot: Snapshot, name: str) -> list[CatalogTool]:
    """Every tool that a name in a settings file means: that of a server, or those of all servers that have it."""
    try:
        tool = exact(snapshot, name)
    except AmbiguousTool:
        return []
    speaks_of_server = bool(snapshot.names.servers.meant(name))
    return [tool] if tool is not None else [] if speaks_of_server else snapshot.at(snapshot.names.called(name))


def on_server(snapshot: Snapshot, name: str, server: str) -> CatalogTool:
    """The tool of a server that is given besides the name."""
    state = snapshot.states.get(server)
    if state is None:
        raise unknown_server(snapshot, server)
    if state.status is not ServerStatus.RUNNING:
        raise _unavailable(snapshot, server)
    tool = _own_tool(snapshot, name, server) or _on_server(snapshot, name, server)
    if tool is None:
        raise UnknownTool(name, nearest_names(snapshot, name, [server]), f"Server {server!r} has no such tool.")
    return tool


def unknown_tool(snapshot: Snapshot, name: str, advice: str) -> UnknownTool:
    """Why there is no tool of a name that is to be taken as it is."""
    if meant := snapshot.names.servers.meant(name):
        return _no_tool_of(snapshot, name, meant, advice)
    return UnknownTool(name, nearest_names(snapshot, name), advice=advice)


def unknown_server(snapshot: Snapshot, server: str) -> InvalidRequest:
    known = listed(list(snapshot.states)) or "none"
    return InvalidRequest(f"Unknown server {quoted(server)}. Servers: {known}.")


def _on_server(snapshot: Snapshot, name: str, server: str) -> CatalogTool | None:
    """A server's tool by a name that is known to speak of it, in any spelling."""
    spoken = snapshot.names.servers.own_names(name, server)
    for own in spoken:
        if (tool := _own_tool(snapshot, own, server)) is not None:
            return tool
    keys = {name_key(own) for own in spoken if len(own) <= _LONGEST_SPELLING} - {""}
    positions = {position for key in keys for position in snapshot.index.spelt_like(key)}
    alike = [tool for tool in snapshot.at(sorted(positions)) if tool.server == server]
    found = [tool for tool in alike if name_key(tool.record.name) in keys]
    return found[0] if len(found) == 1 else None


def _own_tool(snapshot: Snapshot, own: str, server: str) -> CatalogTool | None:
    position = snapshot.names.position(server, own)
    return None if position is None else snapshot.tools[position]


def _spelt_like(snapshot: Snapshot, name: str) -> list[CatalogTool]:
    """The tools that have the words of a name. A spelling of one whose server is down is not given to another."""
    positions = snapshot.index.spelt_like(name) if len(name) <= _LONGEST_SPELLING else ()
    key = name_key(name[:_LONGEST_SPELLING])
    found: list[CatalogTool] = []
    for position in positions:
        record, tool = snapshot.names.records[position], snapshot.tools[position]
        if key not in (name_key(record.name), name_key(f"{record.server} {record.name}")):
            continue
        if tool is None:
            raise _unavailable(snapshot, record.server)
        found.append(tool)
    return found


def _no_tool_of(
    snapshot: Snapshot, name: str, meant: Mapping[str, Sequence[str]], advice: str = "Use find_tool to search."
) -> UnknownTool:
    """Nothing of another server is offered instead: a model follows what it is offered."""
    for server in meant:
        state = snapshot.states.get(server)
        if state is not None and state.status is not ServerStatus.RUNNING:
            reason = f": {state.reason}" if state.reason else ""
            return UnknownTool(name, (), f"Its server {server!r} is {state.status}{reason}.", advice)
    servers = " and ".join(map(repr, meant))
    reason = f"Server {servers} has no such tool." if len(meant) == 1 else f"The servers {servers} have no such tool."
    return UnknownTool(name, nearest_names(snapshot, name, meant), reason, advice)


def _unavailable(snapshot: Snapshot, server: str) -> ServerUnavailable:
    state = snapshot.states[server]
    return ServerUnavailable(server, f"The server {server!r} is not running: {state.reason or state.status}.")


def _ours(snapshot: Snapshot, name: str) -> str:
    called_so = [tool.name for tool in snapshot.at(snapshot.names.called(name))][:_NEAREST]
    others = f" A server's tool with that name is called {', '.join(called_so)}." if called_so else ""
    return f"{name!r} is one of the gateway's own tools: call it directly, not through call_tool.{others}"


def nearest_names(snapshot: Snapshot, name: str, servers: Iterable[str] | None = None) -> list[str]:
    """The names most like this one: those that share its words, and those spelt alike. Of some servers, or of all."""
    name = name[:_COMPARED]
    if servers is None:
        by_words = (hit.position for hit in snapshot.index.nearest_names(name, snapshot.allowed, _BY_WORDS))
        positions = [*by_words, *islice(snapshot.names.beginning_like(name), _BY_LETTERS)]
        found = snapshot.at(dict.fromkeys(positions))
    else:
        found = _of_servers(snapshot, name, servers)
    shown = {tool.name[:_COMPARED]: tool.name for tool in found}
    return [shown[near] for near in difflib.get_close_matches(name, shown, n=_NEAREST, cutoff=0.0)]


def _of_servers(snapshot: Snapshot, name: str, servers: Iterable[str]) -> list[CatalogTool]:
    """Those of a server that share the name's words, then the others, up to as many as are compared."""
    own = [position for server in servers for position in snapshot.names.of_server(server)]
    hits = snapshot.index.nearest_names(name, snapshot.allowed, len(own)) if own else []
    by_words = {hit.position for hit in hits}
    first = [position for position in own if position in by_words]
    return snapshot.at(dict.fromkeys([*first[:_BY_WORDS], *own[:_BY_LETTERS]]))
