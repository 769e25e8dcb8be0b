"""Reads all pages of a server's skills/list tolerantly: an unusable skill is left out, with the reason, and the others
stay as they were sent. No file of a skill is read. Used by the session.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mcp_optimizer.domain.skills import definition_of, skill_of
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.limits import Limits
from mcp_optimizer.upstream.listing import Cursor, LeftOut, Listing, Request, SkillsFresh
from mcp_optimizer.upstream.messages import shortened
from mcp_optimizer.upstream.pacing import Pacer

METHOD = "skills/list"

_USUAL_TTL_MS = 60_000
_LONGEST_TTL_MS = 24 * 60 * 60 * 1_000
_MOST_REASONS = 1_000
_SHOWN = 80
_MOST_FILES = 100_000
"""Files of all skills of one server. A list of more is hostile, and every one of them takes memory."""


async def with_skills(listing: Listing, request: Request, limits: Limits, pacer: Pacer) -> Listing:
    """A server's tools, and its skills beside them."""
    found: dict[str, Definition] = {}
    left_out: list[LeftOut] = []
    taken = {tool.name for tool in listing.tools}
    files = 0
    cursor, fresh = Cursor(), SkillsFresh(time.monotonic() + _USUAL_TTL_MS / 1_000)
    while cursor.has_more and len(found) < limits.listed_items:
        page = await request(METHOD, cursor.params)
        entries = page.get("skills")
        for entry in entries if isinstance(entries, list) else []:
            await pacer.to_go_on()
            try:
                definition = read_skill(entry, limits)
                if definition.name in found or definition.name in taken:
                    raise ValueError("the server lists this skill twice; the first one is used")
            except ValueError as problem:
                if len(left_out) < _MOST_REASONS:
                    left_out.append(LeftOut(_name(entry), str(problem)))
                continue
            if len(found) >= limits.listed_items:
                left_out.append(LeftOut("…", f"it lists more than {limits.listed_items:,} (limits.listed_items)"))
                break
            files += len(entry["resources"])
            if files > _MOST_FILES:
                left_out.append(LeftOut("…", f"its skills have more than {_MOST_FILES:,} files; the rest are left out"))
                cursor.end()
                break
            found[definition.name] = definition
        fresh = _fresh(page)
        if cursor.has_more:
            cursor.follow(page)
    return replace(
        listing,
        tools=(*listing.tools, *found.values()),
        left_out=(*listing.left_out, *left_out),
        skills=fresh,
    )


def read_skill(entry: Any, limits: Limits) -> Definition:
    """The definition of a skill; raises ValueError with the reason if it cannot be used."""
    skill = skill_of(entry)
    if len(skill.description) > limits.description:
        raise ValueError(f"its description is longer than {limits.description:,} characters (limits.description)")
    try:
        definition = definition_of(entry, skill)
    except (ValueError, RecursionError):
        raise ValueError("its entry cannot be written as JSON") from None
    if len(definition.wire_json) > limits.definition_bytes:
        raise ValueError(f"its entry is larger than {limits.definition_bytes:,} bytes (limits.definition_bytes)")
    if len(definition.name) > limits.tool_name:
        raise ValueError(f"its URI is longer than {limits.tool_name:,} characters (limits.tool_name)")
    return definition


def _fresh(page: Mapping[str, Any]) -> SkillsFresh:
    said = page.get("ttlMs")
    ttl_ms = min(max(said, 0), _LONGEST_TTL_MS) if type(said) is int else _USUAL_TTL_MS
    return SkillsFresh(time.monotonic() + ttl_ms / 1_000, "public" if page.get("cacheScope") == "public" else "private")


def _name(entry: Any) -> str:
    uri = entry.get("uri") if isinstance(entry, Mapping) else None
    return shortened(uri, _SHOWN) if isinstance(uri, str) and uri else "a skill"
