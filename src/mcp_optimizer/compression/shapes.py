"""The shape of a tool's results: their keys, lists and maps, without any values. Pure.

A shape is read from an output schema or from results (`shape_sources`) and written for a model in about 35 tokens:
`{total, cards[]: {card_id, title, owner_user_id?, ...}}`. `?` marks keys that may be missing or null, `[]` a list, `{*:
...}` a map, and `...` omitted parts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.runtime.patterns import regex

MOST_KEYS = 40
"""An object with more keys is a map: its keys are data."""

DEEPEST = 6
"""Levels of lists and objects that a shape keeps; no description shows as many."""

_ENVELOPE = "result"
_LONGEST = 40
_DIGITS = 4
_TWICE = 2
_NAME = regex(r"[$@]?[A-Za-z_][A-Za-z0-9_-]*")
_DIGIT = regex(r"[0-9]")


class Member(NamedTuple):
    """The shape under a key, and the number of objects that had the key."""

    shape: Shape
    seen: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything that was seen in one place. An empty shape means that nothing is known about it."""

    scalars: frozenset[str] = frozenset()
    """Any of `str`, `num`, `bool`, `null`."""
    objects: int = 0
    """How many objects were seen in this place. A member seen in fewer objects is optional."""
    members: Mapping[str, Member] = field(default_factory=dict)
    values: Shape | None = None
    """The shape of a map's values, whose keys are unknown."""
    items: Shape | None = None
    """The shape of a list's elements."""
    has_more: bool = False
    """Whether there are keys besides the members."""

    @property
    def counts(self) -> bool:
        """Whether a second sighting of the same shape adds information: it counts objects, or holds a map or a list."""
        return bool(self.objects) or self.values is not None or self.items is not None

    @property
    def is_object(self) -> bool:
        """Whether its members describe it best; a map's do not."""
        return bool(self.members) or (bool(self.objects or self.has_more) and self.values is None)

    @property
    def has_names(self) -> bool:
        """Whether it names any key, here or deeper."""
        inner = [member.shape for member in self.members.values()] + [self.values, self.items]
        return bool(self.members) or any(shape is not None and shape.has_names for shape in inner)

    @property
    def is_complete(self) -> bool:
        """Whether every list was seen with an element, and every object more than once."""
        inner = [member.shape for member in self.members.values()] + [self.values, self.items]
        return (
            self.items != NOTHING and self.objects != 1 and all(shape is None or shape.is_complete for shape in inner)
        )


NOTHING = Shape()


def is_plain(key: str) -> bool:
    """Whether a key may be shown: a short identifier, without the digits of a number or hash."""
    return len(key) <= _LONGEST and _matches(key)


@lru_cache(maxsize=8_192)
def _matches(key: str) -> bool:
    """Cached, because objects in a list share their keys."""
    return _NAME.fullmatch(key) is not None and len(_DIGIT.findall(key)) < _DIGITS


def merged(one: Shape, other: Shape) -> Shape:
    """The combination of two observations; a key that only some of the objects had is optional."""
    if other is NOTHING or (one is other and not one.counts):
        return one
    if one is NOTHING:
        return other
    members = dict(one.members)
    for key, member in other.members.items():
        known = members.get(key)
        members[key] = member if known is None else Member(merged(known.shape, member.shape), known.seen + member.seen)
    return Shape(
        one.scalars | other.scalars,
        one.objects + other.objects,
        members,
        _either(one.values, other.values),
        _either(one.items, other.items),
        one.has_more or other.has_more,
    )


def _either(one: Shape | None, other: Shape | None) -> Shape | None:
    return merged(one, other) if one is not None and other is not None else one or other


