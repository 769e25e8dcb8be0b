"""A tool as a typed signature: what a model needs to call it, in a fraction of the JSON Schema's tokens. Pure.

Without notes: `(title: str, column_id: int, lane_id?: int = 3, kind?: 'bug'|'task') Create a card.` With notes, one
line per parameter: `title: str - What is shown on the board`, with nested objects indented. Required parameters come
first and none is ever hidden; `?` marks the optional ones. Repeated types are named. `rules` shortens the texts.
`say_once` writes notes and named types that several signatures of one reply share only once; names and types of
parameters are never dropped.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from mcp_optimizer.compression.lossless import joined, repeats, tidy
from mcp_optimizer.compression.notes import Documentation, lift_loose, lift_notes, opening
from mcp_optimizer.compression.references import resolve
from mcp_optimizer.compression.rules import NoteContext, described, noted, once
from mcp_optimizer.compression.value_spelling import bound, enclosed, is_one_object, literal
from mcp_optimizer.compression.walk import Schema, children
from mcp_optimizer.domain.json_schema import listed, named, properties_of, reference_of, required_of
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.runtime.patterns import regex

_TYPES = {"string": "str", "integer": "int", "number": "num", "boolean": "bool", "null": "null", "object": "obj"}
_UNIONS = ("anyOf", "oneOf")
_COMBINING = frozenset("anyOf oneOf allOf".split())
_HOLDING = _COMBINING | frozenset("items prefixItems additionalProperties patternProperties".split())
_CONDITIONAL = frozenset("then else dependentSchemas".split())
_PLAIN_NAME = regex(r"[\w$@.\-\[\]/]+")
_FORMAT = regex(r"[\w.:+-]{1,40}")
_DEEPEST = 40
NOTE_MARK = " - "
_MOST_NODES = 5_000
"""A schema that unfolds to more nodes than this, or deeper, is not written as a signature."""


class Notes(StrEnum):
    """How much parameter documentation a signature keeps. SENTENCE keeps first sentences and rules."""

    FULL = "full"
    SENTENCE = "sentence"
    NONE = "none"


def signature(tool: McpTool, notes: Notes = Notes.SENTENCE) -> str:
    """The description and the parameters, with as many notes as requested."""
    schema = _of_an_object(tool.input_schema)
    parameters = properties_of(schema)
    documentation = lift_notes(tool.description or "", frozenset(parameters))
    if notes is Notes.SENTENCE:
        documentation = lift_loose(documentation, frozenset(parameters))
    said = _description(documentation, parameters, notes)
    try:
        return _written(schema, said, documentation.notes, notes, tool.name)
    except (_TooLarge, RecursionError):
        # Required parameters must never be hidden, so the schema is given unchanged.
        return f"{tidy(tool.description or '')}\n{compact(schema)}".strip()


def _description(documentation: Documentation, parameters: Schema, notes: Notes) -> str:
    if notes is Notes.FULL:
        return documentation.description
    if notes is Notes.NONE:
        return opening(documentation.description)
    own = {name: text for name, child in parameters.items() if isinstance(text := _own_note(child), str)}
    return described(documentation.description, {**dict.fromkeys(parameters, ""), **own, **documentation.notes})


def _own_note(schema: Any) -> Any:
    return schema.get("description") if isinstance(schema, dict) else None


def _of_an_object(schema: Schema) -> Schema:
    """The schema of the arguments, which are always an object, without root keywords that a broken schema may have."""
    if not _members(schema):
        return schema
    kinds = schema.get("type")
    hiding = {"const", "enum", *(["type"] if isinstance(kinds, list) and "object" not in kinds else [])}
    return schema if hiding.isdisjoint(schema) else {key: schema[key] for key in schema if key not in hiding}


def _written(schema: Schema, said: str, lifted: Mapping[str, str], notes: Notes, tool: str) -> str:
    writer = _Writer(schema, lifted, notes, tool)
    writer.name_documented(writer.branches(schema), "Arguments")
    lines = list(writer.lines(schema, lifted, 0))
    if any(NOTE_MARK in line for line in lines):
        rest = writer.unfolded(schema).removeprefix("{}")
        lines = [*lines, *([rest] if rest else []), *writer.shared_types()]
        return "\n".join([said, *(once(lines, NOTE_MARK) if notes is Notes.SENTENCE else lines)]).strip()
    text = writer.type(schema)
    shown = f"({text[1:-1]})" if is_one_object(text) else "()" if text in ("obj", "any") else f"({text})"
    return "\n".join([f"{shown} {said}".strip(), *writer.shared_types()])


class _TooLarge(Exception):
    """The signature would be too large."""


class _Writer:
    """Writes the types of one tool. Holds the root schema, for references, and the shared types."""

    def __init__(self, root: Schema, lifted: Mapping[str, str], notes: Notes, tool: str) -> None:
        self._root = root
        self._lifted = lifted
        self._tool = tool
        self._count = len(_members(root))
        self._detail = notes
        self._shared = _shared_objects(root)
        self._pending: list[str] = []
        self._written: set[str] = set()
        self._unfolded = ""
        self._budget = _MOST_NODES * 10

    def _spend(self, depth: int) -> None:
        self._budget -= 1
        if depth > _DEEPEST or self._budget < 0:
            raise _TooLarge

    def _parameters(self, schema: Schema, depth: int) -> str:
        required = frozenset(required_of(schema))
        members = _members(schema)
        ordered = sorted(members, key=lambda name: name not in required)
        lifted = self._lifted if schema is self._root else {}
        shown = [self._parameter(name, members[name], name in required, lifted, depth)[0] for name in ordered]
        for pattern, values in named(schema, "patternProperties").items():
            shown.append(f"/{literal(pattern)[1:-1]}/: {self.type(values, depth + 1)}")
        if members and isinstance(values := schema.get("additionalProperties"), dict) and values:
            shown.append(f"*: {self.type(values, depth + 1)}")
        return ", ".join(shown)

    def _parameter(
        self, name: str, schema: Any, required: bool, lifted: Mapping[str, str], depth: int
    ) -> tuple[str, str]:
        """The parameter's name, type and default, and its note."""
        spelled = name if _PLAIN_NAME.fullmatch(name) else literal(name)
        mark = "" if required else "?"
        if schema is _UNDECLARED:
            return f"{spelled}{mark}", ""
        shown = f"{spelled}{mark}: {self.type(schema, depth + 1)}"
        if not isinstance(schema, dict):
            return shown, ""
        default = schema.get("default")
        if default not in (None, [], {}, ""):
            shown = f"{shown} = {literal(default)}"
        if self._detail is Notes.NONE or not (note := self._documented(schema, lifted.get(name, ""))):
            return shown, ""
        if self._detail is Notes.FULL:
            return shown, "" if repeats(note, name) else tidy(note)
        said = noted(note, name, shown, NoteContext(self._tool, self._count, is_nested=depth > 0))
        return (f"{shown} = {said.default}" if said.default else shown), said.text

    def type(self, schema: Any, depth: int = 0) -> str:
        """The type of a value, as short as possible."""
        self._spend(depth)
        if not isinstance(schema, dict):
            return "never" if schema is False else "any"
        if "const" in schema:
            return literal(schema["const"])
        if isinstance(values := schema.get("enum"), list) and values:
            return "|".join(map(literal, values))
        parts = list(self._parts(schema, depth))
        if not parts:
            kind = schema.get("type")
            if isinstance(kind, list):
                return "|".join(dict.fromkeys(self._plain(schema, one, depth) for one in kind)) or "any"
            return self._plain(schema, kind, depth)
        telling = list(dict.fromkeys(part for part in parts if part not in ("any", "obj"))) or parts[:1]
        return telling[0] if len(telling) == 1 else "&".join(map(enclosed, telling))

    def _parts(self, schema: Schema, depth: int) -> Iterator[str]:
        """Every part of a value's type: the object's own members, its reference, and combined schemas."""
        if _members(schema) and not isinstance(schema.get("type"), list):
            yield self._object(schema, depth)
        if (reference := reference_of(schema)) is not None:
            yield self._reference(reference, depth)
        for branch in listed(schema, "allOf"):
            yield self.type(branch, depth + 1)
        for key in _UNIONS:
            if branches := listed(schema, key):
                kind = {"type": schema["type"]} if "type" in schema else {}
                shown = [self.type({**kind, **one} if isinstance(one, dict) else one, depth + 1) for one in branches]
                yield "|".join(dict.fromkeys(shown))

    def _reference(self, reference: str, depth: int) -> str:
        target = resolve(self._root, reference)
        if not isinstance(target, dict):
            return _type_name(reference)
        return self._use(target) or self.type(target, depth + 1)

    def _plain(self, schema: Schema, kind: Any, depth: int) -> str:
        if kind == "array" or (kind is None and "items" in schema):
            return self._array(schema, depth)
        if kind == "object" or (kind is None and "additionalProperties" in schema):
            return self._object(schema, depth)
        shown = _TYPES.get(kind, "any") if isinstance(kind, str) else "any"
        return shown + self._limits(schema, shown)

    def _array(self, schema: Schema, depth: int) -> str:
        items = schema.get("items")
        parts = schema.get("prefixItems") or items
        if isinstance(parts, list):
            return f"[{', '.join(self.type(part, depth + 1) for part in parts)}]"
        return f"{enclosed(self.type(items, depth + 1))}[]"

    def _use(self, schema: Schema) -> str:
        """The name of a type if it is shared; shared types are written at the end."""
        key = _key(schema)
        name = self._shared.get(key, "")
        if name and name not in self._written:
            self._written.add(name)
            self._pending.append(key)
        return name

    def _object(self, schema: Schema, depth: int) -> str:
        if depth and (name := self._use(schema)):
            return name
        if self._unfolded and _key(schema) == self._unfolded:
            return "{}"
        if inside := self._parameters(schema, depth):
            return "{" + inside + "}"
        values = schema.get("additionalProperties")
        inner = self.type(values, depth + 1) if isinstance(values, dict) and values else "any"
        return "obj" if inner == "any" else f"{{*: {inner}}}"

    def _limits(self, schema: Schema, shown: str) -> str:
        if self._detail is Notes.NONE:
            return ""
        low, high = bound(schema.get("minimum")), bound(schema.get("maximum"))
        if shown in ("int", "num") and (low is not None or high is not None):
            return f" {'' if low is None else literal(low)}..{'' if high is None else literal(high)}"
        form = schema.get("format")
        return f" {form}" if isinstance(form, str) and shown == "str" and _FORMAT.fullmatch(form) else ""

    def unfolded(self, schema: Schema) -> str:
        """The type of an object whose members are on separate lines."""
        self._unfolded = _key(schema)
        shown = self.type(schema)
        self._unfolded = ""
        return shown

    def lines(self, schema: Schema, lifted: Mapping[str, str], depth: int) -> Iterator[str]:
        """One line per parameter with its type and note, followed by the lines of its object."""
        required = frozenset(required_of(schema))
        members = _members(schema)
        for name in sorted(members, key=lambda name: name not in required):
            child = members[name]
            nested = list(self._nested(child))
            if len(nested) > 1:
                self.name_documented(nested, name)
            inner = list(self.lines(nested[0], {}, depth + 1)) if len(nested) == 1 else []
            if any(NOTE_MARK in line for line in inner):
                self._unfolded = _key(nested[0])
            else:
                inner = []
            shown, note = self._parameter(name, child, name in required, lifted, depth)
            self._unfolded = ""
            yield " " * depth + (f"{shown}{NOTE_MARK}{note}" if note else shown)
            yield from inner

    def _documented(self, schema: Schema, lifted: str) -> str:
        note = schema.get("description")
        if not isinstance(note, str) and (reference := reference_of(schema)) is not None:
            target = resolve(self._root, reference)
            note = target.get("description") if isinstance(target, dict) else None
        return joined(note, lifted) if isinstance(note, str) else lifted

    def _nested(self, schema: Any, depth: int = 0) -> Iterator[Schema]:
        """The objects inside a parameter that are written in place, not as a shared type."""
        self._spend(depth)
        if not isinstance(schema, dict):
            return
        if (reference := reference_of(schema)) is not None:
            target = resolve(self._root, reference)
            if isinstance(target, dict) and _key(target) not in self._shared:
                yield from self._nested(target, depth + 1)
        own = _members(schema)
        if own and _key(schema) not in self._shared:
            yield schema
        for child in children(schema, _COMBINING if own else _HOLDING):
            yield from self._nested(child, depth + 1)

    def branches(self, schema: Schema) -> list[Schema]:
        """The objects that an object is combined with."""
        return [found for child in children(schema, _COMBINING) for found in self._nested(child)]

    def name_documented(self, objects: list[Schema], name: str) -> None:
        """Names objects that share a position, because they cannot be unfolded there; those with notes get separate
        lines.

        No such name is in use yet when this is called.
        """
        for schema in objects:
            if any(NOTE_MARK in line for line in self.lines(schema, {}, 1)):
                title = schema.get("title")
                wanted = _type_name(title if isinstance(title, str) else name)
                self._shared.setdefault(_key(schema), _free_name(wanted, self._shared.values()))

    def shared_types(self) -> list[str]:
        """The shared types in use, including those that they use themselves."""
        written: list[str] = []
        while self._pending:
            key = self._pending.pop(0)
            schema, name = json.loads(key), self._shared[key]
            inner = list(self.lines(schema, {}, 1))
            if any(NOTE_MARK in line for line in inner):
                written += [f"{name} = {self.unfolded(schema)}", *inner]
            else:
                written.append(f"{name} = {self.type(schema)}")
        return written


