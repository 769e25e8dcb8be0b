"""The replies of the gateway's own tools, as sent: a text for the model, and the complete reply for programs. Pure."""

from __future__ import annotations

from typing import Any

import pydantic_core

from mcp_optimizer.gateway.entries import entry
from mcp_optimizer.gateway.found import FindToolResponse, FoundTools, ToolListPage, find_response
from mcp_optimizer.gateway.gateway import SCORES_META_KEY

FOUND_META_KEY = "mcp-optimizer/found"
"""The `_meta` key of the complete find_tool reply, for clients that would show structured content to the model."""

SAVINGS_META_KEY = "mcp-optimizer/savings"
"""The `_meta` key of what a find_tool reply saved: the token metrics, and what the reply costs."""

__all__ = [
    "FOUND_META_KEY",
    "SAVINGS_META_KEY",
    "FindToolResponse",
    "find_reply",
    "find_response",
    "list_response",
    "reply_with",
]


def find_reply(found: FoundTools, *, structured: bool = True) -> dict[str, Any]:
    """The result of a find_tool call, as sent: a text for the model, and the complete reply for programs.

    The complete reply goes into `_meta` for a client whose model would read it in place of the text. The savings are in
    `_meta` in any case.
    """
    answer = find_response(found).model_dump(mode="json", exclude_none=True)
    savings = {**answer["token_metrics"], "reply_tokens": found.reply_tokens}
    meta: dict[str, Any] = {
        SCORES_META_KEY: {hit.tool.name: hit.score for hit in found.tools},
        SAVINGS_META_KEY: savings,
    }
    if structured:
        return {**reply_with(answer, found.text), "_meta": meta}
    return {**_told(found.text), "_meta": {**meta, FOUND_META_KEY: answer}}


def list_response(page: ToolListPage) -> dict[str, Any]:
    answer: dict[str, Any] = {"tools": [entry(tool) for tool in page.tools], "total": page.total}
    if page.next_offset is not None:
        answer["next_offset"] = page.next_offset
    if page.note:
        answer["note"] = page.note
    return answer


def reply_with(answer: dict[str, Any], text: str = "") -> dict[str, Any]:
    """A reply as structured content, and as text: the same, if no other is given."""
    return {**_told(text or _json(answer)), "structuredContent": answer}


def _told(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


def _json(answer: dict[str, Any]) -> str:
    """Compact, because a model pays for whitespace."""
    return pydantic_core.to_json(answer).decode("utf-8")
