"""Which parts of a parsed expression reach its output whole, so that what they leave out is missing there. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Node = Mapping[str, Any]

_LAST = frozenset({"subexpression", "index_expression", "pipe", "projection", "value_projection"})
_EACH = frozenset({"multi_select_list", "multi_select_dict", "key_val_pair"})
_SUMMARIES = frozenset(
    {"avg", "count_by", "group_by", "join", "length", "max", "min", "reverse", "sort", "sort_by", "sum", "sum_by"}
)
"""Functions whose output depends on every element of their first argument, or, for join, of its second."""


def reaching(node: Node) -> Iterator[Node]:
    """The node and the nodes inside it whose every value becomes part of the output.

    Not what only decides (a condition, one side of `||`) and not what is narrowed further (`list | [0]`).
    """
    yield node
    kind, children = node["type"], node["children"]
    if kind in _LAST:
        within = [children[-1]]
    elif kind in _EACH:
        within = children
    elif kind == "filter_projection":
        # The list, what is made of each element, the condition.
        within = [children[1]]
    elif kind == "function_expression" and node["value"] in _SUMMARIES:
        within = [child for child in children if child["type"] != "expref"]
    else:
        within = []
    for child in within:
        if isinstance(child, dict):
            yield from reaching(child)
