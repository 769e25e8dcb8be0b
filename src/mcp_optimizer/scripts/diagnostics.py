"""The type checker's diagnostics as problems of a script. Pure.

Most kinds are not passed on: they are about what the checker assumes, not about what the script does. What is passed on
is certain by itself, or is about a tool's declared arguments and results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.scripts.names import HELPERS, MODULES, Toolbox, parameters_of
from mcp_optimizer.scripts.prepared import JOINED, KNOWN_AT_RUN_TIME, LINES_BEFORE, LOADED
from mcp_optimizer.scripts.problems import Problem, hint, nearest, problem, shown
from mcp_optimizer.scripts.stubs import DECLARED, LEARNED, SERVER, ResultKeys
from mcp_optimizer.scripts.unsupported import cannot_import, has_no_member, instead_of_name

_MOST = 200
"""Diagnostics that are read."""

_OURS = re.compile(rf"({DECLARED}|{LEARNED})\d+")
_SIMPLE = re.compile(rf"str|int|Literal\[[^|]*\]|list\[.*\]|dict\[.*\]|(?:{DECLARED}|{LEARNED})\d+")
_RETURNS_NOTHING = re.compile(r"\.(?:sort|reverse|append|extend|insert)\([^\n]*\)\s*\.")
_LIST = re.compile(r"list\[[^|]*\]")
_KINDS = {"str": "text", "int": "number", "float": "number", "bool": "number", "None": "none", "LiteralString": "text"}


@dataclass(frozen=True)
class Context:
    """What is known about a checked script."""

    toolbox: Toolbox
    results: Mapping[str, ResultKeys]
    """By the names of their types."""
    added_keys: Collection[str]
    """Keys that the script itself puts into objects."""
    bound: Collection[str]
    """Names that the script defines."""
    lines: Sequence[str] = ()
    """Of the script."""
    given: Collection[str] = ()
    """Variables that the script is given."""
    packed: Collection[int] = ()
    """Lines of calls that may be given all arguments in one object."""
    is_rehearsed: bool = False
    """The script was gone through, which tells more of values than the checker can."""


def problems_of(rendered: str, context: Context) -> list[Problem]:
    """The problems in what the checker said, as JSON."""
    try:
        said = json.loads(rendered)
    except ValueError:
        return []
    found = []
    for one in said[:_MOST] if isinstance(said, list) else []:
        made = _problem(one, context) if isinstance(one, dict) else None
        if made is not None:
            found.append(made)
    return found


def _problem(said: Mapping[str, Any], context: Context) -> Problem | None:
    code, message, place = said.get("code"), said.get("message"), said.get("location")
    if not isinstance(message, str) or not isinstance(place, dict) or not isinstance(row := place.get("row"), int):
        return None
    for kinds, pattern, explain in _EXPLAINED:
        if context.is_rehearsed and explain in _OF_VALUES and LEARNED not in message:
            continue
        if code in kinds and (match := pattern.search(message)) is not None:
            text = explain(match, context, row - LINES_BEFORE)
            if text:
                return problem(row - LINES_BEFORE, text, is_warning=LEARNED in message)
    return None


def _unknown_name(match: re.Match[str], context: Context, _line: int) -> str:
    name, servers = match[1], context.toolbox.servers
    # The checker does not see what is declared with an underscore in front.
    if name in KNOWN_AT_RUN_TIME or name in context.given or name in servers:
        return ""
    if instead := instead_of_name(name):
        return f"{shown(name)} is not defined. {instead}"
    having = [f"{server}.{name}" for server, tools in servers.items() if name in tools]
    if having:
        return f"{shown(name)} is not defined. Did you mean {having[0]}?"
    if name in MODULES:
        return f"{shown(name)} is not imported. Write: import {name}"
    known = [*servers, *HELPERS, *context.bound]
    if near := nearest(name, known):
        return f"{shown(name)} is not defined. Did you mean {near}?"
    return f"{shown(name)} is not defined: no variable, and no server.{hint(name, servers, 'servers')}"


def _unknown_module(match: re.Match[str], _context: Context, _line: int) -> str:
    return cannot_import(match[1])


def _unknown_member(match: re.Match[str], _context: Context, _line: int) -> str:
    return has_no_member(match[1], match[2])


def _unknown_attribute(match: re.Match[str], context: Context, line: int) -> str:
    kind, name = match[1], match[2]
    if kind.startswith(SERVER):
        server = kind.removeprefix(SERVER)
        tools = context.toolbox.servers.get(server, {})
        return "" if name in tools else f"{server} has no tool {shown(name)}.{hint(name, tools, 'tools')}"
    if (result := context.results.get(kind)) is not None:
        key = nearest(name, result.keys)
        if key == name or (key and name not in dir(dict)):
            return f"the result of {result.tool} is a dict: write [{key!r}], not .{name}"
        return f"the result of {result.tool} is a dict and has no attribute {shown(name)}. Its keys: {_keys(result)}"
    if kind == "None" and _RETURNS_NOTHING.search(context.lines[line - 1] if line <= len(context.lines) else ""):
        return f"list methods like sort() return None, which has no {shown(name)}. Use sorted(...)."
    plain = kind.partition("[")[0]
    of_builtin = {"str": str, "list": list, "dict": dict, "int": int}.get(plain)
    if of_builtin is None or "Coroutine" in kind:
        return ""
    return f"{plain} has no attribute {shown(name)}.{_did_you_mean(name, dir(of_builtin))}"


def _did_you_mean(name: str, known: Collection[str]) -> str:
    near = nearest(name, [one for one in known if not one.startswith("_")])
    return f" Did you mean {near}?" if near else ""


def _unknown_key(match: re.Match[str], context: Context, _line: int) -> str:
    key, result = match[1], context.results.get(match[2])
    if result is None or key in context.added_keys:
        return ""
    near = nearest(key, result.keys)
    end = f" Did you mean {near!r}?" if near else f" Its keys: {_keys(result)}"
    return f"the result of {result.tool} has no key {shown(key)} there.{end}"


def _wrong_index(match: re.Match[str], _context: Context, _line: int) -> str:
    """A list or a text that is asked for a key."""
    key, kind = match[1], match[2]
    if kind == "str":
        return (
            f"a text cannot be asked for the key {key}. Iterating over a dict gives its keys: use .values() or ['...']."
        )
    if not _LIST.fullmatch(kind):
        return ""
    return f"a list cannot be asked for the key {key}: iterate over it, or take an element first."


def _argument(match: re.Match[str], context: Context, line: int) -> str:
    server, tool, expected, found = match.groups()
    wanted, given = _kinds(expected), _kinds(found)
    # None may stand for an argument that is left out.
    if not wanted or not given or wanted & given or "none" in given:
        return ""
    if line in context.packed and not _is_no_object_of_arguments(found, context.toolbox.tool(server, tool), context):
        return ""
    return f"{server}.{tool} takes {_readable(expected)} there, not {_readable(found)}."


def _is_no_object_of_arguments(found: str, tool: CatalogTool | None, context: Context) -> bool:
    """Whether the only argument of a call cannot stand for all of them: it has keys that the tool does not take."""
    result = context.results.get(found)
    names = {name for one in parameters_of(tool) for name in (one.own, one.python)} if tool is not None else set()
    return "object" not in _kinds(found) or (result is not None and not names.issuperset(result.keys))


def _joined(match: re.Match[str], _context: Context, _line: int) -> str:
    """Texts are joined, nothing else."""
    inner = match[1]
    is_wrong = inner == "int" or _OURS.fullmatch(inner)
    return f"join() takes texts, not {_readable(inner)}s: join(str(x) for x in ...)." if is_wrong else ""


def _measured(match: re.Match[str], _context: Context, _line: int) -> str:
    return f"len() of {match[1]} does not work."


def _loaded(match: re.Match[str], _context: Context, _line: int) -> str:
    """Results are parsed already."""
    is_parsed = _kinds(match[1]) in ({"object"}, {"list"})
    return "json.loads() takes a text; this is parsed already. Leave json.loads out." if is_parsed else ""


def _own_call(match: re.Match[str], _context: Context, _line: int) -> str:
    """A call of a function of the script's own."""
    said = match[0]
    return "" if "bound method" in said or "mcp_" in said else said.replace("`", "'") + "."


