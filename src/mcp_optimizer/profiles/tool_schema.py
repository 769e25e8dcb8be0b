"""A tool's schema as shown in reports: its parameters, what it shares with other tools, its state. Pure values.

`ToolSchema` and `SharedParameterSchema` follow the schema-compression document. A tool starts uncompressed, eager and
verbose; compression, profiles and short descriptions each take it one step further.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mcp_optimizer.compression.groups import GroupPlan
from mcp_optimizer.domain.json_schema import properties_of, required_of
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.profiles.tiers import ProfileName

_DOCUMENTING = frozenset({"description", "title", "examples", "default"})


class SchemaState(StrEnum):
    """Phase 1: whether something smaller than the original is sent."""

    UNCOMPRESSED = "Uncompressed"
    COMPRESSED = "Compressed"


class LoadState(StrEnum):
    """Phase 2: whether the tool is listed from the beginning."""

    EAGER = "Eager"
    LAZY = "Lazy"


class DescriptionState(StrEnum):
    """Phase 3: whether the tool can be described in at most five words."""

    VERBOSE = "Verbose"
    CONCISE = "Concise"


@dataclass(frozen=True)
class SharedParameterSchema:
    """A parameter that several tools share. `namespace` distinguishes it from different ones with the same name."""

    param_name: str
    type: str
    description: str
    namespace: str
    used_by: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.used_by) < 2:
            raise ValueError("a shared parameter is used by at least two tools")


@dataclass(frozen=True)
class ToolSchema:
    """A tool's parameters, its cost, and its state after each phase."""

    tool_name: str
    description: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    shared_params: tuple[str, ...]
    nested_groups: Mapping[str, tuple[str, ...]]
    profile: ProfileName
    token_cost: int
    schema_state: SchemaState
    load_state: LoadState
    description_state: DescriptionState


def tool_schema(
    tool: McpTool,
    shared: Mapping[str, Sequence[str]],
    plans: Iterable[GroupPlan],
    profile: ProfileName,
    token_cost: int,
    short: str,
    states: tuple[SchemaState, LoadState, DescriptionState],
) -> ToolSchema:
    """`shared`: the names of each tool's shared parameters; `short`: its description once concise."""
    wanted = frozenset(required_of(tool.input_schema))
    names = properties_of(tool.input_schema)
    return ToolSchema(
        tool_name=tool.name,
        description=short if states[2] is DescriptionState.CONCISE else tool.description or "",
        required=tuple(name for name in names if name in wanted),
        optional=tuple(name for name in names if name not in wanted),
        shared_params=tuple(shared.get(tool.name, ())),
        nested_groups={group.name: tuple(group.members.values()) for plan in plans for group in plan.groups},
        profile=profile,
        token_cost=token_cost,
        schema_state=states[0],
        load_state=states[1],
        description_state=states[2],
    )


def shared_parameters(tools: Iterable[McpTool]) -> list[SharedParameterSchema]:
    """Parameters that two or more tools have with the same type, most used first.

    If one name has several types, each gets its type as namespace.
    """
    users: dict[str, dict[str, list[tuple[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for tool in tools:
        for name, schema in properties_of(tool.input_schema).items():
            users[name][_type_of(schema)].append((tool.name, schema))
    found = []
    for name, by_type in users.items():
        for kind, uses in by_type.items():
            if len(uses) > 1:
                described = next((schema.get("description") for _, schema in uses if isinstance(schema, dict)), None)
                namespace = kind if len(by_type) > 1 else ""
                text = described if isinstance(described, str) else ""
                found.append(SharedParameterSchema(name, kind, text, namespace, tuple(tool for tool, _ in uses)))
    return sorted(found, key=lambda one: (-len(one.used_by), one.param_name, one.type))


def shared_by_tool(parameters: Iterable[SharedParameterSchema]) -> dict[str, list[str]]:
    """The names of the shared parameters of each tool."""
    found: dict[str, list[str]] = defaultdict(list)
    for parameter in parameters:
        for tool in parameter.used_by:
            found[tool].append(parameter.param_name)
    return found


def _type_of(schema: Any) -> str:
    """What two parameters must have in common: everything except documentation and defaults."""
    if not isinstance(schema, dict):
        return json.dumps(schema)
    rest = {key: value for key, value in schema.items() if key not in _DOCUMENTING}
    if rest.keys() <= {"type"} and isinstance(rest.get("type", "any"), str):
        return str(rest.get("type", "any"))
    return json.dumps(rest, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
