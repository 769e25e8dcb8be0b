"""Finds the one tool that a name means, or raises a helpful error.

A name that contains a server's name means that server's tool or none; it never resolves to another server, even while
the server is down. Called by the gateway; reads a snapshot, and only as much of it as needed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from mcp_optimizer.catalog.snapshot import Snapshot
from mcp_optimizer.catalog.tools import CatalogTool
from mcp_optimizer.domain.naming import is_listable
from mcp_optimizer.errors import (
    AmbiguousTool,
    InvalidRequest,
    OptimizerError,
    ServerUnavailable,
    UnknownTool,
    listed,
    quoted,
)
from mcp_optimizer.gateway.found_tools import held_error
from mcp_optimizer.search.words import name_key
from mcp_optimizer.upstream.state import UpstreamState

_NEAREST = 3
_BY_WORDS = 50
_BY_LETTERS = 100
_COMPARED = 64
"""Characters of a name that are compared with other names; comparing takes quadratic time."""

_LONGEST_SPELLING = 500
"""Maximum length of a name that is tried in another spelling."""


def meant(snapshot: Snapshot, name: str, server: str | None = None) -> CatalogTool:
    """The tool that a name means, on a server if one is given."""
    return on_server(snapshot, name, server) if server else resolve(snapshot, name)


def resolve(snapshot: Snapshot, name: str) -> CatalogTool:
    """The tool that a name means, in any unambiguous spelling."""
    if (tool := exact(snapshot, name)) is not None:
        return tool
    if named := _meant(snapshot, name):
        raise _no_tool_of(snapshot, name, named)
    if snapshot.names.servers.meant(name):
        # The name belongs to a server that this connection leaves out: no other server may take such a call.
        raise UnknownTool(name, nearest_names(snapshot, name))
    if snapshot.names.servers.is_ours(name):
        raise InvalidRequest(_ours(snapshot, name))
    _refuse_held(snapshot, name)
    candidates = snapshot.at(snapshot.names.called(name)) or _spelt_like(snapshot, name)
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise AmbiguousTool(name, [tool.name for tool in candidates])
    raise _of_server_away(snapshot, name) or UnknownTool(name, nearest_names(snapshot, name))


def exact(snapshot: Snapshot, name: str) -> CatalogTool | None:
    """The tool listed under a name, or the tool of the server in the name; None if there is none.

    A name with its server in it stays valid when the other server with a tool of that name goes away, and a tool that
    cannot be listed under its own name can still be called by it.
    """
    # Checked first, because no public name refers to another server.
    if (tool := snapshot.listed_as(name)) is not None:
        return tool
    named = _meant(snapshot, name)
    if len(named) > 1:
        candidates = [tool for server in named if (tool := _on_server(snapshot, name, server)) is not None]
        if candidates:
            raise AmbiguousTool(name, [tool.name for tool in candidates])
        return None
    if not named and not is_listable(name) and not snapshot.names.servers.meant(name):
        candidates = snapshot.at(snapshot.names.called(name))
        return candidates[0] if len(candidates) == 1 else None
    return next((_on_server(snapshot, name, server) for server in named), None)


def called(snapshot: Snapshot, name: str) -> list[CatalogTool]:
    """Every tool that a name in a settings file means: one server's, or those of all servers that have it."""
    try:
        tool = exact(snapshot, name)
    except AmbiguousTool:
        return []
    speaks_of_server = bool(snapshot.names.servers.meant(name))
    return [tool] if tool is not None else [] if speaks_of_server else snapshot.at(snapshot.names.called(name))


def on_server(snapshot: Snapshot, name: str, server: str) -> CatalogTool:
    """The tool of a server that is given in addition to the name."""
    state = snapshot.states.get(server)
    if state is None:
        raise unknown_server(snapshot, server)
    if not _is_listed(snapshot, state):
        raise _unavailable(snapshot, server)
    tool = _own_tool(snapshot, name, server) or _on_server(snapshot, name, server)
    if tool is None:
        _refuse_held(snapshot, name, [server])
        raise UnknownTool(name, nearest_names(snapshot, name, [server]), f"Server {server!r} has no such tool.")
    return tool


def bearers(snapshot: Snapshot, name: str, server: str | None = None) -> list[str]:
    """The servers that a name refers to, whether or not their tools can be found now: the given one, those in the name,
    or else those that have listed a tool of that name.
    """
    if server:
        return [server] if server in snapshot.states else []
    if named := snapshot.names.servers.meant(name):
        return [one for one in named if one in snapshot.states]
    names = snapshot.names
    return list(dict.fromkeys(names.records[position].server for position in names.called(name)))


def unknown_tool(snapshot: Snapshot, name: str, advice: str) -> OptimizerError:
    """Explains why no tool has this exact name."""
    if named := _meant(snapshot, name):
        return _no_tool_of(snapshot, name, named, advice)
    _refuse_held(snapshot, name)
    return _of_server_away(snapshot, name) or UnknownTool(name, nearest_names(snapshot, name), advice=advice)


