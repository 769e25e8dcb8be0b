"""Syntax, modules, names and attributes that scripts lack, and what to write instead. Pure.

Used by the check and by a script's reply. Results are JSON and there are few modules, so every attribute belongs to a
Python type, one of these modules, or a class of the script.
"""

from __future__ import annotations

import ast
import importlib
import types
from collections.abc import Callable, Collection, Iterator
from functools import cache

from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.scripts.names import MODULES
from mcp_optimizer.scripts.problems import nearest, shown

_NOT_YET = regex(r"(?:NotImplementedError: )?The monty syntax parser does not yet support ")

_INSTEAD_OF_SYNTAX = {
    "yield": "Collect a list and return it.",
    "'del'": "Use pop(), or a new list or dict without it.",
    "inheritance": "Raise ValueError(...) in place of an exception of your own; else write functions.",
    "method decorators": "Write a function outside the class.",
    "context managers": "Use try/finally.",
    "exception groups": "Use except.",
}

_FILES = "Scripts have no files; a tool of a server may read them."
_NETWORK = "Scripts have no network: call a tool of a server."
_AT_ONCE = "For many calls at once use parallel(name, [{...}, ...]) or asyncio.gather(...)."
_INSTEAD_OF_MODULES = {
    **dict.fromkeys(("requests", "httpx", "aiohttp", "urllib3", "http", "socket"), _NETWORK),
    **dict.fromkeys(("io", "tempfile", "shutil", "glob", "sqlite3", "zipfile"), _FILES),
    **dict.fromkeys(("concurrent", "threading", "multiprocessing"), _AT_ONCE),
    "subprocess": "Scripts start no programs: call a tool of a server.",
    "operator": "Use a lambda: key=lambda row: row['name'].",
    "statistics": "The mean is sum(x) / len(x), the median sorted(x)[len(x) // 2].",
    "heapq": "Use sorted(...)[:n].",
    "string": "Write the characters as a text.",
    "enum": "Use plain values.",
    "contextlib": "Use try/except.",
    "uuid": "Use random, or let the server make the id.",
    "urllib": "Scripts have no network; take addresses apart with split() or re.",
    "pprint": "Use print(json.dumps(value, indent=1)).",
    "logging": "Use print().",
    "traceback": "Print the exception itself.",
    "types": "Use a dict, or a class of your own.",
    "textwrap": "Cut texts with text[:80].",
    "pandas": "Use lists, dicts and sorted(); collections.Counter counts.",
    "numpy": "Use lists, sum() and math.",
}

_INSTEAD_OF_MEMBERS = {
    "asyncio": _AT_ONCE,
    "collections": "A dict keeps its order.",
}

ENDS = "A script ends with its last line."
_INSTEAD_OF_NAMES = {
    "exit": ENDS,
    "quit": ENDS,
    "help": "find_tool with detail='python' shows how a tool is called.",
    "input": "A script cannot ask anybody: write the value into it.",
    "callable": "Use hasattr(), or look at type(value).__name__.",
}

NO_ENVIRONMENT = "A script has no environment variables: write the value into it."
NO_FILES = f"A script cannot do that. {_FILES}"


def told(message: str) -> str:
    """The interpreter's message about unsupported syntax, with a replacement to write."""
    if _NOT_YET.match(message) is None:
        return message
    return unsupported(_NOT_YET.sub("", message))


def unsupported(what: str) -> str:
    """The message about syntax that scripts do not have."""
    advice = next((advice for word, advice in _INSTEAD_OF_SYNTAX.items() if word in what), "")
    return f"scripts do not support {what.rstrip('.')}. {advice}".rstrip()


def cannot_import(module: str) -> str:
    """The message about a module that scripts do not have."""
    instead = _INSTEAD_OF_MODULES.get(module.partition(".")[0])
    return f"scripts cannot import {module[:60]!r}. {instead or 'They have: ' + ', '.join(sorted(MODULES)) + '.'}"


def has_no_member(module: str, name: str) -> str:
    """The message about a name that a module does not have in scripts."""
    return f"{module} has no {name[:60]!r} in scripts. {_INSTEAD_OF_MEMBERS.get(module, '')}".rstrip()


def instead_of_name(name: str) -> str:
    """What to write for a builtin name that scripts do not have; "" if there is no advice."""
    return _INSTEAD_OF_NAMES.get(name, "")


def host_refusal(function: str) -> str:
    """Why the host refuses a function to scripts; "" where the interpreter's own message is better."""
    if function in ("os.environ", "os.getenv"):
        return NO_ENVIRONMENT
    return NO_FILES if function == "open" or function.startswith("Path.") else ""


_BUILTIN_TYPES = (
    str,
    bytes,
    int,
    float,
    complex,
    bool,
    list,
    dict,
    set,
    frozenset,
    tuple,
    range,
    slice,
    memoryview,
    object,
)
_OTHER_TYPES = (
    types.FunctionType,
    types.GeneratorType,
    types.CoroutineType,
    types.ModuleType,
    Exception,
    type,
    property,
)
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
"""What Python writes for words from other languages."""

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
"""Attributes of Python's dates that the scripts' interpreter lacks, and their replacements."""


@cache
def known_attributes() -> frozenset[str]:
    """The attributes of all types and modules that scripts have; Python has a few more than their interpreter."""
    found: set[str] = set()
    for one in (*_BUILTIN_TYPES, *_OTHER_TYPES):
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
    """Unknown attributes, by line. `is_excused`: whether an attribute is no mistake, or is reported elsewhere."""
    own = frozenset(_own_attributes(nodes))
    for node in nodes:
        if not isinstance(node, ast.Attribute) or node.attr in own or node.attr in known_attributes():
            continue
        if not is_excused(node):
            yield node.lineno, f"nothing has an attribute {shown(node.attr)} in scripts.{_meant_attribute(node.attr)}"


def _own_attributes(nodes: Collection[ast.AST]) -> Iterator[str]:
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


def _meant_attribute(name: str) -> str:
    meant = _MEANT.get(name) or _LACKING.get(name)
    if meant:
        return f" Use {meant}."
    plain = {one for kind in (str, list, dict, set) for one in dir(kind) if not one.startswith("_")}
    near = nearest(name, sorted(plain))
    return f" Did you mean {near}?" if near else ""