def without_data(shape: Shape) -> Shape:
    """The part of an observed shape that may be stored and shown: keys that were in several objects.

    A key seen in a single object may be data. Where one object was a map, all keys are data.
    """
    values, members, objects = shape.values, dict(shape.members), shape.objects
    if values is not None or len(members) > MOST_KEYS:
        for member in members.values():
            values = merged(values or NOTHING, member.shape)
        members = {}
    if objects == 1 and values is None:
        # As if it was never seen, so that it affects no later observation.
        members, objects = {}, 0
    kept = {key: Member(without_data(of), seen) for key, (of, seen) in members.items() if seen >= _TWICE}
    return replace(
        shape,
        objects=objects,
        members=kept,
        values=None if values is None else without_data(values),
        items=None if shape.items is None else without_data(shape.items),
        has_more=bool(objects) and (shape.has_more or len(kept) < len(members)),
    )


def common(shapes: Sequence[Shape], least: int) -> Shape:
    """The parts that at least `least` of several shapes share, each observed by a different caller."""
    if len(shapes) < least:
        return NOTHING
    having: dict[str, list[tuple[Member, Shape]]] = {}
    for shape in shapes:
        for key, member in shape.members.items():
            having.setdefault(key, []).append((member, shape))
    members = {
        key: Member(
            common([member.shape for member, _ in found], least),
            len(found) if all(member.seen >= around.objects for member, around in found) else 0,
        )
        for key, found in having.items()
        if len(found) >= least
    }
    kinds = Counter(kind for shape in shapes for kind in shape.scalars)
    values, items = [one.values for one in shapes if one.values], [one.items for one in shapes if one.items]
    return Shape(
        frozenset(kind for kind, times in kinds.items() if times >= least),
        sum(bool(shape.objects) for shape in shapes),
        members,
        common(values, least) if len(values) >= least else None,
        common(items, least) if len(items) >= least else None,
        len(members) < len(having) or any(shape.has_more for shape in shapes),
    )


def filled(declared: Shape, learned: Shape) -> Shape:
    """The declared shape; where it names no key, the learned shape if that names some."""
    if not declared.has_names:
        return learned if learned.has_names else declared
    members = {
        key: Member(filled(shape, learned.members[key].shape), seen) if key in learned.members else Member(shape, seen)
        for key, (shape, seen) in declared.members.items()
    }
    items, values = declared.items, declared.values
    return replace(
        declared,
        members=members,
        items=filled(items, learned.items) if items is not None and learned.items is not None else items,
        values=filled(values, learned.values) if values is not None and learned.values is not None else values,
    )


def without_envelope(shape: Shape) -> Shape:
    """The content of an envelope: Python servers wrap results that are no objects in `{"result": ...}`."""
    wrapped = shape.members.get(_ENVELOPE)
    is_alone = len(shape.members) == 1 and not shape.has_more and shape.values is None
    return wrapped.shape if wrapped is not None and is_alone and wrapped.seen == shape.objects else shape


def to_text(shape: Shape) -> str:
    """A shape in its stored form."""
    return compact(_plain(shape))


def _plain(shape: Shape) -> dict[str, Any]:
    parts = {
        "scalars": sorted(shape.scalars),
        "objects": shape.objects,
        "members": {key: [seen, _plain(of)] for key, (of, seen) in shape.members.items()},
        "values": None if shape.values is None else _plain(shape.values),
        "items": None if shape.items is None else _plain(shape.items),
        "more": shape.has_more,
    }
    return {key: part for key, part in parts.items() if part or (part == {} and key in ("values", "items"))}


def from_text(text: str) -> Shape | None:
    """A shape from its stored form; None if this version cannot read it."""
    try:
        return _read(json.loads(text), 0)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _read(plain: dict[str, Any], depth: int) -> Shape:
    if depth > 2 * DEEPEST:
        raise ValueError("nested too deeply")
    members = {
        key: Member(_read(of, depth + 1), int(seen))
        for key, (seen, of) in plain.get("members", {}).items()
        if is_plain(key)
    }
    inner = {key: _read(plain[key], depth + 1) for key in ("values", "items") if key in plain}
    scalars = frozenset(map(str, plain.get("scalars", ())))
    return Shape(scalars, int(plain.get("objects", 0)), members, has_more=bool(plain.get("more")), **inner)


BUDGET = 140
"""Characters, about 35 tokens."""

_LEVELS = 3
"""Levels of nested objects that are written."""

