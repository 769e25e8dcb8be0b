"""Writes a shape for a model, in about 35 tokens: `{total, cards[]: {card_id, title, owner_user_id?, ...}}`. Pure.

Keys only. `?` marks those that may be missing or null, `[]` a list, `{*: ...}` a map, and `...` what is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcp_optimizer.compression.shapes import NOTHING, Member, Shape, filled

BUDGET = 140
"""Characters; about 35 tokens."""

_LEVELS = 3
"""Objects inside each other that are written."""

_UNFOLDED = 28
"""Characters from which it is worth saying what is inside an object."""

_SHORTEST = 7
"""Characters that a key counts at least, with its comma: short keys cost more tokens per character."""

_SHARE = 0.55
"""The part of the room that an object's own keys may take if some of them can be unfolded."""

_MORE = "..."
_FOLDED = "{...}"


def described(declared: Shape | None, learned: Shape | None) -> str:
    """What a tool returns, by its output schema and, where that says too little, by its results; "" if nobody knows."""
    if declared is not None and learned is not None:
        return written(filled(declared, learned))
    return written(declared or learned or NOTHING)


def written(shape: Shape, budget: int = BUDGET) -> str:
    """The shape, in about so many characters; "" if it says nothing."""
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
    # What a list holds is what most results are about.
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
    """The first keys that fit, and the first one with a list of objects even if it comes later."""
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
    """Whether a member is missing in some of the objects, or may be null, which is as good."""
    return member.seen < holder.objects or "null" in member.shape.scalars


def _head(name: str, member: Member, holder: Shape) -> str:
    """A key with its marks, without what is inside."""
    marks, shape = "?" if _is_optional(member, holder) else "", member.shape
    while not shape.is_object and shape.items is not None:
        marks, shape = f"{marks}[]", shape.items
    return f"{name}{marks}"


def _unfoldable(shape: Shape) -> Shape | None:
    """The object or map under a key, also in a list, if something is known of it."""
    while not shape.is_object and shape.items is not None:
        shape = shape.items
    return shape if shape.members or (shape.values is not None and shape.values != NOTHING) else None
