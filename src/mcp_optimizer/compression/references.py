"""Replaces `$ref` by its target, so that every client can read the schema. Pure.

Only references within the same document, and only where inlining terminates: recursive definitions stay.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any
from urllib.parse import unquote

from mcp_optimizer.compression.lossless import DOCUMENTING, joined
from mcp_optimizer.compression.walk import DEEPEST, Schema, carried, is_seen_whole, keywords, schemas, with_children
from mcp_optimizer.domain.json_schema import reference_of
from mcp_optimizer.largejson.compact_json import compact

_DEFINITIONS = ("$defs", "definitions")
_ELSEWHERE = frozenset({"$anchor", "$dynamicAnchor", "$recursiveAnchor", "$dynamicRef", "$recursiveRef"})
_BINDING = _ELSEWHERE | {"$ref", "$id", "id"}
"""Keywords that tie parts of a schema to their places."""

_MOST_ROUNDS = 20
_MOST_SHARED = 40
_SHORTEST_SHARED = 60
_REFERENCE_COST = 8
_DEFINITION_COST = 6
_MOST_NODES = 20_000
"""References can multiply without end; a schema that would exceed this number is not inlined at all."""


def is_free_to_move(schema: Schema) -> bool:
    """Whether parts may be moved or removed: all references are to complete root definitions or to the root."""
    if _BINDING.isdisjoint(keywords(schema)):
        return is_seen_whole(schema)
    return has_one_scope(schema) and all(
        reference == "#" or (len(path := _path(reference)) == 2 and path[0] in _DEFINITIONS)
        for reference in references(schema)
    )


def has_one_scope(schema: Schema) -> bool:
    """Whether a reference means the same everywhere. An inner `$id` or an anchor may change its meaning."""
    if not is_seen_whole(schema):
        return False
    return not any(
        node.keys() & _ELSEWHERE
        or (node is not schema and (isinstance(node.get("$id"), str) or isinstance(node.get("id"), str)))
        for node in schemas(schema)
    )


def references(schema: Schema) -> Iterator[str]:
    """Every reference in a schema, with repetitions."""
    return (found for node in schemas(schema) if (found := reference_of(node)) is not None)


def inline_references(schema: Schema, keep: Collection[str] = ()) -> Schema:
    """Inlines every local reference except those to `keep`, and drops definitions that are no longer used."""
    if not has_one_scope(schema):
        return schema
    try:
        inlined = _Inliner(schema, frozenset(keep)).inline(schema, (), 0)
    except _TooLarge:
        return schema
    return drop_unused_definitions(inlined)


class _TooLarge(Exception):
    """The inlined schema would be too large."""


class _Inliner:
    """Inlines the references of one schema."""

    def __init__(self, root: Schema, keep: frozenset[str]) -> None:
        self._root = root
        self._keep = keep
        self._budget = _MOST_NODES

    def inline(self, node: Any, inside: tuple[str, ...], depth: int) -> Any:
        if not isinstance(node, dict):
            return node
        self._budget -= 1
        if self._budget < 0 or depth > DEEPEST:
            raise _TooLarge
        reference = reference_of(node)
        if reference is not None and reference not in inside and reference not in self._keep:
            target = resolve(self._root, reference)
            beside = {key: value for key, value in node.items() if key != "$ref"}
            if isinstance(target, dict) and beside.keys() <= DOCUMENTING:
                replaced = self.inline(target, (*inside, reference), depth + 1)
                if reference not in references(replaced):
                    return _with_words_of(beside, replaced)

        def below(child: Any) -> Any:
            return self.inline(child, inside, depth + 1)

        return with_children(node, below)


def _with_words_of(beside: Schema, target: Schema) -> Schema:
    """Combines texts: text next to a reference describes this use of it, and the target's own text applies as well."""
    own, other = beside.get("description"), target.get("description")
    merged = {**target, **beside}
    return {**merged, "description": joined(own, other)} if isinstance(own, str) and isinstance(other, str) else merged


def resolve(root: Schema, reference: str) -> Any:
    """The target of a local reference, or None."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    found: Any = root
    for key in _path(reference):
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            return None
    return found


def _path(reference: str) -> list[str]:
    """The path of a local reference; empty for the root or for a reference that is not local."""
    if not reference.startswith("#/"):
        return []
    return [step.replace("~1", "/").replace("~0", "~") for step in unquote(reference[2:]).split("/")]


def drop_unused_definitions(schema: Schema) -> Schema:
    """Drops definitions that no reference reaches."""
    for _ in range(_MOST_ROUNDS):
        if not has_one_scope(schema):
            break
        used = list(references(schema))
        if any(not reference.startswith("#/") and reference != "#" for reference in used):
            break
        paths = [_path(reference) for reference in used]
        pruned = schema
        for key in _DEFINITIONS:
            definitions = schema.get(key)
            if not isinstance(definitions, dict):
                continue
            # A path shorter than one definition reaches all of them.
            reached = {path[1] if len(path) > 1 else None for path in paths if path and path[0] == key}
            kept = {name: value for name, value in definitions.items() if name in reached or None in reached}
            pruned = {**pruned, key: kept} if kept else {k: v for k, v in pruned.items() if k != key}
        if pruned == schema:
            break
        schema = pruned
    return schema


def share_repeated(schema: Schema, cost: Callable[[str], int]) -> Schema:
    """The reverse of inlining: moves repeated parts under `$defs`, where that saves tokens.

    Not every client reads `$ref`, so this is opt-in.
    """
    if not is_free_to_move(schema) or not isinstance(schema.get("$defs", {}), dict):
        return schema
    for number in range(_MOST_SHARED):
        found = _best_to_share(schema, cost)
        if found is None:
            break
        definitions = schema.get("$defs", {})
        name = next(name for name in (f"d{n}" for n in range(number, number + 10_000)) if name not in definitions)
        schema = _shared(schema, found, name)
    return schema


def _best_to_share(schema: Schema, cost: Callable[[str], int]) -> str | None:
    """The repeated schema whose sharing saves the most, if any does."""
    counts: Counter[str] = Counter()
    for node in schemas(schema):
        if "$defs" not in node and "$ref" not in node:
            # Schemas that differ only in their description can still share the rest.
            counts.update({compact(node), compact(_undescribed(node))})
    best, most = None, 0
    for dumped, count in counts.items():
        # A reference to a shorter schema costs as much as the schema.
        if count < 2 or len(dumped) < _SHORTEST_SHARED:
            continue
        spared = (count - 1) * cost(dumped) - count * _REFERENCE_COST - _DEFINITION_COST
        if spared > most:
            best, most = dumped, spared
    return best


def _shared(schema: Schema, dumped: str, name: str) -> Schema:
    reference = {"$ref": f"#/$defs/{name}"}

    def change(node: Schema) -> Schema:
        if compact(node) == dumped:
            return reference
        if "description" in node and compact(_undescribed(node)) == dumped:
            return {"description": node["description"], **reference}
        return node

    changed = carried(schema, change)
    return {**changed, "$defs": {**changed.get("$defs", {}), name: json.loads(dumped)}}


def _undescribed(node: Schema) -> Schema:
    return {key: value for key, value in node.items() if key != "description"}
