"""Selects a part of a result with a JMESPath expression, within limits, and outlines the keys of a value. Pure.

Length, depth and functions of the expression are checked before the tool is called. Its steps depend on the result and
are counted while it is applied. `reaching` finds the parts of an expression whose values all reach its output.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.results.notices import CANNOT_BE_APPLIED, Selection, Unmatched
from mcp_optimizer.results.result_texts import compact
from mcp_optimizer.runtime.patterns import regex

if TYPE_CHECKING:
    from mcp_optimizer.results.interpreter import Interpreter


# Outlines the keys of a value on one short line, such as `{total, cards[]: {card_id, title}}`, without values. Shown
# to a model whose expression matched nothing. The work is bounded by the length of the line, even for a value with a
# million keys, keys of a megabyte, or a thousand levels.

SIZES = (240, 160, 100, 60)
"""Sizes in bytes of the outlines to choose from. The last outline has at most that many tokens in any encoding."""

_PLAIN = regex(r"[A-Za-z_][A-Za-z0-9_]*")
"""Keys that JMESPath takes without quotes."""

_LONGEST_KEY = 32
"""Bytes of a key that are shown."""

_QUOTE = '"'
_ELEMENTS = 5
"""Elements of a list whose keys are merged, because some elements may lack a key."""

_FORMS = (*((depth, keys) for depth in (4, 3, 2, 1) for keys in (40, 20, 10)), (1, 5), (1, 3), (1, 1), (0, 0))
"""Levels and keys per level to try, from the most detailed to the least."""


class _TooLong(Exception):
    """The outline does not fit."""


def outlines(values: Sequence[Any]) -> list[str]:
    """Outlines of values of one kind, such as the elements of a list, one for each size, longest first.

    Empty if the values have no keys and are not lists.
    """
    first = values[:_ELEMENTS]
    return list(filter(None, dict.fromkeys(_outline(first, size) for size in SIZES)))


def _outline(values: Sequence[Any], size: int) -> str:
    for depth, keys in _FORMS:
        try:
            text = "".join(_within(_shape(values, depth, keys), size))
        except _TooLong:
            continue
        return text
    return ""


def _within(parts: Iterator[str], size: int) -> Iterator[str]:
    for part in parts:
        size -= len(part.encode())
        if size < 0:
            raise _TooLong
        yield part


def _shape(values: Sequence[Any], depth: int, most: int) -> Iterator[str]:
    """The parts of the line for values in the same place."""
    if objects := [value for value in values if isinstance(value, dict)]:
        yield from _object(objects, depth, most)
    elif lists := [value for value in values if isinstance(value, list)]:
        yield "[]"
        yield from _member(_elements(lists), depth, most)


def _object(objects: Sequence[dict[Any, Any]], depth: int, most: int) -> Iterator[str]:
    if not any(objects):
        yield "{}"
        return
    if depth <= 0:
        yield "{…}"
        return
    # One key more than is shown, to find out whether there are more.
    names = list(islice(dict.fromkeys(name for one in objects for name in islice(one, most + 1)), most + 1))
    for number, name in enumerate(names[:most]):
        yield ", " if number else "{"
        yield written_key(name)
        yield from _member([one[name] for one in objects if name in one], depth - 1, most)
    left = max(map(len, objects)) - most
    yield f", +{left:,} more}}" if left > 0 else ", …}" if len(names) > most else "}"


def _member(values: Sequence[Any], depth: int, most: int) -> Iterator[str]:
    """What follows the name of a list or object."""
    if objects := [value for value in values if isinstance(value, dict)]:
        yield ": "
        yield from _object(objects, depth, most)
    elif (lists := [value for value in values if isinstance(value, list)]) and depth >= 0:
        elements = _elements(lists)
        # Mark an empty list: no expression can find anything in it.
        yield "[]" if elements else ": []"
        is_nested = any(isinstance(element, list) for element in elements)
        yield from _member(elements, depth - is_nested, most)


def _elements(lists: Sequence[list[Any]]) -> list[Any]:
    return [element for one in lists[:_ELEMENTS] for element in islice(one, _ELEMENTS)][:_ELEMENTS]


def written_key(name: str) -> str:
    """A key as written in an expression, shortened if it is long."""
    text = name[:_LONGEST_KEY]
    if text == name and _PLAIN.fullmatch(text):
        return text
    quoted = json.dumps(text, ensure_ascii=not text.isprintable())
    shown = quoted.encode()[: _LONGEST_KEY + 2].decode(errors="ignore")
    return quoted if text == name and shown == quoted else f'{shown.removesuffix(_QUOTE)}…"'


Node = Mapping[str, Any]

_LAST = frozenset({"subexpression", "index_expression", "pipe", "projection", "value_projection"})
_EACH = frozenset({"multi_select_list", "multi_select_dict", "key_val_pair"})
_SUMMARIES = frozenset(
    {"avg", "count_by", "group_by", "join", "length", "max", "min", "reverse", "sort", "sort_by", "sum", "sum_by"}
)
"""Functions whose output depends on every element of their first argument, or, for join, of its second."""


def reaching(node: Node) -> Iterator[Node]:
    """The node and the nodes inside it whose values all become part of the output.

    Leaves out nodes that only decide (a condition, one side of `||`) or are narrowed further (`list | [0]`).
    """
    yield node
    kind, children = node["type"], node["children"]
    if kind in _LAST:
        within = [children[-1]]
    elif kind in _EACH:
        within = children
    elif kind == "filter_projection":
        # The children are the list, the expression for each element, and the condition.
        within = [children[1]]
    elif kind == "function_expression" and node["value"] in _SUMMARIES:
        within = [child for child in children if child["type"] != "expref"]
    else:
        within = []
    for child in within:
        if isinstance(child, dict):
            yield from reaching(child)


class TooMuch(InvalidRequest):
    """An expression takes more steps or produces more output than allowed."""


class Projection:
    """A compiled expression and its limits."""

    def __init__(self, expression: str, limits: Limits = DEFAULT_LIMITS) -> None:
        # Imported here, because few calls use it.
        import jmespath
        from jmespath.exceptions import JMESPathError

        from mcp_optimizer.results.interpreter import misused_functions

        # Infinity or a number of a thousand digits makes some functions raise OverflowError.
        self._errors: tuple[type[Exception], ...] = (JMESPathError, ValueError, TypeError, OverflowError)
        self.expression = expression
        self.limits = limits
        if len(expression) > limits.expression:
            raise InvalidRequest(
                f"select is too long: {len(expression):,} characters, maximum {limits.expression:,}. {_EXAMPLE}"
            )
        try:
            self._parsed = jmespath.compile(expression).parsed
            problem = next(misused_functions(self._parsed), None) if self._is_shallow() else _TOO_DEEP
        except RecursionError:
            problem = _TOO_DEEP
        except self._errors as error:
            problem = _reason(error)
        if problem is not None:
            raise InvalidRequest(f"select is not a JMESPath expression: {problem}. {_EXAMPLE}") from None

    @property
    def of_each(self) -> Projection:
        """The same expression for each element of a list. An element that it does not match gives null."""
        limits = self.limits
        room = {"expression": limits.expression + len(_FOR_EACH), "expression_depth": limits.expression_depth + 3}
        return Projection(_FOR_EACH.format(self.expression), limits.model_copy(update=room))

    def steps(self, size: int) -> int:
        """The steps allowed for a result of `size` bytes."""
        return self.limits.expression_steps * max(1, -(-size // _MEGABYTE))

    def of(self, value: Any, steps: int | None = None, output: int | None = None) -> Any:
        """What the expression selects; `steps` and `output` may tighten its limits."""
        found, _interpreter = self._applied(value, *self._within(steps, output))
        return found

    def text_of(self, value: Any, steps: int | None = None, output: int | None = None) -> str:
        """What the expression selects, as JSON."""
        return _json(self.of(value, steps, output))

    def selection(self, value: Any, steps: int | None = None, output: int | None = None) -> Selection:
        """What the expression selects, as JSON, with what a reader should know about it."""
        from mcp_optimizer.results.unmatched import is_nothing, lacking, unmatched

        within = self._within(steps, output)
        found, interpreter = self._applied(value, *within)
        text = _json(found)
        if is_nothing(found):
            unknown = Unmatched(keys=tuple(outlines([value])))
            why = self._explained(unmatched, unknown, value, *within)
            return Selection(text, unmatched=why or (unknown if found is None else None))
        missing = self._explained(lacking, None, value, *within) if interpreter.has_column_of_nulls else None
        return Selection(text, interpreter.left_out, lacking=missing)

    def _within(self, steps: int | None, output: int | None) -> tuple[int, int]:
        limits = self.limits
        return (
            limits.expression_steps if steps is None else steps,
            limits.expression_output if output is None else output,
        )

    def _applied(self, value: Any, steps: int, output: int) -> tuple[Any, Interpreter]:
        # Imported only when an expression is applied, because it loads jmespath.
        from mcp_optimizer.results.interpreter import Interpreter, OutOfRoom, OutOfSteps

        interpreter = Interpreter(steps, output, reaching(self._parsed))
        try:
            found = interpreter.visit(self._parsed, value)
            interpreter.make(interpreter.size(found))
        except OutOfSteps:
            raise TooMuch(f"select exceeds {steps:,} steps on this result. Select less.") from None
        except OutOfRoom:
            raise TooMuch(f"select produces more than {output:,} characters. Select less.") from None
        except RecursionError:
            raise InvalidRequest(f"{CANNOT_BE_APPLIED}it is nested too deeply.") from None
        except self._errors as error:
            raise InvalidRequest(f"{CANNOT_BE_APPLIED}{_reason(error)}.") from None
        return found, interpreter

    def _explained(
        self,
        explain: Callable[[Interpreter, Node, Any], Unmatched | None],
        otherwise: Unmatched | None,
        value: Any,
        steps: int,
        output: int,
    ) -> Unmatched | None:
        """Why something was not found, or `otherwise` if the same budget does not suffice to find out."""
        from mcp_optimizer.results.interpreter import Interpreter, OutOfRoom, OutOfSteps

        try:
            return explain(Interpreter(steps, output), self._parsed, value)
        except (OutOfSteps, OutOfRoom, RecursionError):
            return otherwise
        except self._errors:
            return otherwise

    def _is_shallow(self) -> bool:
        """Whether its depth is within the limit; each pipe or operator in a row adds a level."""
        level: list[Any] = [self._parsed]
        for _ in range(self.limits.expression_depth):
            # The children of a slice are numbers.
            level = [child for node in level for child in node["children"] if isinstance(child, dict)]
            if not level:
                return True
        return False


_EXAMPLE = "Examples: items[].{id: id, name: name}, count_by(items, &status)"
_FOR_EACH = "map(&({}), @)"
_TOO_DEEP = "it is nested too deeply"
_LONGEST = 160
_MEGABYTE = 1_000_000


def _json(found: Any) -> str:
    try:
        return compact(found)
    except (ValueError, RecursionError) as error:
        # A number with more digits than Python converts, or lists nested too deeply.
        raise InvalidRequest(f"What select finds cannot be written as JSON: {_reason(error)}.") from None


def _reason(error: Exception) -> str:
    """The problem without the value that caused it, because that may be the complete result."""
    from jmespath.exceptions import JMESPathTypeError

    if isinstance(error, JMESPathTypeError):
        return f"{error.function_name}() takes {' or '.join(error.expected_types)}, not {error.actual_type}"
    text = str(error).strip().split("\n")[0].removesuffix(", for expression:").rstrip(".:")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
