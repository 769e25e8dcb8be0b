"""Deprecated tools: how they are recognized, which tools replace them, and that no form hides the deprecation."""

from __future__ import annotations

import pytest

from mcp_optimizer.compression.brief import abbreviated
from mcp_optimizer.compression.compress import SchemaNotes, compress
from mcp_optimizer.compression.short_descriptions import ShortDescription, concise
from mcp_optimizer.compression.signature import Notes, signature
from mcp_optimizer.db.models import McpTool
from mcp_optimizer.search.deprecation import Superseded, sentence, successors
from tests.unit.catalogs import gateway_over, mcp_tool, running

READ = "Read the complete contents of a file as text. DEPRECATED: Use read_text_file instead. It takes a path."


@pytest.mark.parametrize(
    ("description", "said"),
    [
        (READ, "DEPRECATED: Use read_text_file instead."),
        ("This tool is deprecated, use `search_v2`.\n\nSearches.", "This tool is deprecated, use `search_v2`."),
        ("[Deprecated] Old search", "[Deprecated] Old search"),
        ("Lists all deprecated APIs of a project.", ""),
        ("Finds out whether a package is deprecated.", ""),
        ("Reads a file. " + "It is fast. " * 60 + "The flag x is deprecated.", ""),
        ("", ""),
    ],
)
def test_the_sentence_that_deprecates_a_tool_is_found_and_one_about_others_is_not(description: str, said: str) -> None:
    assert sentence(description) == said


def test_a_deprecated_tool_points_to_the_names_that_its_warning_has() -> None:
    assert successors("", READ, {}) == ("readtextfile",)
    assert successors("", "Deprecated. Use get_all_pages instead.", {}) == ("getallpages",)
    assert successors("Search (deprecated)", "Searches.", {}) == ()
    assert successors("", "Searches.", {"deprecated": True}) == ()
    assert successors("", "Searches.", {"deprecated": "no"}) is None
    assert successors("Read file", "Reads a file. See also read_text_file.", {}) is None


def test_a_tool_is_superseded_only_by_one_of_its_own_server_that_is_not_deprecated_itself() -> None:
    tools = [
        ("files", "read_file", ("readtextfile",)),
        ("files", "read_text_file", None),
        ("other", "read_file", ("readtextfile",)),
        ("files", "read", ("readfile",)),
    ]
    found = Superseded.of(tools)
    assert found.old.tolist() == [0, 2, 3]
    assert found.new.tolist() == [1, -1, -1]


def test_no_form_of_a_tool_hides_that_it_is_deprecated() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": "x" * 4_000}}}
    tool = McpTool(name="read_file", description=READ, inputSchema=schema)
    warning = "DEPRECATED: Use read_text_file instead."
    for notes in Notes:
        assert warning in signature(tool, notes)
    for notes_of_schema in SchemaNotes:
        assert warning in (compress(tool, len, notes=notes_of_schema).tool.description or "")
    short = concise(tool, ShortDescription("Read file contents as text", is_clear=True), READ)
    assert warning in short.model_dump_json()
    for most in (3_000, 900, 200):
        assert warning in (abbreviated(tool, most).description or "")


@pytest.mark.slow
def test_a_description_without_end_is_looked_through_only_so_far() -> None:
    assert sentence("a" * 2_000_000 + " deprecated") == ""
    assert successors("t" * 2_000_000, "deprecated " * 200_000, {}) == ()


async def test_a_request_in_the_words_of_a_deprecated_name_gets_the_successor_and_the_name_itself_does_not() -> None:
    gateway = await gateway_over(
        running("files", mcp_tool("read_file", READ), mcp_tool("read_text_file", "Read a file as text."))
    )
    assert gateway.find("read a file").tools[0].tool.name == "read_text_file"
    assert gateway.find("read_file").tools[0].tool.name == "read_file"
