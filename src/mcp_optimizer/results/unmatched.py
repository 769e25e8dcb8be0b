"""Explains why an expression matched nothing: a missing key, a condition that no element meets, an empty list. Pure.

Follows the expression step by step, with all values that reach each step, to the step after which no value is left. If
that step cannot be found, only the existing keys are named. Called by `projection`, within a budget like the
expression's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from mcp_optimizer.results.interpreter import Interpreter
from mcp_optimizer.results.notices import Unmatched
from mcp_optimizer.results.projection import Node, outlines, reaching, written_key
from mcp_optimizer.runtime.patterns import regex

_GROUPING = frozenset({"count_by", "group_by", "sum_by"})
_TEXT = regex(r"[\w .:/-]{1,24}", re.ASCII)
"""A key that a model may have meant as text, as in `status == open`."""


def is_nothing(found: Any, depth: int = 2) -> bool:
    """Whether an output holds no value: null, empty, or lists and objects that contain only such values."""
    if not isinstance(found, list | dict):
        return found is None
    members = found if isinstance(found, list) else found.values()
    return all(is_nothing(one, depth - 1) for one in members) if depth else not found


def unmatched(interpreter: Interpreter, node: Node, value: Any) -> Unmatched | None:
    """Why nothing was found; None if the output is what the value holds in that place, such as an object of nulls."""
    try:
        left = _Steps(interpreter).after(node, [value])
    except _Stopped as stopped:
        return stopped.told()
    except _Unknown:
        return Unmatched(keys=tuple(outlines([value])))
    return Unmatched(f"{_name(node, 'it')} is empty", is_empty=True) if _are_empty(left) else None


def lacking(interpreter: Interpreter, node: Node, value: Any) -> Unmatched | None:
    """The first key of an object or list in the output that is null everywhere because it does not exist."""
    steps = _Steps(interpreter)
    with suppress(_Stopped, _Unknown):
        steps.after(node, [value])
    shown = set(map(id, reaching(node)))
    return next((stopped.told() for made, stopped in steps.lacking if id(made) in shown), None)


class _Stopped(Exception):
    """No value is left after a step. `there` are the values that the step was applied to, if it does not fit them."""

    def __init__(self, why: str, there: Sequence[Any] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.there = there
        self.is_empty = not there

    def told(self) -> Unmatched:
        return Unmatched(self.why, self.is_empty, tuple(outlines(self.there)))


class _Unknown(Exception):
    """A step whose output says nothing about its input, such as a function that returns null."""


class _Steps:
    """Follows the steps of an expression."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self.lacking: list[tuple[Node, _Stopped]] = []
        """Missing keys, each with the node that builds the object or list in which the key is null."""
        self._kinds: Mapping[str, Callable[[Node, list[Any]], list[Any]]] = {
            "current": lambda _node, values: values,
            "identity": lambda _node, values: values,
            "literal": lambda node, _values: [node["value"]],
            "field": self._field,
            "subexpression": self._chain,
            "index_expression": self._chain,
            "pipe": self._chain,
            "key_val_pair": self._chain,
            "index": self._index,
            "slice": self._slice,
            "flatten": self._flatten,
            "projection": self._projection,
            "value_projection": self._value_projection,
            "filter_projection": self._filter,
            "multi_select_list": self._multi_select,
            "multi_select_dict": self._multi_select,
        }

    def after(self, node: Node, values: list[Any]) -> list[Any]:
        """What a node finds in the values, without nulls. Raises _Stopped if it finds nothing."""
        self._interpreter.spend(len(values))
        return self._kinds.get(node["type"], self._other)(node, values)

    def _visited(self, node: Node, values: list[Any]) -> list[Any]:
        found = (self._interpreter.visit(node, value) for value in values)
        return [one for one in found if one is not None]

    def _chain(self, node: Node, values: list[Any]) -> list[Any]:
        for child in node["children"]:
            values = self.after(child, values)
        return values

    def _field(self, node: Node, values: list[Any]) -> list[Any]:
        key = node["value"]
        found = [value[key] for value in values if isinstance(value, dict) and key in value]
        if not found:
            raise _Stopped(_lacking(key, values), values)
        return _filled(found, f"{written_key(key)} is null")

    def _index(self, node: Node, values: list[Any]) -> list[Any]:
        lists = _lists(values, "the value")
        at, longest = node["value"], max(map(len, lists))
        found = [one[at] for one in lists if -len(one) <= at < len(one)]
        if not found:
            raise _Stopped(f"the list has only {_items(longest)}" if longest else "the list is empty")
        return _filled(found, "that item is null")

    def _slice(self, node: Node, values: list[Any]) -> list[Any]:
        lists = _lists(values, "the value")
        found = self._visited(node, lists)
        if not any(found):
            longest = max(map(len, lists))
            raise _Stopped(f"the slice holds none of {_items(longest)}" if longest else "the list is empty")
        return found

    def _flatten(self, node: Node, values: list[Any]) -> list[Any]:
        base = node["children"][0]
        lists = _lists(self.after(base, values), _name(base, "the value"))
        return self._visited({**node, "children": [{"type": "current", "children": []}]}, lists)

    def _projection(self, node: Node, values: list[Any]) -> list[Any]:
        self.after(node["children"][1], self._elements(node, values))
        return self._visited(node, values)

    def _value_projection(self, node: Node, values: list[Any]) -> list[Any]:
        base = node["children"][0]
        found = self.after(base, values)
        objects = [one for one in found if isinstance(one, dict)]
        if not objects:
            raise _Stopped(f"{_name(base, 'the value')} is not an object", found)
        self._interpreter.spend(sum(map(len, objects)))
        members = [member for one in objects for member in one.values()]
        self.after(node["children"][1], _filled(members, f"{_name(base, 'the object')} is empty"))
        return self._visited(node, values)

    def _filter(self, node: Node, values: list[Any]) -> list[Any]:
        elements, condition = self._elements(node, values), node["children"][2]
        fulfilling = [one for one in elements if self._interpreter.fulfils(condition, one)]
        if not fulfilling:
            raise next(self._unfitting(condition, elements), None) or _Stopped(
                f"none of {_items(len(elements))} fulfils the condition"
            )
        self.after(node["children"][1], fulfilling)
        return self._visited(node, values)

    def _elements(self, node: Node, values: list[Any]) -> list[Any]:
        base = node["children"][0]
        name = _name(base, "the list")
        lists = _lists(self.after(base, values), name)
        self._interpreter.spend(sum(map(len, lists)))
        elements = [element for one in lists for element in one]
        return _filled(elements, f"{name} holds only nulls" if elements else f"{name} is empty")

    def _multi_select(self, node: Node, values: list[Any]) -> list[Any]:
        stops = list(self._stops(node["children"], values))
        if len(stops) == len(node["children"]):
            raise _most_telling(stops)
        self.lacking += [(node, stopped) for stopped in stops if not stopped.is_empty]
        return self._visited(node, values)

    def _other(self, node: Node, values: list[Any]) -> list[Any]:
        """Handle a function or an operator: it finds nothing if its operands find nothing."""
        given = [child for child in node["children"] if child["type"] != "expref"]
        stops = list(self._stops(given, values))
        if stops:
            raise _most_telling(stops)
        if node["type"] == "function_expression" and node["value"] == "map":
            expression, base = node["children"]
            return self._projection({"type": "projection", "children": [base, expression["children"][0]]}, values)
        if node["type"] == "function_expression" and _are_empty(self._visited(given[0], values)):
            raise _Stopped(f"{_name(given[0], 'the list')} is empty")
        if node["type"] == "function_expression" and node["value"] in _GROUPING:
            keys = [child["children"][0] for child in node["children"] if child["type"] == "expref"]
            stops = list(self._stops(keys, self._elements(node, values)))
            self.lacking += [(node, stopped) for stopped in stops if not stopped.is_empty]
        raise _Unknown

    def _stops(self, nodes: Sequence[Node], values: list[Any]) -> Iterator[_Stopped]:
        for node in nodes:
            try:
                self.after(node, values)
            except _Stopped as stopped:
                yield stopped
            except _Unknown:
                pass

    def _unfitting(self, condition: Node, elements: list[Any]) -> Iterator[_Stopped]:
        """The parts of a condition that fit no element, such as a key that no element has."""
        kind, children = condition["type"], condition["children"]
        if kind in self._kinds:
            yield from (stopped for stopped in self._stops([condition], elements) if not stopped.is_empty)
            return
        for child in children:
            for stopped in self._unfitting(child, elements) if child["type"] != "expref" else ():
                is_text = kind == "comparator" and child["type"] == "field" and _TEXT.fullmatch(child["value"])
                hint = f"; a text is written '{child['value']}'" if is_text else ""
                yield _Stopped(stopped.why + hint, stopped.there)