def _operator(match: re.Match[str], _context: Context, _line: int) -> str:
    operator, left, right = match.groups()
    if not (_SIMPLE.fullmatch(left) and _SIMPLE.fullmatch(right)) or {*_kinds(left)} == {*_kinds(right)}:
        return ""
    is_text = "text" in _kinds(left) | _kinds(right)
    advice = " Use str(...) or an f-string." if operator == "+" and is_text else ""
    return f"{_readable(left)} {operator} {_readable(right)} does not work.{advice}"


def _iterated(match: re.Match[str], _context: Context, _line: int) -> str:
    if match[1].startswith("bound method"):
        name = match[1].partition("(")[0].rpartition(".")[2]
        return f".{name} is a method and cannot be iterated over: call it, or for a key write [{name!r}]."
    return f"{_readable(match[1])} cannot be iterated over." if match[1] == "int" else ""


def _kinds(text: str) -> frozenset[str]:
    """What kinds of JSON a type may be; nothing if that is uncertain."""
    found = set()
    for part in _parts(text):
        head = part.partition("[")[0]
        if head == "Literal":
            found |= {"text"} if '"' in part else {"number"}
        elif head in _KINDS:
            found.add(_KINDS[head])
        elif head == "list":
            found.add("list")
        elif head == "dict" or _OURS.fullmatch(head):
            found.add("object")
        else:
            return frozenset()
    return frozenset(found)


