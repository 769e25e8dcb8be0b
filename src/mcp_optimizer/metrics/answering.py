"""One reply to a client while it is made, for the accounts: the request, and in the end the reply or the error."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.events import EventKind, ToolKey
from mcp_optimizer.domain.own_tools import CALLING
from mcp_optimizer.domain.script_mode import SCRIPT_META_KEY
from mcp_optimizer.errors import CallRefused, OptimizerError
from mcp_optimizer.gateway import resolving
from mcp_optimizer.gateway.gateway import SCORES_META_KEY, TOOL_META_KEY
from mcp_optimizer.results.pipeline import RESULT_META_KEY, SELECTION_META_KEY

KINDS = {
    "find_tool": EventKind.FIND,
    "list_tools": EventKind.LIST,
    "read_result": EventKind.READ,
    "run_script": EventKind.SCRIPT,
}
"""By our own tools; everything else is a call."""

Parts = Mapping[str, Mapping[str, Any]]
"""The parts of a reply's metadata, by their names; one that is not an object is left out, because it is not ours."""

_OURS = (
    "tokens",
    "data",
    "performance",
    RESULT_META_KEY,
    SELECTION_META_KEY,
    SCORES_META_KEY,
    SCRIPT_META_KEY,
    TOOL_META_KEY,
)


class AccountedAnswer:
    """Entered before the reply is made and recorded after exit; kept simple, because every call uses it."""

    __slots__ = ("_asked", "_started", "_take", "at", "caller", "error", "kind", "milliseconds", "result")

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any],
        caller: Caller,
        take: Callable[[AccountedAnswer], None] | None = None,
    ) -> None:
        """`take` is told of it on exit."""
        self.kind = KINDS.get(name, EventKind.CALL)
        self.caller = caller
        self.result: Mapping[str, Any] | None = None
        self.error: OptimizerError | None = None
        self._asked = (arguments.get("tool_name"), arguments.get("server_name")) if name in CALLING else (name, None)
        self._take = take
        self._started = time.perf_counter()
        self.at = self.milliseconds = 0.0
        """When it was complete, and how long that took."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if isinstance(error, OptimizerError):
            self.failed(error)
        if self._take is not None:
            self.at, self.milliseconds = time.time(), (time.perf_counter() - self._started) * 1_000
            self._take(self)

    def reply(self, result: dict[str, Any]) -> dict[str, Any]:
        """The reply, as sent."""
        self.result = result
        return result

    def failed(self, error: OptimizerError) -> None:
        """The reply reports this error."""
        self.error = error

    def said(self) -> Parts:
        """What the metadata of the reply says under our names."""
        meta = self.result.get("_meta") if self.result is not None else None
        if not isinstance(meta, dict):
            return {}
        return {name: part for name in _OURS if name in meta and isinstance(part := meta[name], dict)}

    def tool(self, view: Snapshot, said: Parts) -> ToolKey:
        """The tool, if its caller sees it; a name that a model made up is not recorded."""
        name, server = self._asked
        if self.kind is not EventKind.CALL or not isinstance(name, str):
            return ("", "")
        if not server and (listed := view.listed_as(name)) is not None:
            return listed.key
        if origin := said.get(TOOL_META_KEY):
            return (str(origin.get("server", "")), str(origin.get("name", "")))
        if isinstance(self.error, CallRefused):
            return (self.error.server, self.error.tool)
        try:
            tool = resolving.meant(view, name, server if isinstance(server, str) and server else None)
        except OptimizerError:
            return (getattr(self.error, "server", ""), "")
        return tool.key
