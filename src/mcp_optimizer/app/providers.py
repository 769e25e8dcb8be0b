"""An optimizer's tools in the formats of model providers whose models load tools on demand.

Anthropic: all tools are sent, deferred, and a search returns references to them. OpenAI: only the search is sent, and
it returns definitions. In both, the search is ours and runs here. For programs that call these APIs themselves; plain
dictionaries, so that neither SDK is needed. Nothing made here becomes part of an MCP result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.compression.short_descriptions import Level
from mcp_optimizer.domain.caller import LOCAL
from mcp_optimizer.domain.own_tools import FIND_TOOL, READ_RESULT
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.errors import InvalidRequest, OptimizerError

_SEARCH, _READ = FIND_TOOL["name"], READ_RESULT["name"]
_NOTHING = "No tool fits. Say in other words what should be done."
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_DESCRIPTION = (
    "Search all tools by what you want to do, before saying it cannot be done. Separate several actions by ';'. What "
    "is found can then be called."
)


class _Provider:
    """What the adapters have in common."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer

    def _definition(self, name: str) -> McpTool:
        return self._optimizer.lists.definition(name, Level.FULL)

    def _names(self) -> list[str]:
        """The names of callable tools, in a fixed order."""
        view = self._optimizer.gateway.permissions.views.of(self._optimizer.snapshot, LOCAL)
        return [tool.name for tool in view.running]

    async def _found(self, asked: Any) -> list[str]:
        """The names of matching tools, best first."""
        given = _object(asked)
        wanted = given.get("tool_description")
        if not isinstance(wanted, str) or not wanted.strip():
            raise InvalidRequest("tool_description is required and must be text.")
        keywords, limit = given.get("tool_keywords"), given.get("limit")
        is_number = isinstance(limit, int) and not isinstance(limit, bool)
        found = await self._optimizer.find(
            wanted, keywords if isinstance(keywords, str) else "", limit if is_number else None
        )
        names = self._optimizer.snapshot.by_name
        return [tool.name for tool in found.tools if tool.name in names]

    async def _called(self, name: str, arguments: Any) -> dict[str, Any]:
        if name != _READ:
            return await self._optimizer.call(name, arguments)
        given = _object(arguments)
        result_id, offset, limit = given.get("result_id"), given.get("offset"), given.get("limit")
        if not isinstance(result_id, str):
            raise InvalidRequest("result_id is required and must be text.")
        return await self._optimizer.read_result(
            result_id,
            offset if isinstance(offset, int) else 0,
            limit if isinstance(limit, int) else None,
            select=str(given.get("select") or ""),
            search=str(given.get("search") or ""),
        )


class AnthropicTools(_Provider):
    """For the Messages API: `tools()` for the request, and `answer` for each `tool_use` block of a response."""

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__(optimizer)
        self._offered: frozenset[str] = frozenset()

    def tools(self) -> list[dict[str, Any]]:
        """The search, read_result, and every tool with `defer_loading`: a model reads the tools that a search returned.

        Stays identical, order included, as long as the servers' tools do, for prompt caches.
        """
        names = self._names()
        self._offered = frozenset(names)
        own = [
            {"name": _SEARCH, "description": _DESCRIPTION, "input_schema": FIND_TOOL["inputSchema"]},
            {"name": _READ, "description": READ_RESULT["description"], "input_schema": READ_RESULT["inputSchema"]},
        ]
        return [*own, *map(self._deferred, names)]

    def _deferred(self, name: str) -> dict[str, Any]:
        tool = self._definition(name)
        schema = {"type": "object", **tool.input_schema}
        return {"name": name, "description": tool.description or "", "input_schema": schema, "defer_loading": True}

    async def answer(self, block: Any) -> dict[str, Any]:
        """The `tool_result` block for a `tool_use` block, which may be the SDK's or a dictionary."""
        name, use_id = str(_value_of(block, "name")), str(_value_of(block, "id"))
        answer = {"type": "tool_result", "tool_use_id": use_id}
        try:
            if name == _SEARCH:
                # A reference to a tool that is not in the request would make the next request fail.
                found = [one for one in await self._found(_value_of(block, "input")) if one in self._offered]
                content = [{"type": "tool_reference", "tool_name": one} for one in found]
                return {**answer, "content": content or _NOTHING}
            result = await self._called(name, _value_of(block, "input"))
        except OptimizerError as error:
            return {**answer, "content": str(error), "is_error": True}
        content = [_anthropic_block(part) for part in result.get("content", ())]
        return {**answer, "content": content, "is_error": bool(result.get("isError"))}


class OpenAITools(_Provider):
    """For the Responses API: `tools()` for the request, and `answer` for each call among the output of a response."""

    def tools(self) -> list[dict[str, Any]]:
        """The search, which runs here, and read_result; a search returns the definitions of other tools."""
        search = {"type": "tool_search", "execution": "client", "description": _DESCRIPTION}
        reading = _function(_READ, READ_RESULT["description"], READ_RESULT["inputSchema"])
        return [{**search, "parameters": FIND_TOOL["inputSchema"]}, reading]

    async def answer(self, item: Any) -> dict[str, Any] | None:
        """The item that answers a `tool_search_call` or a `function_call`; None for any other item."""
        kind, call_id = _value_of(item, "type"), _value_of(item, "call_id")
        if kind == "tool_search_call" and _value_of(item, "execution") == "client":
            try:
                found = await self._found(_value_of(item, "arguments"))
            except OptimizerError:
                # This item has no field for an error message.
                found = []
            tools = [{**self._loaded(name), "defer_loading": True} for name in found]
            done = {"execution": "client", "status": "completed", "tools": tools}
            return {"type": "tool_search_output", "call_id": call_id, **done}
        if kind != "function_call":
            return None
        try:
            result = await self._called(str(_value_of(item, "name")), _value_of(item, "arguments"))
        except OptimizerError as error:
            return {"type": "function_call_output", "call_id": call_id, "output": str(error)}
        output = [_openai_part(part) for part in result.get("content", ())]
        return {"type": "function_call_output", "call_id": call_id, "output": output or ""}

    def _loaded(self, name: str) -> dict[str, Any]:
        tool = self._definition(name)
        return _function(name, tool.description or "", tool.input_schema)


def _function(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    # Not strict: servers' schemas have optional parameters, and arguments are checked here.
    parameters = {"type": "object", "properties": {}, **schema}
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": False}


def _value_of(value: Any, name: str) -> Any:
    """A field of an SDK object or of a dictionary."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _object(given: Any) -> Mapping[str, Any]:
    """Arguments as an object; OpenAI sends them as JSON text."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            given = None
    if not isinstance(given, Mapping):
        raise InvalidRequest("The arguments must be an object.")
    return given


def _anthropic_block(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") == "image" and part.get("mimeType") in _IMAGES:
        source = {"type": "base64", "media_type": part["mimeType"], "data": part.get("data", "")}
        return {"type": "image", "source": source}
    return {"type": "text", "text": _text(part)}


def _openai_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") == "image" and part.get("mimeType") in _IMAGES:
        return {"type": "input_image", "image_url": f"data:{part['mimeType']};base64,{part.get('data', '')}"}
    return {"type": "input_text", "text": _text(part)}


def _text(part: Mapping[str, Any]) -> str:
    return str(part["text"]) if part.get("type") == "text" and "text" in part else json.dumps(part, ensure_ascii=False)
