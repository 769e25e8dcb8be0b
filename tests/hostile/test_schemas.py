"""Signatures and compressed schemas are made within seconds, whatever a server lists."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mcp_optimizer.catalog.tool_forms import Detail, ToolForms
from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.compression.notes import first_sentence, lift_notes
from mcp_optimizer.compression.references import drop_unused_definitions
from mcp_optimizer.compression.signature import Notes
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.search.tool_texts import parameter_names
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import live_catalog, running

COUNTER = TokenCounter()
NAMES = [f"p{at}" for at in range(9_000)]


def chain(length: int) -> dict[str, Any]:
    return {f"d{at}": {"properties": {"x": {"$ref": f"#/$defs/d{at + 1}"}}} for at in range(length)}


def times(keyword: str, width: int, depth: int) -> dict[str, Any]:
    """Each definition refers to the next one `width` times."""
    wide = {f"d{at}": {keyword: [{"$ref": f"#/$defs/d{at + 1}"}] * width} for at in range(depth)}
    return {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**wide, f"d{depth}": {"type": "string"}}}


PAIRS = {
    name: {"type": "object", "title": "Thing", "properties": {f"n{at // 2}": {"description": "The name of this thing"}}}
    for at, name in enumerate(NAMES[:6_000])
}

HOSTILE: dict[str, tuple[str, dict[str, Any]]] = {
    "references that multiply": ("", times("allOf", 2, 40)),
    "references that multiply faster": ("", times("anyOf", 100, 10)),
    "a chain that nobody uses": ("", {"$defs": chain(9_000)}),
    "a chain": ("", {"$defs": chain(9_000), "$ref": "#/$defs/d0"}),
    "references that hold themselves": (
        "",
        {
            "$ref": "#/$defs/d0",
            "$defs": {f"d{at}": {"properties": {"x": {"$ref": f"#/$defs/d{at * 7 % 3000}"}}} for at in range(3_000)},
        },
    ),
    "thousands of things of one name": ("", {"properties": PAIRS}),
    "nothing but abbreviations": ("e.g. " * 19_000, {"properties": {"a": {"description": "Mr. " * 200_000}}}),
    "a note for each of many": (
        "Args:\n" + "".join(f"  {name}: what it is\n" for name in NAMES[:4_000]),
        {"properties": {name: {"type": "string"} for name in NAMES[:4_000]}},
    ),
    "blank lines": ("Args:\n" + "\n x\n\n" * 16_000, {"properties": {"a": {}}}),
    "all required": ("", {"properties": {name: {} for name in NAMES}, "required": NAMES}),
}


@pytest.mark.slow
@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("name", HOSTILE)
async def test_every_form_of_a_hostile_definition_is_made_in_seconds(name: str, dialect: Dialect) -> None:
    description, schema = HOSTILE[name]
    tool = McpTool(name="t", description=description or "Do it.", inputSchema={"type": "object", **schema})
    catalog = await live_catalog(running("s", tool))
    [found] = catalog.snapshot.running
    started = time.process_time()
    for notes in Notes:
        forms = ToolForms(COUNTER, notes, dialect)
        for detail in Detail:
            [form] = forms.reply([found], detail, 10_000)
            assert form.cost <= 10_000
        forms.plans(found)
    # Quadratic growth or worse would take minutes, or never end.
    assert time.process_time() - started < 20


def test_what_was_quadratic_is_no_more() -> None:
    started = time.process_time()
    first_sentence("e.g. " * 200_000)
    lift_notes("Args:\n" + "".join(f"  {name}: what\n" for name in NAMES), frozenset(NAMES))
    drop_unused_definitions({"type": "object", "$defs": chain(3_000)})
    many = [f"p{at}" for at in range(50_000)]
    assert parameter_names({"properties": dict.fromkeys(many), "required": many}) == many
    assert time.process_time() - started < 20


def test_a_required_name_that_is_no_name_is_passed_over() -> None:
    assert parameter_names({"properties": {"a": {}}, "required": [["a"], {}, "a"]}) == ["a"]
