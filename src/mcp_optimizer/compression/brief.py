"""Describes a tool in less than its signature: only required parameters, and those that the request is about;
abbreviates what is too large to show. Pure.

`brief` is one line: `(board_id: int, owner?: str, +31 optional) List the cards of a board.` `folded` is a signature
whose optional parameters are listed by name, except those that the request mentions or that have rules. No required
parameter is ever omitted, and omissions are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.compression.notes import opening
from mcp_optimizer.compression.references import resolve
from mcp_optimizer.compression.sentences import plainly
from mcp_optimizer.compression.value_spelling import literal
from mcp_optimizer.compression.walk import Schema
from mcp_optimizer.domain.json_schema import listed, properties_of, reference_of, required_of
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.deprecation import sentence as deprecation
from mcp_optimizer.search.words import terms

# Abbreviates a definition that is too large to show: keeps the first items of each part and counts the rest.
# Omissions are marked in place ("… 199,980 more"), in schemas and in texts. An abbreviated schema is only for
# reading; arguments are always checked against the original.


@dataclass(frozen=True)
class _Room:
    """How many items of each part of a definition are kept."""

    members: int
    items: int
    characters: int
    depth: int


_ROOMS = (
    _Room(members=500, items=200, characters=2_000, depth=20),
    _Room(members=200, items=50, characters=1_000, depth=12),
    _Room(members=100, items=20, characters=500, depth=10),
    _Room(members=50, items=10, characters=300, depth=8),
    _Room(members=30, items=5, characters=200, depth=7),
    _Room(members=15, items=4, characters=120, depth=6),
    _Room(members=8, items=3, characters=80, depth=5),
    _Room(members=4, items=2, characters=60, depth=4),
)
"""From large to small; the first that makes a definition small enough is used."""

_LEAST = 300
"""Characters of a description that are always kept."""


def abbreviated(tool: McpTool, most: int) -> McpTool:
    """The tool in at most `most` characters of JSON, unless its name alone is too long."""
    if warning := deprecation(tool.description or "")[:_LEAST]:
        # First, where nothing is cut off.
        tool = tool.model_copy(update={"description": f"{warning} {(tool.description or '').replace(warning, '', 1)}"})
    for room in _ROOMS:
        # Field by field, because serializing the whole definition would take longer than abbreviating it.
        shown = {field: _kept(value, room, room.depth) for field, value in tool if value is not None}
        shown["name"] = tool.name
        if len(compact(shown)) <= most:
            return McpTool.model_validate(shown)
    schema = {"type": "object", "properties": {"…": {"const": "the parameters are not shown"}}}
    return McpTool(name=tool.name, description=_text(tool.description or "", _LEAST), inputSchema=schema)


_CUT = "… {}"


def _kept(value: Any, room: _Room, depth: int) -> Any:
    if isinstance(value, str):
        return _text(value, room.characters)
    if isinstance(value, dict):
        return _members(value, room, depth) if depth else _left_out(value, len(value))
    if isinstance(value, list):
        return _items(value, room, depth) if depth else [_left_out(value, len(value))]
    return value


def _text(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most].rstrip()} … {len(text) - most:,} more characters"


def _items(values: list[Any], room: _Room, depth: int) -> list[Any]:
    kept = [_kept(value, room, depth - 1) for value in values[: room.items]]
    more = len(values) - room.items
    return [*kept, _left_out(values, more)] if more > 0 else kept


def _members(members: dict[str, Any], room: _Room, depth: int) -> dict[str, Any]:
    properties, required, exact = properties_of(members), required_of(members), ""
    if required and len(properties) > room.members:
        # Required members come first, and `required` lists only those that are kept.
        names = frozenset(required)
        ordered = sorted(properties, key=lambda name: name not in names)
        shown = frozenset(ordered[: room.members])
        listed = [name for name in required if name in shown]
        members = {**members, "properties": {name: properties[name] for name in ordered}, "required": listed}
        exact = "required"
    kept = {
        _text(name, room.characters): value if name == exact else _kept(value, room, depth - 1)
        for name, value in list(members.items())[: room.members]
    }
    more = len(members) - room.members
    return {**kept, "…": _left_out(members, more)} if more > 0 else kept


def _left_out(values: dict[str, Any] | list[Any], count: int) -> Any:
    """A placeholder for omitted items: a schema among schemas, a text among texts."""
    said = _CUT.format(f"{count:,} more")
    among = next(iter(values.values() if isinstance(values, dict) else values), None)
    return {"const": said} if isinstance(among, dict) or (isinstance(values, dict) and not among) else said


_TYPES = {"string": "str", "integer": "int", "number": "num", "boolean": "bool"}
_COMBINED = frozenset("allOf anyOf oneOf then else dependentSchemas $ref patternProperties".split())
_PLAIN_NAME = regex(r"[\w$@.\-]+")
_PARAMETER = regex(r"(?P<name>'(?:\\.|[^'\\])+'|[\w$@.\-\[\]/]+)(?P<optional>\?)?(?=:| - |$)")
_SHARED = regex(r"(\w+) = ")
_WORD = regex(r"\w+")
_FORMAT = regex(r"[\w-]{1,20}")
_LONGEST_VALUES = 60
_MOST_VALUES = 20
_MOST_NODES = 300
_LONGEST_OBJECT = 100
_MOST_MEMBERS = 8
_MOST_REQUIRED = 30
_LONGEST_SAID = 120
_MOST_MATCHING = 4
_MOST_NAMED = 12
_LONGEST_NAME = 40
_DEEPEST = 3
_MOST_OF_A_CALL = 3
_LETTERS_OF_RULES = 1_200
"""Maximum total length of the lines that a folded signature keeps for their rules."""


def brief(tool: McpTool, wanted: Collection[str], named: int = 0) -> str | None:
    """The required parameters, and the optional ones with a wanted term in their names; `named`: how many other
    optional ones are listed without their types.

    None if the schema combines others, because then only the signature shows what is required, or if it requires too
    many parameters.
    """
    schema = tool.input_schema
    members, required = properties_of(schema), list(dict.fromkeys(required_of(schema)))
    if not _COMBINED.isdisjoint(schema) or len(required) > _MOST_REQUIRED:
        return None
    optional = [name for name in members if name not in frozenset(required)]
    matching = asked_for(tool, wanted)[:_MOST_MATCHING]
    types = _Types(schema)
    shown = [f"{_spelt(name)}: {types.of(members.get(name))}" for name in required]
    shown += [f"{_spelt(name)}?: {types.of(members[name])}" for name in matching]
    others = [name for name in optional if name not in matching]
    shown += [f"{_spelt(name)}?" for name in others[:named] if len(name) <= _LONGEST_NAME]
    if rest := len(optional) + len(required) - len(shown):
        shown.append(f"+{rest} optional")
    return f"({', '.join(shown)}) {short(opening(tool.description or ''))}".strip()


def call_of(tool: McpTool, useful: Collection[str] = ()) -> str:
    """The names of the required parameters in brackets, those optional ones that are useful, and a mark for further
    ones: enough to try a call.
    """
    schema = tool.input_schema
    members, required = properties_of(schema), list(dict.fromkeys(required_of(schema)))
    shown = ", ".join(map(_spelt, required[:_MOST_MEMBERS]))
    if len(shown) > _LONGEST_OBJECT or len(required) > _MOST_MEMBERS:
        return "(…)"
    optional = [name for name in useful if name in members and name not in required and len(name) <= _LONGEST_NAME]
    chosen = [_with_values(name, members[name], schema) for name in optional[:_MOST_OF_A_CALL]]
    has_more = len(members) > len(required) + len(chosen) or not _COMBINED.isdisjoint(schema)
    return f"({', '.join([*filter(None, [shown]), *chosen, *(['…'] if has_more else [])])})"


def _with_values(name: str, schema: Any, root: Schema) -> str:
    """An optional parameter's name; with its values if it has a few."""
    values = _Types(root).of(schema) if isinstance(schema, dict) and listed(schema, "enum") else ""
    return f"{_spelt(name)}?: {values}" if "|" in values else f"{_spelt(name)}?"


