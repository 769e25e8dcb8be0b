"""What a value is, in words. Pure."""

from __future__ import annotations

from mcp_optimizer.scripts.rehearsal.values import Atom, Coroutine, Function, NamedTool, Result, Value, kind

_WORDS = {"str": "a str", "int": "an int", "float": "a float", "number": "a number", "bool": "a bool"}
_WORDS |= {"None": "None", "exception": "an exception"}


def called(atom: Atom) -> str:
    """What a value is, in words."""
    match atom:
        case Result(tool=tool):
            return f"{'a list' if kind(atom) == 'list' else 'a dict'} (from {tool})"
        case NamedTool(spelling):
            return f"{spelling}, a tool that is not called: write {spelling}(...)"
        case Coroutine(name=name):
            return f"{name}(...) before it is awaited: write await {name}(...)"
        case Function(name=name):
            return f"the function {name}" if name else "a function"
    words = {
        "str": "a text",
        "int": "a whole number",
        "float": "a number",
        "number": "a number",
        "bool": "True or False",
    }
    return words.get(kind(atom)) or (kind(atom) if kind(atom) == "None" else f"a {kind(atom)}")


def named(value: Value) -> str:
    return called(min(value, key=repr)) if value else "nothing"
