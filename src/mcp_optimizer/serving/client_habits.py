"""Adapts replies to a client's habits: which calls belong to one conversation, the tool form that it can read, and the
parts of a result that its model gets.

The gateway's own tools answer in text alone, so a client that gives its model structured content instead of the text,
or both, shows nothing twice. A program that wants a find_tool reply as JSON asks for it with `detail`. The habits
themselves are in `known_clients`. Pure.
"""

from __future__ import annotations

from typing import Any

import pydantic_core

from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.client_habits import ClientHabits, Reads, ReadsMeta
from mcp_optimizer.gateway.found_tools import FindToolResponse, FoundTools, ToolListPage, entry, find_response
from mcp_optimizer.gateway.gateway import SCORES_META_KEY
from mcp_optimizer.results.metadata import of_a_tool
from mcp_optimizer.results.result_texts import RepeatedStructure

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
