"""JSON Schemas are read in one place, so that a malformed one is treated the same way everywhere."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.contract.sources import FILES, PACKAGE, nodes_of, text_of

KEYWORDS = {"properties", "required", "$ref"}
HOME = "mcp_optimizer/domain/json_schema.py"
OWN_WAY = ("mcp_optimizer/search/tool_texts.py", "mcp_optimizer/search/tool_texts.py")
"""Modules that still read schemas themselves. Shorten this list; do not add to it."""


def reads(path: Path) -> bool:
    """Whether a file reads one of these keywords from a schema: `x.get("required")` or `x["required"]`."""
    if not any(word in text_of(path) for word in KEYWORDS):
        return False
    for node in nodes_of(path):
        key: ast.expr | None = None
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            key = node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            key = node.slice
        if isinstance(key, ast.Constant) and key.value in KEYWORDS:
            return True
    return False


def test_properties_required_and_references_are_read_by_one_module() -> None:
    # The demo servers write their own schemas and build some from others.
    files = (path for path in FILES if path.relative_to(PACKAGE).parts[0] != "demo")
    assert {path.relative_to(PACKAGE.parent).as_posix() for path in files if reads(path)} == {HOME, *OWN_WAY}
