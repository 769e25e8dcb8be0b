"""Checks values against servers' JSON Schemas, if that takes a bounded time.

The validator is native code that blocks the interpreter until it returns. A schema of three kilobytes can make it visit
2^40 parts, or collect as many errors, and hang the process. So a cheap upper bound of its work is computed first; a
check that could take too long is skipped and left to the server. Called for arguments and for structured results; knows
nothing of either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
import pydantic_core

from mcp_optimizer.compression.references import has_one_scope, resolve
from mcp_optimizer.compression.walk import Schema, children, schemas
from mcp_optimizer.domain.json_schema import listed, named, properties_of, reference_of
from mcp_optimizer.limits import DEFAULT_LIMITS

_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_IN_PLACE = frozenset("allOf anyOf oneOf not if then else dependentSchemas dependencies".split())
_OF_MEMBERS = frozenset("patternProperties additionalProperties unevaluatedProperties propertyNames".split())
_OF_ITEMS = frozenset("items prefixItems additionalItems contains unevaluatedItems".split())
_APPLIED = _IN_PLACE | _OF_MEMBERS | _OF_ITEMS | {"properties"}
_UNIONS = frozenset({"anyOf", "oneOf"})
_AGAIN = frozenset({"unevaluatedProperties", "unevaluatedItems"})
"""With these, sibling keywords are evaluated again and again."""

_MOST_COUNTED = 20_000
"""Steps that are counted one by one if a schema is recursive; in one step, one schema part sees one value part."""

_MOST_PATTERNS = 1_000
_PATTERN_BYTES = 20_000_000
_BACKTRACKING = 20_000
_MOST_FOR_ERRORS = 200_000_000
_ERROR_BYTES = 5_000
"""Memory per error, in addition to ten times its value."""

_LARGEST_SHOWN = 5_000_000
_NO_DETAILS = "they do not fit the schema (they are too large to say where)"


class SchemaCheck:
    """One compiled schema. A schema that is broken, or too expensive to check, accepts everything."""

    def __init__(self, schema: Mapping[str, Any], most_steps: int = DEFAULT_LIMITS.check_steps) -> None:
        self._schema = dict(schema)
        self._most_steps = most_steps
        try:
            self._unfolded = _unfolded(self._schema)
            self._validator = _compiled(self._schema) if self._unfolded is not None else None
        except (ValueError, RecursionError):
            self._validator = None

    def admits(self, value: Any) -> bool:
        """Whether the value is valid, as far as that can be checked."""
        return self._validator is None or not self._is_cheap(value) or self._validator.is_valid(value)

    def problems(self, value: Any, most: int) -> Iterator[tuple[str, str]]:
        """The problems of an invalid value, with their paths; at most `most` of them and one more."""
        assert self._validator is not None
        size = len(pydantic_core.to_json(value))
        steps = _counted(self._schema, value)
        if steps * (_ERROR_BYTES + 10 * size) <= _MOST_FOR_ERRORS:
            found = iter(self._validator.iter_errors(value))
        elif size <= _LARGEST_SHOWN and not any(_UNIONS & node.keys() for node in schemas(self._schema)):
            found = _first_error(self._validator, value)
        else:
            yield "", _NO_DETAILS
            return
        for _, error in zip(range(most + 1), found, strict=False):
            # The result of a pattern that takes this long to match is unknown.
            if not isinstance(error.kind, jsonschema_rs.ValidationErrorKind.BacktrackLimitExceeded):
                yield ".".join(map(str, error.instance_path)), error.message

    def _is_cheap(self, value: Any) -> bool:
        if self._unfolded is not None and parts(value, enough := self._most_steps / self._unfolded) <= enough:
            return True
        return _counted(self._schema, value) <= self._most_steps


def _compiled(schema: Schema) -> Any:
    patterns = sum(("pattern" in node) + len(named(node, "patternProperties")) for node in schemas(schema))
    if patterns > _MOST_PATTERNS:
        return None
    options = jsonschema_rs.FancyRegexOptions(
        backtrack_limit=_BACKTRACKING, size_limit=_PATTERN_BYTES // max(patterns, 10)
    )
    # Offline, so that a schema cannot make the gateway fetch an address that the server chose.
    return jsonschema_rs.validator_for(schema, offline=True, pattern_options=options)


def _first_error(validator: Any, value: Any) -> Iterator[Any]:
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        yield error


def parts(value: Any, most: float) -> int:
    """The number of values in a value, including itself; counting stops soon after `most`."""
    count, level = 1, [value]
    while level and count <= most:
        below: list[Any] = []
        for inner in level:
            if isinstance(inner, dict):
                below.extend(inner.values())
            elif isinstance(inner, list):
                below.extend(inner)
            if count + len(below) > most:
                break
        count += len(below)
        level = below
    return count


def _unfolded(schema: Schema) -> float | None:
    """The maximum number of schemas that apply to one value, each as often as it is referenced.

    Infinite if a schema is recursive; None if a reference cannot be resolved.
    """
    if not any(_REFERENCES & node.keys() for node in schemas(schema)):
        return sum(3 if _AGAIN & node.keys() else 1 for node in schemas(schema))
    if not has_one_scope(schema) or not _are_local(schema):
        return None
    known: dict[int, float] = {}

    def size(node: Any) -> float:
        if not isinstance(node, dict):
            return 1
        if (found := known.get(id(node))) is None:
            # Met again inside itself, it is infinite.
            known[id(node)] = math.inf
            inner = 1 + sum(map(size, children(node, _APPLIED)))
            reference = reference_of(node)
            inner += 0 if reference is None else size(resolve(schema, reference))
            found = known[id(node)] = inner * 3 if _AGAIN & node.keys() else inner
        return found

    return size(schema)


def _are_local(schema: Schema) -> bool:
    """Whether every reference points into the same schema; no other reference can be followed."""
    return all(not _REFERENCES & node.keys() or (reference_of(node) or "").startswith("#") for node in schemas(schema))


class _TooMany(Exception):
    """The count does not end."""


def _counted(schema: Schema, value: Any) -> float:
    """The maximum number of times that schema parts are applied to value parts."""
    known: dict[tuple[int, int], int] = {}
    left = _MOST_COUNTED

    def steps(node: Any, seen: Any) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise _TooMany
        if not isinstance(node, dict):
            return 1
        key = (id(node), id(seen))
        if (found := known.get(key)) is None:
            known[key] = 1
            # Each missing member is an error of its own.
            missing = len(listed(node, "required"))
            found = 1 + missing + sum(steps(child, inner) for child, inner in _applied(schema, node, seen))
            known[key] = found = found * 3 if _AGAIN & node.keys() else found
        return found

    try:
        return steps(schema, value)
    except (_TooMany, RecursionError):
        return math.inf


def _applied(root: Schema, node: Schema, value: Any) -> Iterator[tuple[Any, Any]]:
    """The subschemas that a schema applies, with the parts of the value that they apply to."""
    if (reference := reference_of(node)) is not None:
        yield resolve(root, reference), value
    for child in children(node, _IN_PLACE):
        yield child, value
    if isinstance(value, dict):
        properties = properties_of(node)
        yield from ((properties[name], inner) for name, inner in value.items() if name in properties)
        for child in children(node, _OF_MEMBERS):
            yield from ((child, inner) for inner in value.values())
    elif isinstance(value, list):
        for child in children(node, _OF_ITEMS):
            yield from ((child, inner) for inner in value)
