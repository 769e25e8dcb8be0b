"""The shape of what a tool returns: which keys its results have, and where lists and maps are. No values. Pure.

A shape comes from an output schema (`output_schemas`) or from results (`result_shapes`); `shape_text` writes it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from mcp_optimizer.largejson.text import compact

MOST_KEYS = 40
"""An object with more keys is a map: its keys are data."""

DEEPEST = 6
"""Levels of lists and objects that a shape has; fewer are ever shown."""

_ENVELOPE = "result"
_LONGEST = 40
_DIGITS = 4
_TWICE = 2
_NAME = re.compile(r"[$@]?[A-Za-z_][A-Za-z0-9_-]*")
_DIGIT = re.compile(r"[0-9]")


class Member(NamedTuple):
    """What stands under a key, and in how many objects the key was."""

    shape: Shape
    seen: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything that was seen in one place. Without any of it, nothing is known of the place."""

    scalars: frozenset[str] = frozenset()
    """Of `str`, `num`, `bool`, `null`."""
    objects: int = 0
    """How many objects were in this place. A member that was in fewer is optional."""
    members: Mapping[str, Member] = field(default_factory=dict)
    values: Shape | None = None
    """What stands under the keys of a map, which are not known."""
    items: Shape | None = None
    """What a list holds."""
    has_more: bool = False
    """Whether there are keys that are not among the members."""

    @property
    def counts(self) -> bool:
        """Whether it says how often something was seen, here or inside, so that twice the same is more than once."""
        return bool(self.objects) or self.values is not None or self.items is not None

    @property
    def is_object(self) -> bool:
        """Whether it is best described by its members; a map is not."""
        return bool(self.members) or (bool(self.objects or self.has_more) and self.values is None)

    @property
    def has_names(self) -> bool:
        """Whether it says the name of any key, here or inside."""
        inner = [member.shape for member in self.members.values()] + [self.values, self.items]
        return bool(self.members) or any(shape is not None and shape.has_names for shape in inner)

    @property
    def is_complete(self) -> bool:
        """Whether every list in it was seen with something in it, and every object more than once."""
        inner = [member.shape for member in self.members.values()] + [self.values, self.items]
        return (
            self.items != NOTHING and self.objects != 1 and all(shape is None or shape.is_complete for shape in inner)
        )


NOTHING = Shape()


def is_plain(key: str) -> bool:
    """Whether a key may be shown: a short identifier, without the digits of a number or a hash."""
    return len(key) <= _LONGEST and _matches(key)


@lru_cache(maxsize=8_192)
def _matches(key: str) -> bool:
    """Kept, because the keys of one object are those of the next."""
    return _NAME.fullmatch(key) is not None and len(_DIGIT.findall(key)) < _DIGITS


def merged(one: Shape, other: Shape) -> Shape:
    """What was seen in one place or the other; a key that was in only some of the objects is optional."""
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
    """What may be stored and shown of a shape that was seen in results: only keys that were in several objects.

    One that was in a single object may be data. Where one object was a map, the keys of all are.
    """
    values, members, objects = shape.values, dict(shape.members), shape.objects
    if values is not None or len(members) > MOST_KEYS:
        for member in members.values():
            values = merged(values or NOTHING, member.shape)
        members = {}
    if objects == 1 and values is None:
        # As if it was never seen, so that it counts neither for nor against what is seen later.
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
    """What at least so many of some shapes have, each of them seen by somebody else."""
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
    """A declared shape; where it names no key, what was learned instead if that names some."""
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
    """Python servers wrap what is no object in `{"result": ...}`; what is inside matters."""
    wrapped = shape.members.get(_ENVELOPE)
    is_alone = len(shape.members) == 1 and not shape.has_more and shape.values is None
    return wrapped.shape if wrapped is not None and is_alone and wrapped.seen == shape.objects else shape


def to_text(shape: Shape) -> str:
    """A shape as it is stored."""
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
    """A stored shape; None if it is none that this version can read."""
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
