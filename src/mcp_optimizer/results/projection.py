"""Picks a part of a result with a JMESPath expression. Pure; an expression is checked before anything is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mcp_optimizer.errors import InvalidRequest


class Projection:
    """A compiled expression."""

    def __init__(self, expression: str) -> None:
        # Here, because few calls use it.
        import jmespath
        from jmespath.exceptions import JMESPathError

        self._errors: tuple[type[Exception], ...] = (JMESPathError, ValueError, TypeError, RecursionError)
        self.expression = expression
        try:
            self._compiled = jmespath.compile(expression)
            problem = next(_misused_functions(self._compiled.parsed), None)
        except self._errors as error:
            problem = _reason(error)
        if problem is not None:
            raise InvalidRequest(f"select is no JMESPath expression: {problem}. {_EXAMPLE}") from None

    def of(self, value: Any) -> Any:
        """What the expression selects."""
        try:
            return self._compiled.search(value)
        except self._errors as error:
            raise InvalidRequest(f"select cannot be applied to this result: {_reason(error)}.") from None


_EXAMPLE = "Example: items[].{id: id, name: name}"
_LONGEST = 160


def _misused_functions(node: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the functions of an expression; JMESPath itself would say so only when it is applied."""
    from jmespath.functions import Functions

    if node["type"] == "function_expression":
        name, given = node["value"], len(node["children"])
        known = Functions.FUNCTION_TABLE.get(name)
        if known is None:
            yield f"there is no function {name}()"
        else:
            wanted, is_open = len(known["signature"]), any(one.get("variadic") for one in known["signature"])
            if given < wanted or (given > wanted and not is_open):
                yield f"{name}() takes {wanted}{' or more' if is_open else ''} arguments, not {given}"
    for child in node["children"]:
        # Those of a slice are numbers.
        if isinstance(child, dict):
            yield from _misused_functions(child)


def _reason(error: Exception) -> str:
    """What is wrong, without the value that it is wrong for: that may be the whole result."""
    from jmespath.exceptions import JMESPathTypeError

    if isinstance(error, JMESPathTypeError):
        return f"{error.function_name}() takes {' or '.join(error.expected_types)}, not {error.actual_type}"
    text = str(error).strip().split("\n")[0].removesuffix(", for expression:").rstrip(".:")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
