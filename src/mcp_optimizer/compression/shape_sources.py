"""Reads shapes from output schemas and from parsed results. Pure, and fast for any input.

Of a result only keys are kept, and only those that are names: keys may be data, as in `{"alice": {...}, "bob": {...}}`.
An object whose members all have one kind is taken for such a map, and only those of its keys are named that many
servers use in their schemas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from mcp_optimizer.compression.references import resolve
from mcp_optimizer.compression.shapes import (
    DEEPEST,
    MOST_KEYS,
    NOTHING,
    Member,
    Shape,
    is_plain,
    merged,
    without_envelope,
)
from mcp_optimizer.domain.json_schema import listed, named, names, properties_of, reference_of, required_of
from mcp_optimizer.largejson.raw import LargeText
from mcp_optimizer.runtime.patterns import regex

_FIELD_WORDS = frozenset(
    """
    access account action actions active add added additional address addresses after agent alert alias all allow
    allowed amount analysis annotations api app application applied apply approval archived area args arguments arn
    as asset assigned assignee at attachment attachments attribute attributes audience auth author auto automation
    available b background base before behavior block board body branch bucket budget build button by bytes cache
    call can card case categories category cc center changes channel chars chart check children city class clear
    click client cluster code collection color colors column columns command comment comments commit company
    completed component components condition conditions confidence config configuration confirm connection contact
    container contains content contents context control conversation coordinates copy count country create created
    creation currency current cursor custom customer data database dataset date day days db default definition delay
    delete deleted delivery deployment depth description destination detail detailed details device dimension
    dimensions dir direction directory disable disabled display distance document domain domains draft dry due
    duration element email emails enable enabled encoding end endpoint engine entity entries entry env environment
    error errors event events exclude execution existing expand expected expiration expires expression extension
    external extra failed fallback family features fetch field fields file filename files fill filter filters first
    folder font for force form format forward frame from full function git group groups has hash head header headers
    height hidden hide hint history host hours html http icon id identifier identity ids if ignore image images in
    include index info initial inline input inputs instance instructions intent internal interval ip is issue issues
    item items job json k keep key keys keyword keywords kind label labels language last lat latitude layer layout
    left length level limit line lines link linked links list local location log login long longitude main markdown
    match matches max media member members memory merge message messages meta metadata method metric metrics mime
    min minutes mode model modified module more ms name names namespace network new next no node nodes not note
    notes notification num number object of offset old on only op open operation operations operator option options
    or order organization origin original output override overrides overwrite owner package page pages parameter
    parameters params parent password patch path paths pattern patterns per percent period permission permissions
    phone pipeline plan point points policy port position post prefix preview previous price primary priority
    private product profile progress project projects prompt properties property protocol provider public pull q
    quality queries query queue radius range ranges rate ratio raw read reason record records recurrence recursive
    ref reference refresh regex region related remove replace reply repo report repository request requested
    requests required resolution resolve resolved resource response result results retention return revision right
    role root row rows rule rules run s sample save scale scan schedule schema scheme scope score script search
    seconds secret section sections security select selected selector send sensitive series server service services
    session set settings severity sha show since site size skip slug sort source sources spec sql stack stage start
    state stats status step steps stop storage store strategy string style subject submit success summary symbol
    system table tables tag tags tail target targets task team template term test text theme thread threshold time
    timeframe timeout timestamp timezone title to token tokens tool top topic total trace trigger truncated type
    types uid unique unit until update updated uri url urls usage use user username users uuid value values variable
    variables verbose version versions video view visibility voice wait warning warnings weight where width window
    with work workflow workspace x y year zone zoom
    """.split()
)
"""Words in property names of at least eight of 433 real servers."""

_WORD = regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_field_name(key: str) -> bool:
    """Whether a plain key, such as `ownerUserId` or `created_at`, consists of these words."""
    words = [word.lower() for word in _WORD.findall(key)]
    return bool(words) and all(word in _FIELD_WORDS or word.removesuffix("s") in _FIELD_WORDS for word in words)


_SCHEMA_TYPES = {"string": "str", "number": "num", "integer": "num", "boolean": "bool", "null": "null"}
_OF_VALUES: dict[type, str] = {
    **{str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"},
    **{dict: "object", list: "array"},
}
_MOST_SCHEMA_NODES = 2_000
_MOST_MEMBERS = 60
_MOST_BRANCHES = 20


def shape_of_schema(output_schema: Mapping[str, Any] | None) -> Shape | None:
    """The shape of results that fit a schema; None if there is no schema or it says nothing."""
    found = without_envelope(_shape(output_schema))
    return None if found == NOTHING else found


def is_envelope(output_schema: Mapping[str, Any] | None) -> bool:
    """Whether a schema declares only an envelope, whose content `shape_of_schema` describes."""
    found = _shape(output_schema)
    return without_envelope(found) is not found


def _shape(output_schema: Mapping[str, Any] | None) -> Shape:
    root = dict(output_schema or {})
    try:
        return _SchemaReader(root).shape(root, 0, ()) if root else NOTHING
    except RecursionError:
        return NOTHING


class _SchemaReader:
    """Reads one schema. Each object counts once; a member counts in every object or, if it is optional, in none."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = _MOST_SCHEMA_NODES

    def shape(self, schema: Any, depth: int, inside: tuple[str, ...]) -> Shape:
        """`inside`: the references followed on the way here since the last member."""
        self._left -= 1
        if not isinstance(schema, dict) or self._left < 0 or depth > DEEPEST:
            return NOTHING
        found = self._own(schema, depth)
        reference = reference_of(schema)
        if reference is not None and reference not in inside and len(inside) < _MOST_BRANCHES:
            target = resolve(self._root, reference)
            found = _both(found, self.shape(target, depth, (*inside, reference)))
        for part in listed(schema, "allOf")[:_MOST_BRANCHES]:
            found = _both(found, self.shape(part, depth, inside))
        for keyword in ("anyOf", "oneOf"):
            branches = listed(schema, keyword)[:_MOST_BRANCHES]
            found = _both(found, _any_of(self.shape(branch, depth, inside) for branch in branches))
        return found

    def _own(self, schema: dict[str, Any], depth: int) -> Shape:
        """The shape that the schema itself declares, without its references."""
        kinds = _kinds(schema)
        found = Shape(frozenset(_SCHEMA_TYPES[kind] for kind in kinds if kind in _SCHEMA_TYPES))
        if "object" in kinds or properties_of(schema):
            found = merged(found, self._object(schema, depth))
        if "array" in kinds or "items" in schema:
            found = merged(found, Shape(items=self._items(schema, depth)))
        return found

    def _object(self, schema: dict[str, Any], depth: int) -> Shape:
        properties, required = properties_of(schema), frozenset(required_of(schema))
        # Required members first, because only a limited number is read.
        ordered = sorted(properties, key=lambda name: name not in required)
        members = {
            name: Member(self.shape(properties[name], depth + 1, ()), int(name in required))
            for name in islice(filter(is_plain, ordered), _MOST_MEMBERS)
        }
        others = [schema.get("additionalProperties"), *named(schema, "patternProperties").values()]
        values = [other for other in others[:_MOST_BRANCHES] if isinstance(other, dict)]
        if values and not properties:
            return Shape(objects=1, values=_any_of(self.shape(value, depth + 1, ()) for value in values))
        is_open = bool(values) or (not properties and others[0] is not False)
        return Shape(objects=1, members=members, has_more=is_open or len(members) < len(properties))

    def _items(self, schema: dict[str, Any], depth: int) -> Shape:
        items = schema.get("items")
        parts = [*listed(schema, "prefixItems"), *(items if isinstance(items, list) else [items])]
        return _any_of(self.shape(part, depth + 1, ()) for part in parts[:_MOST_BRANCHES])