def unknown_server(snapshot: Snapshot, server: str) -> InvalidRequest:
    known = listed(list(snapshot.states)) or "none"
    return InvalidRequest(f"Unknown server {quoted(server)}. Servers: {known}.")


def _meant(snapshot: Snapshot, name: str) -> dict[str, Sequence[str]]:
    """The servers that a name refers to, among those that exist in this snapshot's view."""
    named = snapshot.names.servers.meant(name)
    return {server: rests for server, rests in named.items() if server in snapshot.states}


def _on_server(snapshot: Snapshot, name: str, server: str) -> CatalogTool | None:
    """A server's tool by a name that refers to that server, in any spelling."""
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
    """The tools whose names have the same words. If the spelling matches a tool of a stopped server, no other server's
    tool is used.
    """
    positions = snapshot.index.spelt_like(name) if len(name) <= _LONGEST_SPELLING else ()
    key = name_key(name[:_LONGEST_SPELLING])
    found: list[CatalogTool] = []
    for position in positions:
        record, tool = snapshot.names.records[position], snapshot.tools[position]
        if key not in (name_key(record.name), name_key(f"{record.server} {record.name}")):
            continue
        if tool is not None:
            found.append(tool)
        elif (state := snapshot.states.get(record.server)) is not None and not _is_listed(snapshot, state):
            raise _unavailable(snapshot, record.server)
    return found


def _no_tool_of(
    snapshot: Snapshot, name: str, meant: Mapping[str, Sequence[str]], advice: str = "Use find_tool to search."
) -> UnknownTool:
    """Suggests nothing from other servers, because a model follows suggestions."""
    _refuse_held(snapshot, name, meant)
    for server in meant:
        state = snapshot.states.get(server)
        if state is not None and not _is_listed(snapshot, state):
            reason = f": {state.reason}" if state.reason else ""
            return UnknownTool(name, (), f"Its server {server!r} is {state.status}{reason}.", advice)
    servers = " and ".join(map(repr, meant))
    reason = f"Server {servers} has no such tool." if len(meant) == 1 else f"The servers {servers} have no such tool."
    return UnknownTool(name, nearest_names(snapshot, name, meant), reason, advice)


def _is_listed(snapshot: Snapshot, state: UpstreamState) -> bool:
    """Whether the tools of a server are known: it runs, or did before."""
    return state.is_available or state.name in snapshot.expected or state.name in snapshot.offered


def _refuse_held(snapshot: Snapshot, name: str, servers: Iterable[str] | None = None) -> None:
    """Raises an error if a name means a tool that waits for approval, on the given servers if known. No other server's
    tool is used or suggested in its place.
    """
    if not snapshot.held:
        return
    if servers is None:
        found = snapshot.held_as(name)
    else:
        spoken = [
            (server, own) for server in servers for own in (name, *snapshot.names.servers.own_names(name, server))
        ]
        found = tuple(tool for server, own in spoken for tool in snapshot.held_as(own) if tool.server == server)
    if found:
        exact = [tool for tool in found if tool.name == name]
        raise held_error((exact or found)[0])


def _unavailable(snapshot: Snapshot, server: str) -> ServerUnavailable:
    state = snapshot.states[server]
    return ServerUnavailable(server, f"The server {server!r} is not running: {state.reason or state.status}.")


def _of_server_away(snapshot: Snapshot, name: str) -> ServerUnavailable | None:
    """The error for a tool that a server has listed before it went away: other tools are no replacement for it."""
    for position in snapshot.names.called(name):
        state = snapshot.states.get(snapshot.names.records[position].server)
        if state is not None and not _is_listed(snapshot, state):
            return _unavailable(snapshot, state.name)
    return None


def _ours(snapshot: Snapshot, name: str) -> str:
    called_so = [tool.name for tool in snapshot.at(snapshot.names.called(name))][:_NEAREST]
    others = f" A server's tool with that name is called {', '.join(called_so)}." if called_so else ""
    return f"{name!r} is one of the gateway's own tools: call it directly, not through call_tool.{others}"


def nearest_names(snapshot: Snapshot, name: str, servers: Iterable[str] | None = None) -> list[str]:
    """The most similar names: those that share words, and similar spellings. From the given servers, or all."""
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
    """Tools of these servers: first those that share the name's words, then the rest, up to the number compared."""
    own = [position for server in servers for position in snapshot.names.of_server(server)]
    hits = snapshot.index.nearest_names(name, snapshot.allowed, len(own)) if own else []
    by_words = {hit.position for hit in hits}
    first = [position for position in own if position in by_words]
    return snapshot.at(dict.fromkeys([*first[:_BY_WORDS], *own[:_BY_LETTERS]]))