def _are_empty(values: Sequence[Any]) -> bool:
    return all(value in ([], {}) for value in values)


def _most_telling(stops: Sequence[_Stopped]) -> _Stopped:
    """Prefer a missing key to a place that is empty."""
    return next((stopped for stopped in stops if not stopped.is_empty), stops[0])


def _filled(values: Sequence[Any], otherwise: str) -> list[Any]:
    found = [value for value in values if value is not None]
    if not found:
        raise _Stopped(otherwise)
    return found


def _lists(values: Sequence[Any], name: str) -> list[list[Any]]:
    lists = [value for value in values if isinstance(value, list)]
    if not lists:
        raise _Stopped(f"{name} is not a list", values)
    return lists


def _lacking(key: str, values: Sequence[Any]) -> str:
    name = written_key(key)
    if any(isinstance(value, dict) for value in values):
        return f"there is no key {name}" if len(values) == 1 else f"none of {_items(len(values))} has the key {name}"
    if any(isinstance(value, list) for value in values):
        return f"{name} cannot be a key of a list; write [].{name} for each of its items"
    return f"{name} cannot be a key of a text, number or boolean"


def _items(count: int) -> str:
    return f"{count:,} item{'s' if count != 1 else ''}"


def _name(node: Node, otherwise: str) -> str:
    """The name that a notice uses for the place where a path ends."""
    if node["type"] == "field":
        return written_key(node["value"])
    if node["type"] == "subexpression":
        return _name(node["children"][-1], otherwise)
    return _name(node["children"][0], otherwise) if node["type"] == "flatten" else otherwise
