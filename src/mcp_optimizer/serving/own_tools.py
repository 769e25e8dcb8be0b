"""Implements the gateway's own tools, with arguments as models write them, and adapts replies to a client's habits.
Called by `server`; knows no SDK type.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import pydantic_core

from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.config.known_clients.habits import habits_of
from mcp_optimizer.domain.caller import Caller, Risk
from mcp_optimizer.domain.client_habits import ClientHabits, Reads, ReadsMeta
from mcp_optimizer.domain.extensions import ANSWERS
from mcp_optimizer.errors import InvalidRequest, quoted
from mcp_optimizer.gateway.batches import Batch
from mcp_optimizer.gateway.found_tools import FindToolResponse, FoundTools, ToolListPage, entry, find_response
from mcp_optimizer.gateway.gateway import SCORES_META_KEY, Gateway
from mcp_optimizer.limits import Limits
from mcp_optimizer.results.metadata import of_a_tool
from mcp_optimizer.results.result_texts import RepeatedStructure

if TYPE_CHECKING:
    from mcp_optimizer.scripts.runner import ScriptRunner


# Adapts replies to a client's habits: which calls belong to one conversation, the tool form that it can read, and the
# parts of a result that its model gets. The gateway's own tools answer in text alone, so a client that gives its
# model structured content instead of the text, or both, shows nothing twice. A program that wants a find_tool reply
# as JSON asks for it with `detail`. The habits themselves are in `known_clients`.

_LONGEST_CONVERSATION = 200
"""Maximum characters of a conversation id that a client provides."""


def conversation_of(habits: ClientHabits, caller: Caller) -> str:
    """The id of the conversation that a call belongs to, as its client reports it; "" if unknown. Scoped to the
    client's connection, so that no client can continue another client's conversation.
    """
    if not habits.conversation_key:
        return ""
    meta = caller.passed_on.get("_meta")
    said = meta.get(habits.conversation_key) if isinstance(meta, dict) else None
    if not isinstance(said, str) or not 0 < len(said) <= _LONGEST_CONVERSATION:
        return ""
    return f"{caller.conversation}\n{said}"


def dialect_for(habits: ClientHabits, wanted: Dialect) -> Dialect:
    """The configured dialect, unless the client cannot read it."""
    return wanted if habits.reads_references else Dialect.INLINED


SAVINGS_META_KEY = "mcp-optimizer/savings"
"""The `_meta` key for the savings of a find_tool reply: the token metrics, and the cost of the reply."""

__all__ = [
    "SAVINGS_META_KEY",
    "FindToolResponse",
    "find_reply",
    "find_response",
    "for_reader",
    "list_reply",
]


def find_reply(found: FoundTools) -> dict[str, Any]:
    """The result of a find_tool call, as sent: text for the model, with the scores and savings in `_meta`."""
    savings = {**found.token_metrics.model_dump(mode="json"), "reply_tokens": found.reply_tokens}
    scores = {hit.tool.name: hit.score for hit in found.tools}
    return {**_told(found.text), "_meta": {SCORES_META_KEY: scores, SAVINGS_META_KEY: savings}}


def list_reply(page: ToolListPage) -> dict[str, Any]:
    """The result of a list_tools call, as sent: the page as compact JSON, because a model pays for whitespace."""
    answer: dict[str, Any] = {"tools": [entry(tool) for tool in page.tools], "total": page.total}
    if page.next_offset is not None:
        answer["next_offset"] = page.next_offset
    if page.note:
        answer["note"] = page.note
    return _told(pydantic_core.to_json(answer).decode("utf-8"))


def for_reader(result: dict[str, Any], habits: ClientHabits) -> dict[str, Any]:
    """A tool's result without the parts that a client's model would read twice or does not need: structured content
    that the text repeats, and the gateway's own `_meta`.
    """
    reads_all = habits.reads_meta is ReadsMeta.ALWAYS or (
        habits.reads_meta is ReadsMeta.OF_ERRORS and bool(result.get("isError"))
    )
    # An unknown program may need the structure; a client whose model reads both directly would pay for both.
    if (reads_all or habits.reads in (Reads.BOTH, Reads.STRUCTURE)) and isinstance(
        result.get("structuredContent"), RepeatedStructure
    ):
        result = {key: value for key, value in result.items() if key != "structuredContent"}
    if not reads_all:
        return result
    result = of_a_tool(result)
    return {key: value for key, value in result.items() if key not in ("_meta", "meta") or value != {}}


def _told(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


OwnTool = Callable[[Mapping[str, Any], Caller], Awaitable[dict[str, Any]]]


class OwnTools:
    """The gateway's own tools. `detail`: how find_tool shows tools by default."""

    def __init__(self, gateway: Gateway, limits: Limits, detail: Detail, scripts: ScriptRunner | None = None) -> None:
        self._gateway = gateway
        self._limits = limits
        self._detail = detail
        self._scripts = scripts

    def by_name(self, *, split_calls: bool) -> dict[str, OwnTool]:
        """The handlers of the tools that clients get, by name."""
        own: dict[str, OwnTool] = {
            "find_tool": self._find_tool,
            "call_tool": self._call_tool,
            "list_tools": self._list_tools,
            "read_result": self._read_result,
        }
        if split_calls:
            own["call_tool_read"] = self._call_tool_read
        own["run_script"] = self._run_script
        return own

    async def _find_tool(self, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        habits = habits_of(caller.client)
        found = await self._gateway.search(
            self._text(arguments, "tool_description", required=True, between="; "),
            self._text(arguments, "tool_keywords"),
            number_in(arguments, "limit"),
            self._wanted_detail(arguments),
            caller,
            conversation=conversation_of(habits, caller),
            is_on_demand=habits.loads_on_demand,
        )
        return find_reply(found)

    def _text(self, arguments: Mapping[str, Any], key: str, *, required: bool = False, between: str = " ") -> str:
        return text_in(arguments, key, self._limits.own_text, required=required, between=between)

    def _wanted_detail(self, arguments: Mapping[str, Any]) -> Detail:
        wanted = self._text(arguments, "detail") or self._detail
        if wanted not in set(Detail):
            known = [detail for detail in Detail if self._scripts is not None or detail is not Detail.PYTHON]
            raise InvalidRequest(f"detail must be one of {', '.join(known)}, not {quoted(wanted)}.")
        return Detail(wanted)

    async def _list_tools(self, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        await self._gateway.arrived(caller)
        server, offset = self._text(arguments, "server") or None, number_in(arguments, "offset") or 0
        self._gateway.permissions.take_turn(caller)
        # In a thread: a page has a hundred definitions to unpack, and their tokens to count.
        page = await asyncio.to_thread(self._gateway.list_tools, server, offset, caller)
        return list_reply(page)

    async def _call_tool(
        self, arguments: Mapping[str, Any], caller: Caller, most: Risk = Risk.DESTRUCTIVE
    ) -> dict[str, Any]:
        name = self._text(arguments, "tool_name", required=True)
        own = {"tool_name", "server_name", "parameters", "select"}
        # Some models put the tool's arguments next to its name, or use MCP's own key for them.
        beside = {key: value for key, value in arguments.items() if key not in own}
        given = arguments.get("parameters")
        parameters = beside if given is None or given == {} else given
        server, select = self._text(arguments, "server_name") or None, self._text(arguments, "select")
        added = habits_of(caller.client).added_arguments
        if (items := await self._gateway.batches.listed(parameters, caller)) is not None:
            return await self._gateway.batches.call(Batch(name, items, server, select, most, added), caller)
        return await self._gateway.call(name, parameters, server, caller, select, most, added=added, may_defer=True)

    async def _call_tool_read(self, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        return await self._call_tool(arguments, caller, Risk.READ)

    async def _read_result(self, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        result_id = self._text(arguments, "result_id", required=True)
        self._gateway.permissions.take_turn(caller)
        return await self._gateway.results.read(
            result_id,
            caller,
            offset=number_in(arguments, "offset") or 0,
            limit=number_in(arguments, "limit"),
            select=self._text(arguments, "select"),
            search=self._text(arguments, "search"),
            for_model=True,
        )

    async def _run_script(self, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        if self._scripts is None:
            raise InvalidRequest("Scripts are off here. Call the tools one by one with call_tool.")
        longest = max(self._limits.script_characters, self._limits.own_text)
        script = text_in(arguments, "script", longest, required=True, between="\n")
        if not any(answer in caller.passed_on for answer in ANSWERS):
            # An answer to a script's question only continues the script.
            self._gateway.permissions.take_turn(caller)
        return await self._scripts.run(script, caller, may_change=names_in(arguments, "may_change", self._limits))


_FARTHEST = 2**62


def text_in(arguments: Mapping[str, Any], key: str, most: int, *, required: bool, between: str) -> str:
    """A text of at most `most` characters; a list of texts is joined."""
    value = arguments.get(key)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = between.join(value)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value.strip()):
        raise InvalidRequest(f"{key} is required and must be text." if required else f"{key} must be text.")
    if len(value) > most:
        raise InvalidRequest(f"{key} may have {most:,} characters, not {len(value):,}.")
    return value


def number_in(arguments: Mapping[str, Any], key: str) -> int | None:
    """A whole number, or None if it is missing."""
    value = arguments.get(key)
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InvalidRequest(f"{key} must be a whole number, not {quoted(value)}.")
    # None of our numbers is that large, and one of ten thousand digits cannot even be written.
    return value if value is None else max(-_FARTHEST, min(value, _FARTHEST))


def names_in(arguments: Mapping[str, Any], key: str, limits: Limits) -> tuple[str, ...]:
    """A list of names, or one name."""
    value = arguments.get(key)
    names = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidRequest(f"{key} must be a list of names.")
    if any(len(name) > limits.identifier for name in names):
        raise InvalidRequest(f"A name in {key} may have {limits.identifier:,} characters.")
    return tuple(names)