_UNFOLDED = 28
"""Minimum free characters for writing the content of an object."""

_SHORTEST = 7
"""Minimum characters that a key counts for, with its comma: short keys cost more tokens per character."""

_SHARE = 0.55
"""The share of the room that an object's own keys may take if some of them can be unfolded."""

_MORE = "..."
_FOLDED = "{...}"


def described(declared: Shape | None, learned: Shape | None) -> str:
    """A tool's results by its output schema and, where that says too little, by observed results; "" if unknown."""
    if declared is not None and learned is not None:
        return written(filled(declared, learned))
    return written(declared or learned or NOTHING)


def written(shape: Shape, budget: int = BUDGET) -> str:
    """The shape in about `budget` characters; "" if it says nothing."""
    text = _written(shape, budget, _LEVELS)
    return "" if text == _FOLDED else text


def _written(shape: Shape, room: int, levels: int) -> str:
    if shape.is_object:
        return _object(shape, room, levels)
    if shape.items is not None:
        return f"[{_written(shape.items, room - 2, levels)}]"
    if shape.values is not None:
        inside = _written(shape.values, room - 5, levels - 1)
        return f"{{*: {inside}}}" if inside else "{*}"
    return "|".join(sorted(shape.scalars - {"null"}))


def _object(shape: Shape, room: int, levels: int) -> str:
    if not levels or (not shape.members and shape.has_more):
        return _FOLDED
    ordered = sorted(shape.members.items(), key=lambda item: _is_optional(item[1], shape))
    inner = {name: found for name, member in ordered if levels > 1 and (found := _unfoldable(member.shape)) is not None}
    texts = {name: _head(name, member, shape) for name, member in ordered}
    left = room - 2
    shown = _first(texts, inner, left * _SHARE if inner and left > 2 * _UNFOLDED else left)
    left -= sum(_cost(texts[name]) for name in shown)
    # Lists first, because most results are about the elements of a list.
    unfolding = sorted((name for name in shown if name in inner), key=lambda name: "[]" not in texts[name])
    for number, name in enumerate(unfolding):
        share = left // (len(unfolding) - number)
        text = f": {_written(inner[name], share - 2, levels - 1)}" if share >= _UNFOLDED else ""
        texts[name] += text
        left -= len(text)
    for name in texts:
        if name not in shown and (left := left - _cost(texts[name])) >= 0:
            shown.append(name)
    parts = [text for name, text in texts.items() if name in shown]
    if shape.has_more or shape.values is not None or len(shown) < len(texts):
        parts.append(_MORE)
    return "{" + ", ".join(parts) + "}"


def _first(heads: Mapping[str, str], inner: Mapping[str, Shape], room: float) -> list[str]:
    """The first keys that fit, and the first key with a list of objects even if it comes later."""
    main = next((name for name in heads if name in inner and "[]" in heads[name]), None)
    left = room - (_cost(heads[main]) if main is not None else 0)
    shown: list[str] = []
    for name, head in heads.items():
        left -= 0 if name == main else _cost(head)
        if left < 0:
            return [*shown, main] if main is not None and main not in shown else shown or [name]
        shown.append(name)
    return shown


def _cost(text: str) -> int:
    return max(len(text) + 2, _SHORTEST)


def _is_optional(member: Member, holder: Shape) -> bool:
    """Whether a member is missing in some of the objects, or may be null, which is treated alike."""
    return member.seen < holder.objects or "null" in member.shape.scalars


def _head(name: str, member: Member, holder: Shape) -> str:
    """A key with its marks, without its content."""
    marks, shape = "?" if _is_optional(member, holder) else "", member.shape
    while not shape.is_object and shape.items is not None:
        marks, shape = f"{marks}[]", shape.items
    return f"{name}{marks}"


def _unfoldable(shape: Shape) -> Shape | None:
    """The object or map under a key, directly or in a list, if anything is known about it."""
    while not shape.is_object and shape.items is not None:
        shape = shape.items
    return shape if shape.members or (shape.values is not None and shape.values != NOTHING) else None
