"""Entries of skills as servers send them, honest and not, and the definitions under which they are in the catalog."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

import pytest

from mcp_optimizer.domain.skills import (
    MOST_BYTES,
    MOST_FILES,
    SkillFile,
    bytes_in,
    catalog_name,
    climbs,
    definition_of,
    entry_in,
    frontmatter_in,
    is_as_announced,
    listed_text,
    root_of,
    skill_in,
    skill_of,
)
from mcp_optimizer.upstream.listing import read_tools

DIGEST = f"sha256:{'0' * 64}"


def file(uri: str, size: int = 10) -> dict[str, Any]:
    return {"uri": uri, "digest": DIGEST, "size": size}


def entry(uri: str = "skill://acme/refunds/SKILL.md", *files: dict[str, Any]) -> dict[str, Any]:
    frontmatter = {"name": uri.split("/")[-2], "description": "Refund a customer.", "license": "MIT"}
    return {"uri": uri, "frontmatter": frontmatter, "resources": [file(uri, 401), *files], "x-own": [1]}


def test_an_entry_becomes_a_definition_and_comes_back_as_it_was_sent() -> None:
    sent = entry("skill://acme/refunds/SKILL.md", file("skill://acme/refunds/forms/a.md"))
    skill = skill_of(sent)
    definition = definition_of(sent, skill)
    assert entry_in(definition) == sent
    assert skill_in(definition) == skill
    assert definition.name == "skill:acme/refunds"
    assert listed_text(definition) == "refunds: Refund a customer."
    assert skill.further_files == ["forms/a.md"]
    assert skill.tokens_to_read == 101


def test_a_definition_is_the_same_to_the_byte_when_it_comes_back_from_the_database() -> None:
    sent = entry() | {"frontmatter": {"name": "refunds", "description": "Café 😀"}}
    definition = definition_of(sent, skill_of(sent))
    [stored] = read_tools([json.loads(definition.wire_json)]).tools
    assert stored == definition
    assert stored.is_skill


def test_the_definition_that_models_read_is_without_the_entry() -> None:
    sent = entry()
    definition = definition_of(sent, skill_of(sent))
    assert DIGEST in definition.wire_json
    assert DIGEST not in definition.readable_json
    assert definition.details.description == "Refund a customer."
    assert not definition.details.model_extra


@pytest.mark.parametrize("uri", ["skill://refunds/SKILL.md", "github://a/b/refunds/SKILL.md", "skill://a/b/c/SKILL.md"])
def test_the_name_of_a_skill_says_which_folder_it_has(uri: str) -> None:
    assert root_of(catalog_name(uri)) == uri.removesuffix("/SKILL.md")
    assert root_of("refunds") is None


def test_a_dynamic_skill_has_no_known_files_and_no_known_cost() -> None:
    skill = skill_of(entry() | {"resources": "dynamic"})
    assert skill.files is None
    assert skill.tokens_to_read == 0
    assert skill.has_below("skill://acme/refunds/anything.md")
    assert not skill.has_below("skill://acme/refundsx/anything.md")


def changed(**parts: Any) -> dict[str, Any]:
    return copy.deepcopy(entry()) | parts


WRONG = {
    "is not an object": "skill",
    "URIs cannot be used": changed(uri=17),
    "does not end": changed(uri="skill://acme/refunds"),
    "frontmatter is not an object": changed(frontmatter=None),
    "no usable name": changed(frontmatter={"name": "refunds"}),
    "not called like": changed(frontmatter={"name": "other", "description": "x"}),
    'neither a list nor "dynamic"': changed(resources={"a": 1}),
    "not in its folder": entry("skill://a/refunds/SKILL.md", file("skill://a/other/x.md")),
    "leaves its folder": entry("skill://a/refunds/SKILL.md", file("skill://a/refunds/%2E%2e/x.md")),
    "lists a file twice": entry("skill://a/refunds/SKILL.md", file("skill://a/refunds/SKILL.md")),
    "does not list its SKILL.md": changed(resources=[]),
    "no usable digest": changed(resources=[{"uri": "skill://acme/refunds/SKILL.md", "size": 1}]),
    "more than 512": entry("skill://a/b/SKILL.md", *(file(f"skill://a/b/{n}") for n in range(MOST_FILES))),
    "more than 16,777,216": entry("skill://a/b/SKILL.md", file("skill://a/b/large", MOST_BYTES)),
}


@pytest.mark.parametrize(("why", "sent"), WRONG.items(), ids=list(WRONG))
def test_an_entry_that_breaks_a_rule_is_refused_with_the_reason(why: str, sent: Any) -> None:
    with pytest.raises(ValueError, match=why):
        skill_of(sent)


def test_a_skill_at_its_limits_is_accepted() -> None:
    few = [file(f"skill://a/b/{n}", 0) for n in range(MOST_FILES - 1)]
    whole = file("skill://a/b/SKILL.md", MOST_BYTES)
    skill = skill_of(entry("skill://a/b/SKILL.md") | {"resources": [whole, *few]})
    assert len(skill.files or ()) == MOST_FILES


@pytest.mark.parametrize("uri", ["skill://a/../b", "skill://a/./b", "skill://a/%2e%2E/b", "skill://a/.%2e"])
def test_a_path_that_climbs_is_recognised_in_any_spelling(uri: str) -> None:
    assert climbs(uri)
    assert not climbs("skill://a/..b/c...md")


def test_content_is_compared_with_what_was_announced_by_size_and_digest() -> None:
    announced = SkillFile("skill://a/b", f"sha256:{hashlib.sha256(b'Caf').hexdigest()}", 3)
    assert is_as_announced(announced, b"Caf")
    assert not is_as_announced(announced, b"Cat")
    assert not is_as_announced(SkillFile("skill://a/b", announced.digest, 4), b"Caf")
    assert bytes_in({"blob": "Q2Fm"}) == bytes_in({"text": "Caf"}) == b"Caf"
    assert bytes_in({"blob": "?"}) is bytes_in({}) is bytes_in("Caf") is None


def test_frontmatter_is_what_is_between_the_first_two_lines_of_dashes() -> None:
    assert frontmatter_in("---\nname: a\n---\n\n---\n") == "name: a"
    assert frontmatter_in("\ufeff---\r\nname: a\r\n---\r\n") == "name: a"
    assert frontmatter_in("name: a\n---\n") is None
    assert frontmatter_in("---\nname: a\n") is None
