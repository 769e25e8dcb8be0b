"""Evaluates JMESPath within a budget of steps and produced characters, and finds misused functions.

jmespath itself lets an expression of 170 characters use all memory, because its output may contain the same value many
times, and it reports a misused function only when the expression is applied: too late for a call that changed
something. Imported by `projection` when the first expression is compiled, because it loads jmespath.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from jmespath.functions import Functions, signature
from jmespath.visitor import Options, TreeInterpreter

_HASHED = 64
"""Characters of a key that are looked up in about one step, and bits of a number that are written in one step."""


def grouped(
    elements: Sequence[Any], key_of: Callable[[Any], Any], spend: Callable[[int], None], function: str
) -> dict[str, list[Any]]:
    """Group elements by the text of their key, in the order of each group's first element.

    The number 1 and the text "1" are different keys; if both occur, the one that is not text is put in brackets.
    """
    groups: dict[tuple[str, bool], list[Any]] = {}
    for element in elements:
        key = key_of(element)
        groups.setdefault((_text_of(key, spend, function), isinstance(key, str)), []).append(element)
    return {
        text if is_text or (text, True) not in groups else f"({text})": found
        for (text, is_text), found in groups.items()
    }


def counts(groups: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """How many elements each group has, largest first."""
    return _largest_first({key: len(elements) for key, elements in groups.items()})


def sums(groups: Mapping[str, Sequence[Any]], amount_of: Callable[[Any], Any]) -> dict[str, float]:
    """The sum of the amounts in each group, largest first; a null adds nothing."""
    found: dict[str, float] = {}
    for key, elements in groups.items():
        amounts = [amount for element in elements if (amount := amount_of(element)) is not None]
        found[key] = math.fsum(amounts) if any(isinstance(amount, float) for amount in amounts) else sum(amounts)
    return _largest_first(found)


_Number = TypeVar("_Number", int, float)


def _largest_first(found: Mapping[str, _Number]) -> dict[str, _Number]:
    return dict(sorted(found.items(), key=lambda entry: entry[1], reverse=True))


def _text_of(key: Any, spend: Callable[[int], None], function: str) -> str:
    """A key as text, because keys of JSON objects are strings."""
    if isinstance(key, str):
        spend(len(key) // _HASHED)
        return key
    if isinstance(key, int):
        spend(key.bit_length() // _HASHED)
    elif isinstance(key, list | dict):
        kind = "lists" if isinstance(key, list) else "objects"
        raise ValueError(f"{function}() cannot group by {kind}, only by texts, numbers, booleans or null")
    return json.dumps(key)


_COMPARED = 256
"""Characters of two texts that are compared in about one step."""

_LOOKED_THROUGH = 64
"""Characters of a text that a function scans in about one step."""

_SORTED = 20
"""Comparisons per value while a long list is sorted."""


class OutOfSteps(Exception):
    """The expression used up its steps."""


class OutOfRoom(Exception):
    """The expression's output exceeds its limit."""


