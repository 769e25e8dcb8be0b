"""Picks a part of a result with a JMESPath expression. Pure; an expression is checked before anything is called."""

from __future__ import annotations

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
        except self._errors as error:
            raise InvalidRequest(f"select is no JMESPath expression: {_first_line(error)}. {_EXAMPLE}") from None

    def of(self, value: Any) -> Any:
        """What the expression selects."""
        try:
            return self._compiled.search(value)
        except self._errors as error:
            raise InvalidRequest(f"select cannot be applied to this result: {_first_line(error)}.") from None


_EXAMPLE = "Example: items[].{id: id, name: name}"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".:")
