"""Attributes that nothing in a script can have: those of other languages, mostly. Pure.

Results are JSON and there are a few modules, so every attribute is one of Python's own types, of these modules, or of
the script's classes.
"""

from __future__ import annotations

import ast
import importlib
import types
from collections.abc import Callable, Collection, Iterator
from functools import cache

from mcp_optimizer.scripts.names import MODULES
from mcp_optimizer.scripts.problems import nearest, shown

_TYPES = (str, bytes, int, float, complex, bool, list, dict, set, frozenset, tuple, range, slice, memoryview, object)
_OTHERS = (types.FunctionType, types.GeneratorType, types.CoroutineType, types.ModuleType, Exception, type, property)
_BY_TEXT = frozenset({"getattr", "hasattr", "setattr", "namedtuple"})
_MEANT = {
    "contains": "`x in text`",
    "includes": "`x in text`",
    "has_key": "`key in dict`",
    "hasOwnProperty": "`key in dict`",
    "push": "append",
    "concat": "`+`",
    "length": "len(...)",
    "forEach": "a for loop",
    "iteritems": "items",
    "trim": "strip",
    "toLowerCase": "lower",
    "toUpperCase": "upper",
    "toString": "str(...)",
    "substring": "text[start:end]",
}
"""What Python writes for words of other languages."""

_EPOCH = "`datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=int(number))`"
_LACKING = {
    "fromtimestamp": _EPOCH,
    "utcfromtimestamp": _EPOCH,
    "utcnow": "`datetime.now(timezone.utc)`",
    "toordinal": "`(day - date(1, 1, 1)).days + 1`",
    "fromordinal": "`date(1, 1, 1) + timedelta(days=number - 1)`",
    "isocalendar": "weekday() and timedelta",
    "fromisocalendar": "fromisoformat and timedelta",
    "timetuple": "year, month and day",
    "utctimetuple": "year, month and day",
}
"""Attributes that Python's dates have and those of the scripts' interpreter lack, and what to write there."""


@cache
def known_attributes() -> frozenset[str]:
    """Those of every type and module that scripts have; Python has a few more than the scripts' interpreter."""
    found: set[str] = set()
    for one in (*_TYPES, *_OTHERS):
        found.update(dir(one))
    for name in MODULES:
        module = importlib.import_module(name)
        found.update(dir(module))
        for member in vars(module).values():
            if isinstance(member, type):
                found.update(dir(member))
    return frozenset(found - _LACKING.keys())


def attribute_problems(
    nodes: Collection[ast.AST], is_excused: Callable[[ast.Attribute], bool]
) -> Iterator[tuple[int, str]]:
    """By line. `is_excused`: whether the attribute is no mistake of the script, or one that others tell."""
    own = frozenset(_own(nodes))
    for node in nodes:
        if not isinstance(node, ast.Attribute) or node.attr in own or node.attr in known_attributes():
            continue
        if not is_excused(node):
            yield node.lineno, f"nothing has an attribute {shown(node.attr)} in scripts.{_meant(node.attr)}"


def _own(nodes: Collection[ast.AST]) -> Iterator[str]:
    """Attributes that the script may define."""
    for node in nodes:
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _BY_TEXT:
                texts = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
                yield from (word for text in texts if isinstance(text, str) for word in text.replace(",", " ").split())


def _meant(name: str) -> str:
    meant = _MEANT.get(name) or _LACKING.get(name)
    if meant:
        return f" Use {meant}."
    plain = {one for kind in (str, list, dict, set) for one in dir(kind) if not one.startswith("_")}
    near = nearest(name, sorted(plain))
    return f" Did you mean {near}?" if near else ""
