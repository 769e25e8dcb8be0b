"""Names that are given a constant once stand for it in arguments; what may change is not known."""

from __future__ import annotations

import ast

import pytest

from mcp_optimizer.scripts.call_sites import Constants
from mcp_optimizer.scripts.syntax import bound_names


def resolved(script: str) -> object:
    nodes = list(ast.walk(ast.parse(script)))
    [given] = [node for node in nodes if isinstance(node, ast.keyword) and node.arg == "x"]
    found = Constants(nodes, bound_names(nodes)).resolved(given.value)
    try:
        return None if found is None else ast.literal_eval(found)
    except ValueError:
        return "unknown"


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("A = 'open'\ntool(x=A)", "open"),
        ("a = {'lat': 1}\nb = [a, a]\ntool(x=b)", [{"lat": 1}, {"lat": 1}]),
        ("a = {'lat': 1}\na['lat'] = 2\ntool(x=a)", "unknown"),
        ("a = {'lat': 1}\na.update(y=1)\ntool(x=a)", "unknown"),
        ("a = {'lat': 1}\nchange(a)\ntool(x=a)", "unknown"),
        ("a = 'x'\na = 'y'\ntool(x=a)", "unknown"),
        ("for a in [1]:\n    tool(x=a)", "unknown"),
    ],
)
def test_constants_stand_for_what_they_are(script: str, value: object) -> None:
    assert resolved(script) == value


def test_constants_inside_each_other_do_not_explode() -> None:
    lines = ["a0 = [1, 2]", *(f"a{n} = [{', '.join([f'a{n - 1}'] * 40)}]" for n in range(1, 8)), "tool(x=a7)"]
    assert resolved("\n".join(lines)) is None
