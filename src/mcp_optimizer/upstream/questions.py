"""Checks and labels questions from servers to clients.

A client is asked only for declared capabilities, and every question contains the server's name from the server file,
which no server can choose. Called wherever a question goes to a client. Pure, except for `AskedBy`, which is a client
as one server sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_optimizer.domain.caller import ClientLink
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.protocol import INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_optimizer.runtime.terminal_text import printable
from mcp_optimizer.upstream.request_errors import RpcError

SERVER_META_KEY = "mcp-optimizer/server"
"""The key in the `_meta` of every question for the server that asks."""

ELICITATION, _SAMPLING = "elicitation/create", "sampling/createMessage"


class OwnQuestion(dict[str, Any]):
    """The parameters of a question by the gateway itself, whose text says so. No server can send this type."""


_FEATURES = {ELICITATION: "elicitation", _SAMPLING: "sampling", "roots/list": "roots"}
"""The capability that a client must declare for each kind of question."""

_SHOWN = ("title", "description")
"""The parts of a form that people read."""


def can_be_asked(capabilities: Mapping[str, Any]) -> bool:
    """Whether the client declared any capability for questions."""
    return any(isinstance(capabilities.get(feature), Mapping) for feature in _FEATURES.values())


def refusal(capabilities: Mapping[str, Any], method: str, params: Mapping[str, Any]) -> RpcError | None:
    """The error for a question that the client did not declare support for; None if it did."""
    declared = capabilities.get(_FEATURES.get(method, ""))
    if not isinstance(declared, Mapping):
        return RpcError(METHOD_NOT_FOUND, f"{method}: this client does not support it")
    mode = params.get("mode", "form")
    # A missing mode means a form.
    if method == ELICITATION and (not isinstance(mode, str) or mode not in (declared or {"form": {}})):
        return RpcError(INVALID_PARAMS, f"{method}: this client does not support the mode {str(mode)[:80]!r}")
    if method == _SAMPLING and ("tools" in params or "toolChoice" in params) and "tools" not in declared:
        return RpcError(INVALID_PARAMS, f"{method}: this client does not support tools in sampling")
    return None


def named(server: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The question with its server's name added: for programs in `_meta`, for people at the start of the text."""
    if isinstance(params, OwnQuestion):
        return dict(params)
    meta = params.get("_meta")
    asked = {**params, "_meta": {**(meta if isinstance(meta, Mapping) else {}), SERVER_META_KEY: server}}
    if method == ELICITATION:
        message = params.get("message")
        said = printable(message) if isinstance(message, str) else ""
        asked["message"] = f'The server "{printable(server)}" asks: {said}'
        if isinstance(form := params.get("requestedSchema"), Mapping):
            asked["requestedSchema"] = _legible(form)
    return asked


def _legible(form: Mapping[str, Any]) -> dict[str, Any]:
    """The form without control characters in titles and descriptions, which could mislead its reader."""
    fields, shown = properties_of(form), _printable(form)
    if fields:
        shown["properties"] = {
            name: _printable(field) if isinstance(field, Mapping) else field for name, field in fields.items()
        }
    return shown


def _printable(part: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: printable(text) for key in _SHOWN if isinstance(text := part.get(key), str)}
    return {**part, **texts}


class AskedBy:
    """A client as one server sees it: asked only for declared capabilities, with the server's name in the question."""

    __slots__ = ("_link", "_server", "capabilities", "is_modern", "key", "log_level")

    def __init__(self, link: ClientLink, server: str) -> None:
        self._link = link
        self._server = server
        # Copied, because these never change and a call reads them several times.
        self.key, self.capabilities = link.key, link.capabilities
        self.is_modern, self.log_level = link.is_modern, link.log_level

    def under(self, key: str) -> AskedBy:
        """The same client and server, with another key."""
        other = AskedBy(self._link, self._server)
        other.key = key
        return other

    @property
    def lasting(self) -> ClientLink:
        return AskedBy(self._link.lasting, self._server)

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if (refused := refusal(self.capabilities, method, params)) is not None:
            raise refused
        return await self._link.ask(method, named(self._server, method, params))

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        await self._link.tell(method, params)

    async def release_streams(self) -> None:
        await self._link.release_streams()


def asked_by(link: ClientLink, server: str) -> ClientLink:
    """The client as this server sees it. May be applied repeatedly."""
    return link if isinstance(link, AskedBy) else AskedBy(link, server)
