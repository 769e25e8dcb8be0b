"""Puts kept results where a model's arguments refer to them: `{"$result": "r1f…", "select": "rows[].id"}`.

So a large result goes from one tool to another without passing through the model, or a list in it becomes the arguments
of many calls. Only the caller's own results can be named, and what is put in is checked like any argument; a reference
inside a result means nothing. Called by the gateway before it reads arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pydantic_core

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.gateway.arguments import read_arguments
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.runtime.patterns import regex

_KEY = "$result"
_ID = regex(r"r[0-9a-f]{20}", re.ASCII)
_MOST = 20
"""Results that the arguments of one call may refer to."""
_DEEPEST = 20


def refers_to_results(parameters: Any) -> bool:
    """Whether arguments may contain a reference."""
    if isinstance(parameters, str):
        return f'"{_KEY}"' in parameters
    level = [parameters]
    for _ in range(_DEEPEST):
        if any(type(value) is dict and _KEY in value for value in level):
            return True
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return False


class _Replacing:
    """The references of one call's arguments; together their values may have `most` characters."""

    def __init__(self, results: Results, caller: Caller, most: int) -> None:
        self._results = results
        self._caller = caller
        self._left = most
        self._most = most
        self._count = 0

    async def of(self, value: Any, *, is_text: bool = False, depth: int = 0) -> Any:
        """The value with results in the place of references. `is_text`: the schema wants a text here."""
        if depth > _DEEPEST or not isinstance(value, dict | list):
            return value
        if isinstance(value, list):
            return [await self.of(inner, depth=depth + 1) for inner in value]
        if (reference := _reference(value)) is not None:
            found = await self._found(*reference)
            return compact(found) if is_text and not isinstance(found, str) else found
        return {key: await self.of(inner, depth=depth + 1) for key, inner in value.items()}

    async def _found(self, result_id: str, select: str) -> Any:
        self._count += 1
        if self._count > _MOST:
            raise InvalidRequest(f"The arguments refer to more than {_MOST} results.")
        found = await self._results.value(result_id, self._caller, select, self._left)
        self._left -= len(found if isinstance(found, str) else compact(found))
        if self._left < 0:
            raise InvalidRequest(f"The results have more than {self._most:,} characters together. Select less of them.")
        return found


async def with_results(parameters: Any, tool: McpTool, results: Results, caller: Caller, most: int) -> dict[str, Any]:
    """The arguments with the caller's kept results in the place of references. Raises InvalidRequest for a reference to
    a result that is not kept, or whose part cannot be selected.
    """
    arguments, members = read_arguments(parameters, tool), properties_of(tool.input_schema)
    replacing = _Replacing(results, caller, most)
    return {
        name: await replacing.of(value, is_text=_wants_text(members.get(name))) for name, value in arguments.items()
    }


async def listed_in_result(parameters: Any, results: Results, caller: Caller, most: int) -> list[Any] | None:
    """The arguments of many calls, where a reference stands for the whole list; None if there is no such reference.
    Raises InvalidRequest if what it names is no list of objects.
    """
    if isinstance(parameters, str) and refers_to_results(parameters):
        with suppress(ValueError):
            parameters = pydantic_core.from_json(parameters)
    if not isinstance(parameters, dict) or (reference := _reference(parameters)) is None:
        return None
    result_id, select = reference
    found = await results.value(result_id, caller, select, most)
    if not isinstance(found, list) or any(not isinstance(item, dict) for item in found):
        raise InvalidRequest(
            "A result as parameters must be a list of objects, one for each call. Select one that has the names of the "
            "tool's parameters, such as rows[].{id: id}."
        )
    # Each element is read as a model's arguments, in which a reference would mean something.
    if _KEY in compact(found):
        raise InvalidRequest(f'This result contains "{_KEY}", so it cannot be used as parameters. Give them yourself.')
    return found


def _wants_text(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "string"


def _reference(value: Mapping[str, Any]) -> tuple[str, str] | None:
    """The id and the expression of a reference; None for any other object, which may be a tool's own."""
    found, select = value.get(_KEY), value.get("select") or ""
    is_one = isinstance(found, str) and isinstance(select, str) and value.keys() <= {_KEY, "select"}
    return (found, select) if is_one and isinstance(found, str) and _ID.fullmatch(found) else None
