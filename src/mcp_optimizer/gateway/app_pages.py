"""Apps: the pages with which hosts show tools, and the tools that pages call.

A page is named by its tool and often listed nowhere. With several servers, clients get every page under a URI with its
server in it, so that no server can take another one's page. A page calls tools by their own names; if several servers
have a tool of that name, the pages that its client has read decide. Called by the gateway and by serving.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.catalog.tool_forms import ToolForms
from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.extensions import APPS, PAGE_SCHEME, app_tool, extension_of, with_page
from mcp_optimizer.domain.naming import ServerSchemes

_MOST_READERS = 1_000
_MOST_READ = 16
"""Conversations whose pages are remembered, and servers for each."""

_MOST_HIDDEN = 200
"""Maximum tools for pages in one list."""


def shows_pages(caller: Caller) -> bool:
    """Whether a caller's client shows pages, and so keeps tools for pages away from its model."""
    return caller.link is not None and extension_of(caller.link.capabilities, APPS) is not None


class AppPages:
    """The names of pages for clients, and who has read which."""

    def __init__(self, snapshot: Callable[[], Snapshot], forms: ToolForms) -> None:
        self._snapshot = snapshot
        self._forms = forms
        self._known: tuple[Collection[str], ServerSchemes] = ((), ServerSchemes(()))
        self._read: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()

    @property
    def schemes(self) -> ServerSchemes:
        """How a server is named in a URI."""
        servers = self._snapshot().states.keys()
        if self._known[0] != servers:
            self._known = (frozenset(servers), ServerSchemes(servers))
        return self._known[1]

    def owners(self, page: str) -> Collection[str]:
        """The servers whose tools name this page."""
        return self._snapshot().page_owners.get(page, ())

    def meta_of(self, tool: CatalogTool) -> dict[str, Any] | None:
        """The `_meta` of a tool for hosts that show pages; None if it declares nothing for them."""
        app = tool.record.app
        if app is None:
            return None
        sent = (tool.record.details.model_extra or {}).get("_meta") or {}
        return with_page(sent, self.schemes.page(tool.server, app.page)) if app.page else dict(sent)

    def in_definition(self, tool: CatalogTool, definition: Mapping[str, Any]) -> dict[str, Any]:
        """A tool's definition with the URI of its page as clients know it."""
        meta = self.meta_of(tool)
        return {**definition, "_meta": meta} if meta is not None else dict(definition)

    def in_result(self, tool: CatalogTool, result: dict[str, Any], *, adds: bool = True) -> dict[str, Any]:
        """A tool's result with the URIs of pages as clients know them. `adds`: with the tool's own page, if the result
        names none, because a host knows only which of our tools was called.
        """
        meta, content, app = result.get("_meta"), result.get("content"), tool.record.app
        said = app_tool(meta) if meta else None
        page = said.page if said is not None else ""
        if not page and adds and app is not None:
            page = app.page
        linked = isinstance(content, list) and any(map(_names_page, content))
        if not page and not linked:
            # Almost every call: the names of all servers are then looked at by none.
            return result
        schemes = self.schemes
        if page:
            known = schemes.page(tool.server, page)
            result = {**result, "_meta": with_page(meta if isinstance(meta, dict) else {}, known)}
        if not linked or not schemes.are_several:
            return result
        return {**result, "content": [self._renamed(schemes, tool.server, block) for block in content or ()]}

    def _renamed(self, schemes: ServerSchemes, server: str, block: Any) -> Any:
        if not _names_page(block):
            return block
        if block["type"] == "resource_link":
            return {**block, "uri": schemes.page(server, block["uri"])}
        inner = block["resource"]
        return {**block, "resource": {**inner, "uri": schemes.page(server, inner["uri"])}}

    def was_read(self, caller: Caller, server: str) -> None:
        """Note that a caller's client has read a page of this server."""
        servers = self._read.setdefault(caller.conversation, OrderedDict())
        self._read.move_to_end(caller.conversation)
        servers[server] = None
        servers.move_to_end(server)
        while len(servers) > _MOST_READ:
            servers.popitem(last=False)
        while len(self._read) > _MOST_READERS:
            self._read.popitem(last=False)

    def meant(self, view: Snapshot, tool_name: str, caller: Caller) -> str | None:
        """The server whose tool a page calls by this name, if several have one: the only one of them whose pages the
        caller's client has read. None if that is not one.
        """
        having = {tool.server for tool in view.at(view.names.called(tool_name)) if tool.record.app is not None}
        found = [server for server in self._read.get(caller.conversation, ()) if server in having]
        return found[0] if len(found) == 1 else None

    def for_hosts(self, view: Snapshot, dialect: Dialect, most: int) -> list[dict[str, Any]]:
        """The tools for a host that shows pages: those with a page, at most `most`, and those that only pages call."""
        of_apps = view.of_apps
        hidden = [tool for tool in of_apps if tool.record.is_for_apps_only]
        shown = [tool for tool in of_apps if not tool.record.is_for_apps_only][:most]
        found = []
        for tool in (*shown, *hidden[:_MOST_HIDDEN]):
            definition = self._forms.listing(tool, dialect)
            # A result may be truncated to text only, and clients reject that from a tool that declares a structure.
            definition.pop("outputSchema", None)
            found.append(self.in_definition(tool, definition))
        return found


_WITH_URI = ("resource_link", "resource")


def _names_page(block: Any) -> bool:
    if not isinstance(block, dict) or (kind := block.get("type")) not in _WITH_URI:
        return False
    named = block if kind == "resource_link" else block.get("resource")
    uri = named.get("uri") if isinstance(named, dict) else None
    return isinstance(uri, str) and uri.startswith(PAGE_SCHEME)
