"""Interprets a model's arguments: lenient about their shape, strict about their meaning.

Pure except for a cache of compiled validators. Called by the gateway before a call goes to its server.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from functools import lru_cache
from threading import Lock
from typing import Any

import pydantic_core

from mcp_optimizer.compression.validation import SchemaCheck
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.tools import Definition, McpTool
from mcp_optimizer.errors import InvalidArguments, InvalidRequest
from mcp_optimizer.largejson.compact_json import Written, compact
from mcp_optimizer.limits import DEFAULT_LIMITS

_WRAPPERS = frozenset({"parameters", "arguments", "args", "input", "params"})
_MOST_PROBLEMS = 5
_LONGEST_PROBLEM = 300
_MOST_VALIDATORS = 2_000

_LARGE_TOOL = 5_000
_LARGE_TEXT = 100_000
_MANY_PARTS = 5_000
"""Tokens of a definition, or characters or values of parameters, above which reading and checking goes to a thread."""
_PART_TEXT = _LARGE_TEXT // _MANY_PARTS


def read_arguments(given: Any, tool: McpTool, foreign: Collection[str] = ()) -> dict[str, Any]:
    """The arguments as an object: parsed if given as JSON text, without `foreign` keys, unwrapped if nested one level
    too deep.
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
    """Of the keys that a client adds to every call, those of which a tool says nothing."""
    return _foreign_to(definition, frozenset(added)) if added else ()


@lru_cache(maxsize=1_024)
def _foreign_to(definition: Definition, added: frozenset[str]) -> frozenset[str]:
    # Looked for in all of it: a schema may describe a member in many places, and what a tool may want stays.
    wire_json = definition.wire_json
    return frozenset(key for key in added if compact(key) not in wire_json)


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
        # Some models encode twice.
        return _as_object(parsed, tool)
    if not isinstance(given, dict):
        raise InvalidRequest(f"The parameters of {tool!r} must be an object, not {type(given).__name__}.")
    return given


def _refuse_unsendable(arguments: Mapping[str, Any], tool: str) -> None:
    """Refused here, where it fails one call; in the middle of a connection it would fail all of them."""
    if isinstance(arguments, Written):
        return
    try:
        pydantic_core.to_json(arguments)
    except ValueError as error:
        raise InvalidRequest(f"The parameters of {tool!r} cannot be written as JSON ({error}).") from None


class ArgumentCheck:
    """Validates arguments against tools' own schemas. A broken schema checks nothing."""

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
    """Both ends of a message that repeats a large value: the subject, and the problem."""
    half = _LONGEST_PROBLEM // 2
    return message if len(message) <= _LONGEST_PROBLEM else f"{message[:half]} … {message[-half:]}"


def takes_long(definition_tokens: int, parameters: Any) -> bool:
    """Whether reading and checking may take long and goes to a thread; neither the definition nor the parameters are
    trusted.
    """
    return definition_tokens > _LARGE_TOOL or not definition_tokens or are_large(parameters)


def are_large(parameters: Any) -> bool:
    """Whether these are many values, or long texts."""
    weight, level = 0, [parameters]
    while level:
        weight += len(level)
        below: list[Any] = []
        for value in level:
            # Types as JSON has them, because every call is looked at.
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
