"""Lists of skills as servers send them, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_optimizer.domain.skills import MOST_FILES, entry_in
from mcp_optimizer.limits import Limits
from mcp_optimizer.upstream.listing import Listing, read_tools, with_skills
from mcp_optimizer.upstream.pacing import Pacer

DIGEST = f"sha256:{'0' * 64}"


def entry(name: str, files: int = 1, **parts: Any) -> dict[str, Any]:
    uris = [f"skill://{name}/SKILL.md", *(f"skill://{name}/{number}" for number in range(1, files))]
    return {
        "uri": uris[0],
        "frontmatter": {"name": name, "description": f"About {name}."},
        "resources": [{"uri": uri, "digest": DIGEST, "size": 1} for uri in uris],
    } | parts


async def listed(pages: list[dict[str, Any]], before: Listing | None = None, **limits: int) -> Listing:
    async def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert method == "skills/list"
        at = int(params.get("cursor", 0))
        more = {"nextCursor": str(at + 1)} if at + 1 < len(pages) else {}
        return {**pages[at], **more}

    return await with_skills(before or Listing(), request, Limits(**limits), Pacer())


async def test_all_pages_are_read_and_entries_stay_as_they_were_sent() -> None:
    sent = [entry("a"), entry("b", frontmatter={"name": "b", "description": "B", "x-own": [None]})]
    found = await listed([{"skills": [one], "ttlMs": 5_000, "cacheScope": "public"} for one in sent])
    assert [entry_in(definition) for definition in found.tools] == sent
    assert found.skills is not None
    assert found.skills.scope == "public"


async def test_an_unusable_skill_is_left_out_with_the_reason_and_the_others_stay() -> None:
    found = await listed([{"skills": [entry("a"), entry("b", resources=None), "c", entry("a")]}])
    assert [definition.name for definition in found.tools] == ["skill:a"]
    assert [one.name for one in found.left_out] == ["skill://b/SKILL.md", "a skill", "skill://a/SKILL.md"]


async def test_a_tool_keeps_its_name_before_a_skill() -> None:
    tools = read_tools([{"name": "skill:a", "inputSchema": {"type": "object"}}])
    found = await listed([{"skills": [entry("a")]}], tools)
    assert [definition.is_skill for definition in found.tools] == [False]


@pytest.mark.slow
async def test_a_list_without_end_or_of_too_many_files_is_cut() -> None:
    many = [{"skills": [entry(f"s{page}-{number}") for number in range(10)]} for page in range(10)]
    assert len((await listed(many, listed_items=25)).tools) == 25
    large = [{"skills": [entry(f"s{number}", MOST_FILES)]} for number in range(210)]
    found = await listed(large)
    assert len(found.tools) == 100_000 // MOST_FILES
    assert "more than 100,000 files" in found.left_out[-1].reason


async def test_a_description_or_uri_over_the_limits_is_left_out() -> None:
    long = entry("a", frontmatter={"name": "a", "description": "x" * 2_000})
    assert not (await listed([{"skills": [long]}], description=1_000)).tools
    assert not (await listed([{"skills": [entry("a" * 60)]}], tool_name=20)).tools