def asked_for(tool: McpTool, wanted: Collection[str]) -> list[str]:
    """The optional parameters with a term in their names that a request has or asks for."""
    required = frozenset(required_of(tool.input_schema))
    wanted = frozenset(wanted) - terms_of(tool.name)
    optional = (name for name in properties_of(tool.input_schema) if name not in required)
    return [name for name in optional if not terms_of(name).isdisjoint(wanted)]


def with_what_it_asks_for(wanted: Collection[str]) -> frozenset[str]:
    """The terms of a request, and those of parameters that such requests need: "oldest" needs one that sorts."""
    said = frozenset(wanted)
    return said.union(*(parameters for words, parameters in _NEEDED if not words.isdisjoint(said)))


_NEEDED = (
    (
        frozenset(
            terms(
                "oldest newest latest earliest recent largest smallest biggest highest lowest most least longest "
                "shortest cheapest top sorted"
            )
        ),
        frozenset(terms("sort order")),
    ),
    (frozenset(terms("since after before until between")), frozenset(terms("since after before until start end date"))),
)
"""Words of requests, and words in the names of the parameters with which they are met."""


def begins_with_parameter(signature: str, names: Collection[str]) -> bool:
    """Whether a signature has no description before its parameters."""
    found = _PARAMETER.match(signature)
    return found is not None and found["name"] in names