def _parts(text: str) -> list[str]:
    """The alternatives of a union, those in brackets left alone."""
    parts, depth, begin, is_quoted = [], 0, 0, False
    for at, letter in enumerate(text):
        is_quoted ^= letter == '"'
        if not is_quoted:
            depth += (letter in "[(") - (letter in "])")
        if letter == "|" and not depth and not is_quoted:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [*parts, text[begin:].strip()]


def _readable(kind: str) -> str:
    """A type without names of ours."""
    plain = _OURS.sub("dict", kind)
    return re.sub(r"Literal\[(.*?)\]", r"\1", plain.replace("dict[str, Any]", "dict").replace("list[Any]", "list"))


def _keys(result: ResultKeys) -> str:
    return ", ".join(shown(key) for key in result.keys[:12]) + (", ..." if len(result.keys) > 12 else "") + "."


_Explain = Callable[[re.Match[str], Context, int], str]

_EXPLAINED: list[tuple[set[str], re.Pattern[str], _Explain]] = [
    ({"unresolved-reference"}, re.compile(r"^Name `(\w+)` used when not defined"), _unknown_name),
    ({"unresolved-import"}, re.compile(r"^Cannot resolve imported module `([\w.]+)`"), _unknown_module),
    ({"unresolved-import"}, re.compile(r"^Module `([\w.]+)` has no member `(\w+)`"), _unknown_member),
    ({"unresolved-attribute"}, re.compile(r"^Module `([\w.]+)` has no member `(\w+)`"), _unknown_member),
    ({"unresolved-attribute"}, re.compile(r"^Object of type `([^`]+)` has no attribute `(\w+)`"), _unknown_attribute),
    ({"invalid-key"}, re.compile(r'^Unknown key "([^"]*)" for TypedDict `(\w+)`'), _unknown_key),
    (
        {"invalid-argument-type"},
        re.compile(r"cannot be called with key of type `Literal\[(\"[^\"]*\")\]` on object of type `([^`]+)`"),
        _wrong_index,
    ),
    (
        {"invalid-argument-type"},
        re.compile(rf"bound method `{SERVER}(\w+)\.(\w+)` is incorrect: Expected `(.+)`, found `(.+)`"),
        _argument,
    ),
    (
        {"missing-argument", "unknown-argument", "too-many-positional-arguments"},
        re.compile(r"^.{0,200} function `\w+`.{0,60}"),
        _own_call,
    ),
    (
        {"unsupported-operator"},
        re.compile(r"^Operator `([^`]+)` is not supported between objects of type `([^`]+)` and `([^`]+)`$"),
        _operator,
    ),
    ({"not-iterable"}, re.compile(r"^Object of type `([^`]+)` is not iterable"), _iterated),
    (
        {"invalid-argument-type"},
        re.compile(rf"function `{JOINED}` is incorrect: Expected `Iterable\[str\]`, found `\w+\[(\w+)[\],]"),
        _joined,
    ),
    (
        {"invalid-argument-type"},
        re.compile(rf"function `{LOADED}` is incorrect: Expected `.+`, found `(.+)`"),
        _loaded,
    ),
    (
        {"invalid-argument-type"},
        re.compile(r"function `len` is incorrect: Expected `Sized`, found `(int)`"),
        _measured,
    ),
]

_OF_VALUES = {_unknown_attribute, _unknown_key, _wrong_index, _argument, _operator, _iterated, _joined, _loaded}