class Interpreter(TreeInterpreter):  # type: ignore[misc]  # jmespath has no types
    """jmespath's interpreter with a budget: `steps`, and `room` for the characters it may produce."""

    def __init__(self, steps: int, room: int, seen: Iterable[Mapping[str, Any]] = ()) -> None:
        """`seen` are the nodes whose output becomes part of the result, so their nulls matter."""
        super().__init__(Options(custom_functions=SelectFunctions(self)))
        self.left_out = 0
        """Nulls that the projections among those nodes dropped."""
        self._counted = {id(node): node for node in seen}
        made = [node for node in self._counted.values() if node["type"].startswith("multi_select")]
        self._always_null = {id(node): set(range(len(node["children"]))) for node in made}
        self._grouped_by_nothing = False
        self._steps = steps
        self._room = room
        self._visits: dict[str, Callable[..., Any]] = {}

    def spend(self, steps: int) -> None:
        """Take steps from the budget before doing the work."""
        self._steps -= steps
        if self._steps < 0:
            raise OutOfSteps

    def make(self, characters: int) -> None:
        """Take room from the budget before producing the text."""
        self._room -= characters
        if self._room < 0:
            raise OutOfRoom

    def size(self, value: Any) -> int:
        """The approximate size of a value in characters of JSON."""
        return json_size(value, self.spend)

    def visit(self, node: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        # Every step passes here, so avoid all unnecessary calls.
        self._steps -= 1
        if self._steps < 0:
            raise OutOfSteps
        kind = node["type"]
        if (method := self._visits.get(kind)) is None:
            method = self._visits[kind] = getattr(self, f"visit_{kind}")
        return method(node, *args, **kwargs)

    def visit_projection(self, node: Mapping[str, Any], value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        return self._projected(node, base) if isinstance(base, list) else None

    def visit_value_projection(self, node: Mapping[str, Any], value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        return self._projected(node, base.values()) if isinstance(base, dict) else None

    def visit_filter_projection(self, node: Mapping[str, Any], value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        condition, is_true, visit = node["children"][2], self._is_true, self.visit
        return self._projected(node, [element for element in base if is_true(visit(condition, element))])

    def fulfils(self, condition: Mapping[str, Any], element: Any) -> bool:
        """Whether an element meets a condition, by JMESPath's rules of truth."""
        return bool(self._is_true(self.visit(condition, element)))

    def _projected(self, node: Mapping[str, Any], elements: Collection[Any]) -> list[Any]:
        """Apply the right side of a projection to each element and drop nulls, as JMESPath demands."""
        visit, right = self.visit, node["children"][1]
        found = [one for element in elements if (one := visit(right, element)) is not None]
        if id(node) in self._counted:
            self.left_out += len(elements) - len(found)
        return found

    def visit_multi_select_list(self, node: Mapping[str, Any], value: Any) -> Any:
        found = super().visit_multi_select_list(node, value)
        if found is not None and self._always_null.get(id(node)):
            self._note_values(node, found)
        return found

    def visit_multi_select_dict(self, node: Mapping[str, Any], value: Any) -> Any:
        found = super().visit_multi_select_dict(node, value)
        if found is not None and self._always_null.get(id(node)):
            self._note_values(node, list(found.values()))
        return found

    def _note_values(self, node: Mapping[str, Any], members: list[Any]) -> None:
        null = self._always_null[id(node)]
        null &= {at for at, member in enumerate(members) if member is None}

    @property
    def has_column_of_nulls(self) -> bool:
        """Whether an object or list that the expression builds has a member that was always null."""
        return self._grouped_by_nothing or any(self._always_null.values())

    def note_groups(self, groups: Mapping[str, Any]) -> None:
        """Remember if elements were grouped by a key that is null for all of them."""
        self._grouped_by_nothing |= list(groups) == ["null"]

    def visit_flatten(self, node: Mapping[str, Any], value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        self.spend(sum(len(element) if isinstance(element, list) else 1 for element in base))
        return super().visit_flatten({"children": [{"type": "literal", "value": base}]}, value)

    def visit_slice(self, node: Mapping[str, Any], value: Any) -> Any:
        self.spend(len(value) if isinstance(value, list) else 0)
        return super().visit_slice(node, value)

    def visit_comparator(self, node: Mapping[str, Any], value: Any) -> Any:
        left, right = (self.visit(child, value) for child in node["children"])
        self.spend(self.comparing(left, right))
        literals = [{"type": "literal", "value": side} for side in (left, right)]
        return super().visit_comparator({**node, "children": literals}, value)

    def visit_function_expression(self, node: Mapping[str, Any], value: Any) -> Any:
        arguments = [self.visit(child, value) for child in node["children"]]
        for argument in arguments:
            if isinstance(argument, list | dict):
                self.spend(len(argument))
            elif isinstance(argument, str):
                self.spend(len(argument) // _LOOKED_THROUGH)
        if (charge := _CHARGES.get(node["value"])) is not None:
            charge(self, *arguments)
        return self._functions.call_function(node["value"], arguments)

    def comparing(self, left: Any, right: Any) -> int:
        """Steps needed to compare two values."""
        if isinstance(left, str) and isinstance(right, str):
            return min(len(left), len(right)) // _COMPARED
        for kind in (list, dict):
            if isinstance(left, kind) and isinstance(right, kind) and len(left) == len(right):
                # A comparison ends where the smaller value ends.
                return min(self.size(left), self.size(right)) // 2
        return 0


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _taking(*kinds: str) -> Callable[[_Method], _Method]:
    """Declare a function with one argument of each kind; jmespath finds it by its name and this declaration."""

    def declared(method: _Method) -> _Method:
        found: _Method = signature(*({"types": [kind]} for kind in kinds))(method)
        return found

    return declared


class SelectFunctions(Functions):  # type: ignore[misc]  # jmespath has no types
    """jmespath's functions, with sort keys charged to the budget, and functions that group."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def _create_key_func(self, *args: Any) -> Callable[[Any], Any]:
        key_of = super()._create_key_func(*args)

        def key(element: Any) -> Any:
            found = key_of(element)
            self._interpreter.spend(_sorting(found))
            return found

        return key

    @_taking("array", "expref")
    def _func_count_by(self, elements: list[Any], key: Any) -> dict[str, int]:
        return counts(self._grouped(elements, key, "count_by"))

    @_taking("array", "expref")
    def _func_group_by(self, elements: list[Any], key: Any) -> dict[str, list[Any]]:
        return self._grouped(elements, key, "group_by")

    @_taking("array", "expref", "expref")
    def _func_sum_by(self, elements: list[Any], key: Any, amount: Any) -> dict[str, float]:
        return sums(self._grouped(elements, key, "sum_by"), self._create_key_func(amount, _AMOUNTS, "sum_by"))

    def _grouped(self, elements: list[Any], key: Any, function: str) -> dict[str, list[Any]]:
        self._interpreter.spend(len(elements))
        found = grouped(elements, lambda one: key.visit(key.expression, one), self._interpreter.spend, function)
        self._interpreter.note_groups(found)
        return found


_AMOUNTS = ("number", "null")


def _sorting(value: Any) -> int:
    return _SORTED * (len(value) // _COMPARED) if isinstance(value, str) else 1


def _charge_to_string(interpreter: Interpreter, value: Any) -> None:
    if not isinstance(value, str):
        interpreter.make(interpreter.size(value))


def _charge_join(interpreter: Interpreter, separator: Any, texts: Any) -> None:
    if isinstance(separator, str) and isinstance(texts, list):
        interpreter.make(sum(len(separator) + len(text) for text in texts if isinstance(text, str)))


def _charge_reverse(interpreter: Interpreter, value: Any) -> None:
    if isinstance(value, str):
        interpreter.make(len(value))


def _charge_contains(interpreter: Interpreter, subject: Any, wanted: Any) -> None:
    if isinstance(subject, list):
        for element in subject:
            interpreter.spend(interpreter.comparing(element, wanted))


def _charge_sorted(interpreter: Interpreter, values: Any) -> None:
    if isinstance(values, list):
        interpreter.spend(sum(map(_sorting, values)))


_CHARGES: Mapping[str, Callable[..., None]] = {
    "to_string": _charge_to_string,
    "join": _charge_join,
    "reverse": _charge_reverse,
    "contains": _charge_contains,
    "sort": _charge_sorted,
    "min": _charge_sorted,
    "max": _charge_sorted,
}
"""The cost of functions beyond scanning each argument once, by name."""


def json_size(value: Any, spend: Callable[[int], None]) -> int:
    """The approximate size of a value in characters of JSON; repeated parts are measured once.

    Raises TypeError for a value that is not JSON.
    """
    known: dict[int, int] = {}

    def size(value: Any) -> int:
        if isinstance(value, str):
            return len(value) + 2
        if isinstance(value, list | dict):
            if (found := known.get(id(value))) is None:
                spend(len(value) + 1)
                found = 2 + len(value) + (sum(map(len, value)) if isinstance(value, dict) else 0)
                for member in value if isinstance(value, list) else value.values():
                    found += size(member)
                known[id(value)] = found
            return found
        if value is None or isinstance(value, bool | float):
            return 5
        if isinstance(value, int):
            return 1 + value.bit_length() // 3
        raise TypeError("an expression that begins with & is not a value")

    return size(value)


_LONGEST = 40

_MEANT = {
    "average": "avg",
    "count": "length",
    "distinct": "count_by",
    "len": "length",
    "mean": "avg",
    "size": "length",
    "str": "to_string",
    "unique": "count_by",
}
"""Function names of other languages, and the JMESPath function that is meant."""


def misused_functions(node: Mapping[str, Any]) -> Iterator[str]:
    """The errors in an expression's function calls, as sentences."""
    if node["type"] == "function_expression":
        known = SelectFunctions.FUNCTION_TABLE.get(node["value"])
        yield from [_unknown(node["value"])] if known is None else _misused(node, known["signature"])
    for child in node["children"]:
        # The children of a slice are numbers.
        if isinstance(child, dict):
            yield from misused_functions(child)


def _unknown(name: str) -> str:
    name = name[:_LONGEST]
    meant = dict.fromkeys([_MEANT[name.lower()]] if name.lower() in _MEANT else [])
    meant |= dict.fromkeys(get_close_matches(name.lower(), SelectFunctions.FUNCTION_TABLE, n=2, cutoff=0.7))
    there_are = " and ".join(f"{one}()" for one in list(meant)[:2])
    known = f"; {there_are} {'exist' if len(meant) > 1 else 'exists'}" if meant else ""
    return f"there is no function {name}(){known}"


def _misused(node: Mapping[str, Any], signature: tuple[Mapping[str, Any], ...]) -> Iterator[str]:
    name, given = node["value"], node["children"]
    wanted, is_open = len(signature), any(one.get("variadic") for one in signature)
    if len(given) < wanted or (len(given) > wanted and not is_open):
        arguments = "argument" if wanted == 1 and not is_open else "arguments"
        yield f"{name}() takes {wanted}{' or more' if is_open else ''} {arguments}, not {len(given)}"
        return
    for number, (kinds, argument) in enumerate(zip(signature, given, strict=False), start=1):
        if kinds["types"] == ["expref"] and argument["type"] != "expref":
            yield f"argument {number} of {name}() must begin with &, as in {_USES.get(name, f'{name}(items, &key)')}"


_USES = {"map": "map(&key, items)", "sum_by": "sum_by(items, &key, &amount)"}
