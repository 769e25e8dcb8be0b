"""Interprets a model's arguments: lenient about their shape, strict about their meaning; puts kept results where they
refer to them.

Pure except for a cache of compiled validators. Called by the gateway before a call goes to its server.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import lru_cache
from threading import Lock
from typing import Any

import pydantic_core

from mcp_optimizer.compression.validation import SchemaCheck
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.tools import Definition, McpTool
from mcp_optimizer.errors import InvalidArguments, InvalidRequest
from mcp_optimizer.largejson.compact_json import Written, compact
from mcp_optimizer.limits import DEFAULT_LIMITS
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.runtime.patterns import regex

_WRAPPERS = frozenset({"parameters", "arguments", "args", "input", "params"})
_MOST_PROBLEMS = 5
_LONGEST_PROBLEM = 300
_MOST_VALIDATORS = 2_000

_LARGE_TOOL = 5_000
_LARGE_TEXT = 100_000
_MANY_PARTS = 5_000
"""Parts above which a thread reads and checks them: tokens of a definition, characters or values of arguments."""
_PART_TEXT = _LARGE_TEXT // _MANY_PARTS


def read_arguments(given: Any, tool: McpTool, foreign: Collection[str] = ()) -> dict[str, Any]:
    """Parses the arguments into an object: decodes JSON text, drops `foreign` keys, and unwraps an object nested one
    level too deep.
    """
    arguments = without(foreign, _as_object(given, tool.name))
    _refuse_unsendable(arguments, tool.name)
    if len(arguments) != 1:
        return arguments
    [(key, inner)] = arguments.items()
    if key in properties_of(tool.input_schema) or key not in _WRAPPERS | {tool.name}:
        return arguments
    try:
        return _as_object(inner, tool.name)
    except InvalidRequest:
        return arguments


def without(foreign: Collection[str], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without these keys; the same object if it has none of them."""
    if not any(key in arguments for key in foreign):
        return arguments
    return {key: value for key, value in arguments.items() if key not in foreign}


def foreign_to(definition: Definition, added: Collection[str]) -> Collection[str]:
    """The keys in `added`, which a client adds to every call, that the tool's definition does not mention."""
    return _foreign_to(definition, frozenset(added)) if added else ()


@lru_cache(maxsize=1_024)
def _foreign_to(definition: Definition, added: frozenset[str]) -> frozenset[str]:
    # Searches all of it: a schema may describe a member in many places, and a key that the tool may want stays.
    wire_json = definition.wire_json
    return frozenset(key for key in added if compact(key) not in wire_json)


_HEADER_KEYWORD = '"x-mcp-header"'


@lru_cache(maxsize=1_024)
def has_header_parameters(definition: Definition) -> bool:
    """Whether some of the tool's parameters are also sent as headers."""
    return _HEADER_KEYWORD in definition.wire_json


def _as_object(given: Any, tool: str) -> dict[str, Any]:
    if given is None or given == "":
        return {}
    if isinstance(given, str):
        try:
            parsed = pydantic_core.from_json(given)
        except (ValueError, TypeError) as error:
            raise InvalidRequest(
                f"The parameters of {tool!r} are not valid JSON ({error}). Give them as an object."
            ) from None
        # Some models encode the arguments twice.
        return _as_object(parsed, tool)
    if not isinstance(given, dict):
        raise InvalidRequest(f"The parameters of {tool!r} must be an object, not {type(given).__name__}.")
    return given


def _refuse_unsendable(arguments: Mapping[str, Any], tool: str) -> None:
    """Refuses values that cannot be sent: here they fail one call; on the connection they would fail every call."""
    if isinstance(arguments, Written):
        return
    try:
        pydantic_core.to_json(arguments)
    except ValueError as error:
        raise InvalidRequest(f"The parameters of {tool!r} cannot be written as JSON ({error}).") from None


class ArgumentCheck:
    """Validates arguments against the tools' own schemas. A broken schema admits everything."""

    def __init__(self, most_steps: int = DEFAULT_LIMITS.check_steps) -> None:
        self._most_steps = most_steps
        self._checks: OrderedDict[str, SchemaCheck] = OrderedDict()
        # Large tools are checked in threads.
        self._lock = Lock()

    def check(self, arguments: Mapping[str, Any], tool: McpTool, definition_hash: str) -> None:
        """Raises InvalidArguments with every problem and the schema."""
        check = self._check(tool, definition_hash)
        if check.admits(arguments):
            return
        problems = [
            f"{_shortened(where)}: {_shortened(message)}" if where else _shortened(message)
            for where, message in check.problems(arguments, _MOST_PROBLEMS)
        ]
        if not problems:
            return
        if len(problems) > _MOST_PROBLEMS:
            problems[_MOST_PROBLEMS:] = ["and more"]
        raise InvalidArguments(tool.name, problems, tool.input_schema)

    def _check(self, tool: McpTool, definition_hash: str) -> SchemaCheck:
        with self._lock:
            if (known := self._checks.get(definition_hash)) is not None:
                self._checks.move_to_end(definition_hash)
                return known
        made = SchemaCheck(tool.input_schema, self._most_steps)
        with self._lock:
            self._checks[definition_hash] = made
            if len(self._checks) > _MOST_VALIDATORS:
                self._checks.popitem(last=False)
        return made


def _shortened(message: str) -> str:
    """Shortens a message that repeats a large value to its two ends, which name the subject and the problem."""
    half = _LONGEST_PROBLEM // 2
    return message if len(message) <= _LONGEST_PROBLEM else f"{message[:half]} … {message[-half:]}"


def takes_long(definition_tokens: int, parameters: Any) -> bool:
    """Whether reading and checking may be slow and should run in a thread; neither the definition nor the parameters
    are trusted.
    """
    return definition_tokens > _LARGE_TOOL or not definition_tokens or are_large(parameters)


def are_large(parameters: Any) -> bool:
    """Whether the parameters hold many values or long texts."""
    weight, level = 0, [parameters]
    while level:
        weight += len(level)
        below: list[Any] = []
        for value in level:
            # Compares exact JSON types, because this runs on every call.
            kind = type(value)
            if kind is str:
                weight += len(value) // _PART_TEXT
            elif kind is list or kind is dict:
                below.extend(value if kind is list else value.values())
                if len(below) > _MANY_PARTS:
                    return True
        if weight > _MANY_PARTS:
            return True
        level = below
    return False


# Puts kept results where a model's arguments refer to them: `{"$result": "r1f…", "select": "rows[].id"}`. So a large
# result goes from one tool to another without passing through the model, or a list in it becomes the arguments of
# many calls. Only the caller's own results can be named, and what is put in is checked like any argument; a reference
# inside a result means nothing.

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