def _kinds(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if found := names(kind):
        return found
    values = [schema["const"]] if "const" in schema else listed(schema, "enum")[:_MOST_BRANCHES]
    return [_OF_VALUES[type(value)] for value in values if type(value) in _OF_VALUES]


def _any_of(shapes: Iterable[Shape]) -> Shape:
    """The union of several shapes: members that only some objects require are optional."""
    found = NOTHING
    for shape in shapes:
        found = merged(found, shape)
    members = {name: Member(shape, int(seen == found.objects)) for name, (shape, seen) in found.members.items()}
    return replace(found, objects=min(found.objects, 1), members=members)


def _both(one: Shape, other: Shape) -> Shape:
    """The intersection of two shapes: a member that either schema requires is present."""
    found = merged(one, other)
    if NOTHING in (one, other):
        return found
    members = {name: Member(shape, min(seen, 1)) for name, (shape, seen) in found.members.items()}
    # If one schema only says that it is an object, the other one decides about further members.
    has_more = any(part.has_more for part in (one, other) if part.members or not members)
    return replace(found, objects=min(found.objects, 1), members=members, has_more=has_more)


_MOST_NODES = 200
"""Values that are examined, in far less than a millisecond."""

_ELEMENTS = 4
"""List elements that are examined."""

_STR, _NUM, _BOOL, _NULL = (Shape(frozenset({name})) for name in ("str", "num", "bool", "null"))
_SCALARS: dict[type, Shape] = {str: _STR, LargeText: _STR, int: _NUM, float: _NUM, bool: _BOOL, type(None): _NULL}
_OPAQUE = Shape(has_more=True)


def shape_of_value(value: Any) -> Shape:
    """The shape of a parsed result; of a large one, only of its beginning. A value that is not JSON has none."""
    return _ValueReader().shape(value, 0)


class _ValueReader:
    """Reads one result."""

    def __init__(self) -> None:
        self._left = _MOST_NODES

    def shape(self, value: Any, depth: int) -> Shape:
        self._left -= 1
        if (scalar := _SCALARS.get(type(value))) is not None:
            return scalar
        may_enter = depth < DEEPEST and self._left > 0
        if isinstance(value, dict):
            return self._object(value, depth) if may_enter else _OPAQUE
        if isinstance(value, list):
            return Shape(items=self._all(value, depth) if may_enter else NOTHING)
        return NOTHING

    def _all(self, values: Any, depth: int) -> Shape:
        """The common shape of the first of many values."""
        found = NOTHING
        for value in islice(values, _ELEMENTS):
            if self._left > 0:
                found = merged(found, self.shape(value, depth + 1))
        return found

    def _object(self, value: dict[str, Any], depth: int) -> Shape:
        names = list(filter(_may_be_named(value), value)) if len(value) <= MOST_KEYS else []
        if value and 2 * len(names) < len(value):
            return Shape(objects=1, values=self._all(value.values(), depth))
        members = {name: Member(self.shape(value[name], depth + 1), 1) for name in names if self._left > 0}
        return Shape(objects=1, members=members, has_more=len(members) < len(value))


def _may_be_named(value: dict[str, Any]) -> Any:
    """A function that decides whether a key of an object may be kept."""
    kinds = Counter(_kind(member) for member in value.values() if member is not None)
    if len(kinds) < 2:
        return _is_surely_name
    # Several objects or lists may be entries of a map next to other members.
    return lambda key: _is_surely_name(key) if kinds[_kind(value[key])] > 1 and _holds(value[key]) else is_plain(key)


def _holds(value: Any) -> bool:
    return isinstance(value, dict | list)


def _is_surely_name(key: str) -> bool:
    return is_plain(key) and is_field_name(key)


def _kind(value: Any) -> Any:
    """The kind of a value: object, list, number, and so on."""
    return float if type(value) is int else type(value)