def _shared_objects(root: Schema) -> dict[str, str]:
    """Names for types that occur several times or contain themselves."""
    counter = _UseCounter(root)
    counter.visit_children(root, "Type", ())
    shared: dict[str, str] = {}
    for key, count in counter.uses.items():
        if count > 1:
            shared[key] = _free_name(counter.names[key], shared.values())
    return shared


def _free_name(wanted: str, taken: Collection[str]) -> str:
    """The name, with a number if it is taken."""
    numbered = (f"{wanted}{number}" for number in itertools.count(2))
    return wanted if wanted not in taken else next(name for name in numbered if name not in taken)


class _UseCounter:
    """Counts the occurrences of each object; its inside is counted only with its first use."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._budget = _MOST_NODES
        self.uses: Counter[str] = Counter()
        self.names: dict[str, str] = {}

    def visit(self, node: Any, name: str, inside: tuple[str, ...]) -> None:
        self._budget -= 1
        if not isinstance(node, dict) or self._budget < 0 or len(inside) > _DEEPEST:
            return
        if (reference := reference_of(node)) is not None:
            target = resolve(self._root, reference)
            if isinstance(target, dict):
                key = _key(target)
                if key in inside:
                    # It contains itself, so only a name can end the recursion.
                    self.uses[key] += 2
                    self.names.setdefault(key, _type_name(reference))
                    return
                self.visit(target, _type_name(reference), (*inside, key))
            return
        if _members(node):
            key = _key(node)
            self.uses[key] += 1
            self.names.setdefault(key, name)
            if self.uses[key] > 1:
                return
        self.visit_children(node, name, inside)

    def visit_children(self, node: Schema, name: str, inside: tuple[str, ...]) -> None:
        for child_name, child in _members(node).items():
            self.visit(child, _type_name(child_name), inside)
        for child in children(node, _HOLDING):
            self.visit(child, name, inside)


def _type_name(text: str) -> str:
    last = text.rsplit("/", 1)[-1]
    letters = "".join(letter for letter in last if letter.isalnum() or letter == "_")
    return (letters[:1].upper() + letters[1:]) or "Type"


def _key(schema: Schema) -> str:
    return json.dumps(schema, sort_keys=True)


_UNDECLARED = None
"""The schema of a parameter that is required but not described."""


def _members(schema: Schema) -> dict[str, Any]:
    """The parameters of an object: described, conditional, and only required ones."""
    found = properties_of(schema)
    if not _CONDITIONAL.isdisjoint(schema):
        for part in children(schema, _CONDITIONAL):
            if isinstance(part, dict):
                found = {**_members(part), **found}
    undeclared = set(required_of(schema)) - found.keys() if "required" in schema else ()
    return {**found, **dict.fromkeys(sorted(undeclared), _UNDECLARED)} if undeclared else found


_TYPE = regex(r"(\w+) = ")
_AS_ABOVE = "as above"


def say_once(signatures: Sequence[str]) -> list[str]:
    """The signatures without texts that an earlier one has already."""
    spelled: dict[str, set[str]] = defaultdict(set)
    for signature in signatures:
        for name, block in _named_types(signature):
            spelled[name].add(block)
    said: set[str] = set()
    written = []
    for signature in signatures:
        parts = []
        for name, block in _parts(signature):
            if name and block in said and len(spelled[name]) == 1:
                parts.append(f"{name} = {_AS_ABOVE}")
            else:
                lines = block.split("\n")
                parts += [line.partition(NOTE_MARK)[0] if line in said else line for line in lines]
                said.update(line for line in lines if NOTE_MARK in line)
            if name:
                said.add(block)
        written.append("\n".join(parts))
    return written


def _named_types(signature: str) -> list[tuple[str, str]]:
    return [(name, block) for name, block in _parts(signature) if name]


def _parts(signature: str) -> list[tuple[str, str]]:
    """The lines, with those of a named type grouped under its name."""
    parts: list[tuple[str, str]] = []
    # The first line is the description, or begins with it.
    for number, line in enumerate(signature.split("\n")):
        name = match.group(1) if number and (match := _TYPE.match(line)) else ""
        if parts and parts[-1][0] and line.startswith(" "):
            parts[-1] = (parts[-1][0], f"{parts[-1][1]}\n{line}")
        else:
            parts.append((name, line))
    return parts


def fair_share(costs: Sequence[int], most: int) -> int:
    """The maximum cost per form so that all together cost at most `most`; small ones stay unchanged."""
    left = most
    for taken, cost in enumerate(sorted(costs)):
        share = left // (len(costs) - taken)
        if cost > share:
            return share
        left -= cost
    return most