def short(said: str) -> str:
    """The first sentence of a line, cut at a word if it is long."""
    return said if len(said) <= _LONGEST_SAID else said[: _LONGEST_SAID - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"


def terms_of(name: str) -> frozenset[str]:
    """The words of a parameter's name, in the form in which requests use them."""
    return frozenset(terms(name[:_LONGEST_NAME]))


def folded(signature: str, tool: McpTool, wanted: Collection[str]) -> str:
    """The tool's signature with its optional parameters by name only, except those that the request mentions and those
    with the most important rules.
    """
    optional = properties_of(tool.input_schema)
    # Words of the tool's name do not count: any parameter of list_cards may mention cards.
    wanted = frozenset(wanted) - terms_of(tool.name)
    blocks = list(_blocks(signature))
    named: dict[int, str] = {}
    for place, block in enumerate(blocks):
        found = _PARAMETER.match(block[0])
        if found and found["optional"] and found["name"] in optional and terms_of(found["name"]).isdisjoint(wanted):
            named[place] = found["name"]
    for place in _with_rules({place: "\n".join(blocks[place]) for place in named}):
        del named[place]
    if not named:
        return signature
    shared = [block for block in blocks if _SHARED.match(block[0])]
    kept = [line for place, block in enumerate(blocks) if place not in named and block not in shared for line in block]
    kept += _used(shared, kept)
    names = [name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in named.values()]
    more = ", …" if len(names) > _MOST_NAMED else ""
    return "\n".join([*kept, f"+{len(names)} optional: {', '.join(names[:_MOST_NAMED])}{more}"])


_LEAST_TOGETHER = 4
"""Optional parameters without important rules from which on they are written together."""

LETTERS_OF_RULES_OF_A_NAME = 1_000
"""The same for a tool that a request names, and for each of its parameters with members."""

_LONGEST_BLOCK = 400
"""Letters of a parameter with members up to which all of them are shown."""

_OF_A_DATE = regex(r"(: str date - [^\n]*?)(?:,? in ISO 8601 format)? \(YYYY-MM-DD\)")
"""A date's format, which its type says."""
_MORE = "detail='full' explains them"


def condensed(signature: str, tool: McpTool, letters: int = LETTERS_OF_RULES_OF_A_NAME) -> str:
    """The tool's signature with lines for the required parameters and those with the most important rules; all others
    by name and type, together with those of the same type.
    """
    blocks = list(_blocks(_OF_A_DATE.sub(r"\1", signature)))
    shown = _together(blocks, letters, properties_of(tool.input_schema), f" ({_MORE})")
    text = "\n".join(shown)
    return text if len(text) < len(signature) else signature


def _together(blocks: list[list[str]], letters: int, names: Collection[str] | None = None, more: str = "") -> list[str]:
    """The lines of parameters, or of an object's members: those of the required ones and of those with the most
    important rules, as many as fit; then all others by name and type. `names`: only these are parameters.
    """
    named = {
        place: found["name"]
        for place, block in enumerate(blocks)
        if (found := _PARAMETER.match(block[0])) and found["optional"] and (names is None or found["name"] in names)
    }
    for place in list(_with_rules({place: "\n".join(blocks[place]) for place in named}, letters)):
        del named[place]
    if len(named) < _LEAST_TOGETHER:
        named = {}
    kept = [line for place, block in enumerate(blocks) if place not in named for line in _shorter(block, letters)]
    if not named:
        return kept
    by_type: dict[str, list[str]] = {}
    for place, name in named.items():
        by_type.setdefault(blocks[place][0].partition(": ")[2].partition(" - ")[0], []).append(name)
    others = "; ".join(f"{', '.join(same)}: {kind}" if kind else ", ".join(same) for kind, same in by_type.items())
    return [*kept, f"+{len(named)} optional{more}: {others}"]


def _shorter(block: list[str], letters: int) -> list[str]:
    """The lines of a parameter, of whose members the same is shown."""
    if sum(map(len, block)) <= _LONGEST_BLOCK:
        return block
    inner = _together(list(_blocks("\n".join(line[1:] for line in block[1:]))), letters)
    return [block[0], *(f" {line}" for line in inner)]


def _with_rules(lines: Mapping[int, str], left: int = _LETTERS_OF_RULES) -> Iterator[int]:
    """The positions of the lines with the most important rules, as many as fit."""
    weighed = {place: plainly(line) for place, line in lines.items()}
    for place in sorted(lines, key=lambda place: -weighed[place]):
        if weighed[place] and len(lines[place]) <= left:
            left -= len(lines[place])
            yield place


def _blocks(signature: str) -> Iterator[list[str]]:
    """Each unindented line with the indented lines below it."""
    block: list[str] = []
    for line in signature.split("\n"):
        if block and not line.startswith(" "):
            yield block
            block = []
        block.append(line)
    yield block


def _used(shared: list[list[str]], kept: list[str]) -> list[str]:
    """The shared types that are still referenced, directly or by each other."""
    words = set(_WORD.findall("\n".join(kept)))
    used: list[str] = []
    waiting = shared
    while found := [block for block in waiting if (name := _SHARED.match(block[0])) and name[1] in words]:
        waiting = [block for block in waiting if block not in found]
        used += [line for block in found for line in block]
        words = set(_WORD.findall("\n".join(line for block in found for line in block)))
    return used


def _spelt(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else compact(name)


class _Types:
    """Writes types in a few words; an object that needs more becomes `obj`. A schema may unfold without end."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST_NODES

    def of(self, schema: Any, depth: int = 0) -> str:
        self._left -= 1
        if not isinstance(schema, dict) or depth > _DEEPEST or self._left < 0:
            return "any"
        if (reference := reference_of(schema)) is not None:
            return self.of(resolve(self._root, reference), depth + 1)
        if values := listed(schema, "enum"):
            shown = "|".join(literal(value) for value in values[:_MOST_VALUES])
            if len(values) <= _MOST_VALUES and len(shown) <= _LONGEST_VALUES:
                return shown
        for key in ("anyOf", "oneOf"):
            if branches := listed(schema, key)[:_MOST_MEMBERS]:
                kinds = dict.fromkeys(self.of(branch, depth + 1) for branch in branches)
                kinds.pop("null", None)
                return "|".join(kinds) or "any"
        kind = schema.get("type")
        if isinstance(kind, list):
            plain = dict.fromkeys(one for one in kind if isinstance(one, str) and one != "null")
            return "|".join(self._plain(schema, one, depth) for one in plain) or "any"
        return self._plain(schema, kind, depth)

    def _plain(self, schema: Schema, kind: Any, depth: int) -> str:
        if kind == "array":
            inner = self.of(schema.get("items"), depth + 1)
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        if kind == "object" or (kind is None and properties_of(schema)):
            return self._object(schema, depth)
        if kind == "null":
            return "null"
        shown = _TYPES.get(kind, "any") if isinstance(kind, str) else "any"
        form = schema.get("format")
        is_shown = shown == "str" and isinstance(form, str) and _FORMAT.fullmatch(form)
        return f"{shown} {form}" if is_shown else shown

    def _object(self, schema: Schema, depth: int) -> str:
        """The required members of an object, if they fit."""
        members, required = properties_of(schema), list(dict.fromkeys(required_of(schema)))
        if not required or not _COMBINED.isdisjoint(schema) or len(required) > _MOST_MEMBERS:
            return "obj"
        inside = ", ".join(f"{_spelt(name)}: {self.of(members.get(name), depth + 1)}" for name in required)
        more = ", ..." if len(members) > len(required) else ""
        return f"{{{inside}{more}}}" if len(inside) <= _LONGEST_OBJECT else "obj"
