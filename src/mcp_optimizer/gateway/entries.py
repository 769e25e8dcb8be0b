"""A tool in the plain list of tools: its name, its server, and at most one sentence. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.search.deprecation import sentence as deprecation

_SUMMARY = 100


def entry(tool: CatalogTool) -> dict[str, Any]:
    """A tool in the plain list of tools."""
    return {"name": tool.name, "server": tool.server, "description": summary(tool)}


def summary(tool: CatalogTool) -> str:
    """The beginning of a tool's description, for lists: at most one sentence."""
    return _summary(tool.record.definition)


@lru_cache(maxsize=4096)
def _summary(definition: Definition) -> str:
    """Kept, because a list shows a hundred, and each definition would have to be unpacked for it."""
    details = definition.parsed()
    description = details.description or details.title or ""
    text = " ".join(description.split())
    end = text.find(". ")
    text = text[: end + 1] if end > 0 else text
    text = text if len(text) <= _SUMMARY else text[: _SUMMARY - 1].rstrip() + "…"
    # Who picks a tool from the list must not miss that it is deprecated.
    warning = " ".join(deprecation(description).split())
    return text if not warning or warning in text else f"{warning} {text}"
