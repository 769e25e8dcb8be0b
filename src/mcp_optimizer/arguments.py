"""What a model meant by the arguments it gave: forgiving about their shape, exact about their meaning.

Pure but for a cache of compiled validators. Called by the gateway before a call leaves for its server.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pydantic_core

from mcp_optimizer.db.models import McpTool
from mcp_optimizer.errors import InvalidArguments, InvalidRequest

_WRAPPERS = frozenset({"parameters", "arguments", "args", "input", "params"})
_MOST_PROBLEMS = 5
_LONGEST_PROBLEM = 300
_MOST_VALIDATORS = 2_000


def read_arguments(given: Any, tool: McpTool) -> dict[str, Any]:
    """The arguments as an object: parsed if they came as JSON text, unwrapped if nested one level too deep."""
    arguments = _as_object(given, tool.name)
    _refuse_unsendable(arguments, tool.name)
    if len(arguments) != 1:
        return arguments
    [(key, inner)] = arguments.items()
    properties = tool.input_schema.get("properties")
    declared = isinstance(properties, Mapping) and key in properties
    if declared or key not in _WRAPPERS | {tool.name}:
        return arguments
    try:
        return _as_object(inner, tool.name)
    except InvalidRequest:
        return arguments


def _as_object(given: Any, tool: str) -> dict[str, Any]:
    if given is None or given == "":
        return {}
    if isinstance(given, str):
        try:
            parsed = pydantic_core.from_json(given)
        except (ValueError, TypeError) as error:
            raise InvalidRequest(
                f"The parameters of {tool!r} are text that is not valid JSON ({error}). Give them as an object."
            ) from None
        # Some models encode twice.
        return _as_object(parsed, tool)
    if not isinstance(given, dict):
        raise InvalidRequest(f"The parameters of {tool!r} must be an object, not {type(given).__name__}.")
    return given


def _refuse_unsendable(arguments: Mapping[str, Any], tool: str) -> None:
    """Here, where it is one call's problem: in the middle of a connection it would be everybody's."""
    try:
        pydantic_core.to_json(arguments)
    except ValueError as error:
        raise InvalidRequest(f"The parameters of {tool!r} cannot be written as JSON ({error}).") from None


class ArgumentCheck:
    """Validates arguments against tools' own schemas. A schema that is itself broken checks nothing."""

    def __init__(self) -> None:
        self._validators: OrderedDict[str, jsonschema_rs.Validator | None] = OrderedDict()

    def check(self, arguments: Mapping[str, Any], tool: McpTool, definition_hash: str) -> None:
        """Raises InvalidArguments, with every problem named and the schema to get it right."""
        validator = self._validator(tool, definition_hash)
        if validator is None or validator.is_valid(arguments):
            return
        problems: list[str] = []
        for error in validator.iter_errors(arguments):
            if len(problems) == _MOST_PROBLEMS:
                problems.append("and more")
                break
            where = ".".join(map(str, error.instance_path))
            message = _shortened(error.message)
            problems.append(f"{where}: {message}" if where else message)
        raise InvalidArguments(tool.name, problems, tool.input_schema)

    def _validator(self, tool: McpTool, definition_hash: str) -> jsonschema_rs.Validator | None:
        if definition_hash in self._validators:
            self._validators.move_to_end(definition_hash)
            return self._validators[definition_hash]
        try:
            # Offline: a schema must not make us fetch an address of its server's choice.
            validator = jsonschema_rs.validator_for(tool.input_schema, offline=True)
        except (ValueError, RecursionError):
            validator = None
        self._validators[definition_hash] = validator
        if len(self._validators) > _MOST_VALIDATORS:
            self._validators.popitem(last=False)
        return validator


def _shortened(message: str) -> str:
    """Both ends of a message that repeats a large value: what it is about, and what is wrong with it."""
    half = _LONGEST_PROBLEM // 2
    return message if len(message) <= _LONGEST_PROBLEM else f"{message[:half]} … {message[-half:]}"
