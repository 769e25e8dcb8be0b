"""Nests related parameters into one, merges pairs like `x_to_add` / `x_to_remove`, and expands both again. Pure.

A group saves tokens only by removing repeated words from names, so groups are used where they make a tool smaller or
where the settings name them. `expand` accepts arguments in either shape and returns the original one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.compression.references import is_free_to_move, references
from mcp_optimizer.compression.walk import Schema
from mcp_optimizer.domain.json_schema import properties_of, required_of

_ADD, _REMOVE = "_to_add", "_to_remove"
_LONGEST_NAME = 60
_FEWEST = 3
"""Parameters that must share a prefix before a group is tried."""


_SPEAKING = frozenset(
    "allOf anyOf oneOf not if dependentRequired dependentSchemas dependencies patternProperties "
    "unevaluatedProperties propertyNames minProperties maxProperties enum const $ref $dynamicRef $recursiveRef".split()
)
"""Keywords that refer to parameters by name or number."""


@dataclass(frozen=True)
class Group:
    """Parameters under one new name; `members` maps the inner name to the original one."""

    name: str
    members: Mapping[str, str]


@dataclass(frozen=True)
class GroupPlan:
    """How a schema was regrouped; the empty plan changes nothing."""

    groups: tuple[Group, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.groups)


NO_GROUPS = GroupPlan()


def regroup(schema: Schema, plan: GroupPlan, *, alike: bool = False) -> Schema:
    """The schema with each group's parameters nested. A group is required if any of its members is.

    `alike`: members that differ only in their notes are described together, which not every client can read.
    """
    properties, required = dict(properties_of(schema)), required_of(schema)
    for group in plan.groups:
        inner = {inside: properties.pop(original) for inside, original in group.members.items()}
        needed = [inside for inside, original in group.members.items() if original in required]
        required = [name for name in required if name not in group.members.values()]
        together = _described_together(inner) if alike and not needed else None
        nested: Schema = together or {"type": "object", "properties": inner}
        if needed:
            nested["required"] = needed
            required.append(group.name)
        if schema.get("additionalProperties") is False and together is None:
            nested["additionalProperties"] = False
        properties[group.name] = nested
    changed = {**schema, "properties": properties}
    if required:
        changed["required"] = required
    else:
        changed.pop("required", None)
    return changed


def _described_together(members: Mapping[str, Any]) -> Schema | None:
    """An object whose members all have one schema, written once; None if their schemas differ."""
    if not all(isinstance(member, dict) for member in members.values()):
        return None
    schemas = [{key: value for key, value in member.items() if key != "description"} for member in members.values()]
    if any(schema != schemas[0] for schema in schemas):
        return None
    notes = [f"{name}: {note}" for name, member in members.items() if (note := member.get("description"))]
    said = {"description": "; ".join(notes)} if notes else {}
    return {"type": "object", **said, "additionalProperties": schemas[0], "propertyNames": {"enum": list(members)}}


def expand(arguments: Mapping[str, Any], plan: GroupPlan) -> dict[str, Any]:
    """Arguments in the original shape. Arguments already in that shape, or in no group, pass unchanged."""
    expanded = dict(arguments)
    for group in plan.groups:
        given = expanded.get(group.name)
        if not isinstance(given, Mapping) or (given and not given.keys() & group.members.keys()):
            continue
        del expanded[group.name]
        members = {group.members[inside]: value for inside, value in given.items() if inside in group.members}
        others = {inside: value for inside, value in given.items() if inside not in group.members}
        # An original parameter given as well takes precedence.
        expanded = members | expanded | ({group.name: others} if others else {})
    return expanded


def misused(arguments: Mapping[str, Any], plan: GroupPlan, schema: Schema) -> list[str]:
    """The mistakes in the groups that arguments use: a parameter given twice, an unknown member, or no object."""
    found = []
    is_closed = schema.get("additionalProperties") is False
    for group in plan.groups:
        given = arguments.get(group.name, NO_GROUPS)
        if given is NO_GROUPS:
            continue
        names = ", ".join(group.members)
        if not isinstance(given, Mapping):
            found += [f"{group.name}: must be an object with {names}"] if is_closed else []
            continue
        found += [
            f"{group.name}.{inside} and {original}: the same parameter; give one of them"
            for inside, original in group.members.items()
            if inside in given and original in arguments and given[inside] != arguments[original]
        ]
        unknown = [str(key)[:_LONGEST_NAME] for key in given if key not in group.members]
        found += [f"{group.name}: has no {unknown[0]!r}; it takes {names}"] if unknown and is_closed else []
    return found


def as_grouped(problem: str, arguments: Mapping[str, Any], plan: GroupPlan) -> str:
    """A problem with an original parameter, reported under the name that the arguments use."""
    for group in plan.groups:
        given = arguments.get(group.name)
        if not isinstance(given, Mapping):
            continue
        for inside, original in group.members.items():
            if inside in given and re.match(rf"{re.escape(original)}(?=[.:\[])", problem):
                return f"{group.name}.{inside}{problem[len(original) :]}"
    return problem


def named_groups(schema: Schema, wanted: Mapping[str, Sequence[str]]) -> GroupPlan:
    """The groups from the settings, as far as this tool has their parameters."""
    properties = properties_of(schema) if _is_groupable(schema) else {}
    groups = []
    for name, members in wanted.items():
        present = [member for member in members if member in properties]
        if name not in properties:
            groups.append(Group(name, _inner_names(present, name)))
    return _sound(groups)


def candidate_groups(schema: Schema) -> GroupPlan:
    """Groups worth trying: pairs of an array to add and one to remove, and three or more parameters with one prefix."""
    properties = properties_of(schema)
    groups = [
        Group(stem, {"add": f"{stem}{_ADD}", "remove": f"{stem}{_REMOVE}"})
        for stem in (name.removesuffix(_ADD) for name in properties if name.endswith(_ADD))
        if stem and f"{stem}{_REMOVE}" in properties and stem not in properties
    ]
    used = {member for group in groups for member in group.members.values()}
    prefixes: dict[str, list[str]] = defaultdict(list)
    for name in properties:
        prefix, separator, rest = name.partition("_")
        if prefix and separator and rest and name not in used:
            prefixes[prefix].append(name)
    for prefix, names in prefixes.items():
        if len(names) >= _FEWEST and prefix not in properties:
            groups.append(Group(prefix, _inner_names(names, prefix)))
    return _sound(groups) if groups and _is_groupable(schema) else NO_GROUPS


def _sound(groups: Sequence[Group]) -> GroupPlan:
    """Removes groups of one, groups with equal names, and parameters that are in two groups."""
    taken: set[str] = set()
    kept = []
    for group in groups:
        originals = {group.name, *group.members.values()}
        if len(group.members) > 1 and not originals & taken:
            taken |= originals
            kept.append(group)
    return GroupPlan(tuple(kept))


def _inner_names(members: Sequence[str], group: str) -> dict[str, str]:
    """Members by inner name; of two with the same inner name, the later keeps its own name."""
    names: dict[str, str] = {}
    for member in dict.fromkeys(members):
        inside = _inner_name(member, group)
        names[member if inside in names or inside in members else inside] = member
    return names


def _inner_name(member: str, group: str) -> str:
    """A member's name without the part that repeats the group's name."""
    for prefix in (f"{group}_", f"{group.removesuffix('s')}_"):
        if member.startswith(prefix) and len(member) > len(prefix):
            return member.removeprefix(prefix)
    return member


def _is_groupable(schema: Schema) -> bool:
    """Whether nothing else in the schema refers to the parameters by name."""
    if _SPEAKING.intersection(schema) or not isinstance(schema.get("additionalProperties", False), bool):
        return False
    # A reference to the root would need groups at deeper levels, which `expand` does not visit.
    return is_free_to_move(schema) and "#" not in references(schema)
