"""What the scripts' interpreter has of Python, what it lacks, and what to write instead; finds names that a script uses
and nothing defines. Pure.

`tests/unit/scripts/test_checking.py` compares the names with the installed interpreter.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache

from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.scripts.names import HELPERS, MODULES, Toolbox
from mcp_optimizer.scripts.problems import hint, nearest, shown
from mcp_optimizer.scripts.syntax import bound_names, inside

# Syntax, modules, names and attributes that scripts lack, and what to write instead. Results are JSON and there are
# few modules, so every attribute belongs to a Python type, one of these modules, or a class of the script.

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


_MISSING = frozenset(
    "BaseExceptionGroup BlockingIOError BrokenPipeError BufferError BytesWarning ChildProcessError "
    "ConnectionAbortedError ConnectionError ConnectionRefusedError ConnectionResetError DeprecationWarning EOFError "
    "EncodingWarning EnvironmentError ExceptionGroup FloatingPointError FutureWarning GeneratorExit IOError "
    "ImportWarning IndentationError InterruptedError PendingDeprecationWarning ProcessLookupError ReferenceError "
    "ResourceWarning RuntimeWarning StopAsyncIteration SyntaxWarning SystemError TabError UnicodeError "
    "UnicodeTranslateError UnicodeWarning UserWarning Warning __build_class__ __import__ __loader__ aiter anext ascii "
    "breakpoint bytearray callable classmethod compile copyright credits delattr dir exit globals help input "
    "issubclass license memoryview quit staticmethod super vars".split()
)
BUILTINS = frozenset(dir(builtins)) - _MISSING | {"__file__"}
"""Python's builtin names that scripts have."""

IMPORTED = frozenset("asyncio json re math datetime".split())
"""Modules that every script can use without importing them."""

MEMBERS = {
    "asyncio": "gather run sleep",
    "base64": (
        "MAXBINSIZE MAXLINESIZE a85decode a85encode b16decode b16encode b32decode b32encode b32hexdecode "
        "b32hexencode b64decode b64encode b85decode b85encode decodebytes encodebytes standard_b64decode "
        "standard_b64encode urlsafe_b64decode urlsafe_b64encode z85decode z85encode"
    ),
    "binascii": (
        "Error Incomplete a2b_base64 a2b_hex a2b_qp a2b_uu b2a_base64 b2a_hex b2a_qp b2a_uu crc32 crc_hqx "
        "hexlify unhexlify"
    ),
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "collections": "Counter defaultdict deque namedtuple",
    "copy": "copy deepcopy",
    "csv": (
        "Dialect DictReader DictWriter Error QUOTE_ALL QUOTE_MINIMAL QUOTE_NONE QUOTE_NONNUMERIC "
        "QUOTE_NOTNULL QUOTE_STRINGS excel excel_tab field_size_limit get_dialect list_dialects reader "
        "unix_dialect writer"
    ),
    "dataclasses": "FrozenInstanceError MISSING dataclass field is_dataclass",
    "datetime": "date datetime time timedelta timezone",
    "decimal": (
        "BasicContext Clamped Context ConversionSyntax Decimal DecimalException DecimalTuple DefaultContext "
        "DivisionByZero DivisionImpossible DivisionUndefined ExtendedContext FloatOperation HAVE_CONTEXTVAR "
        "HAVE_THREADS Inexact InvalidContext InvalidOperation MAX_EMAX MAX_PREC MIN_EMIN MIN_ETINY Overflow "
        "ROUND_05UP ROUND_CEILING ROUND_DOWN ROUND_FLOOR ROUND_HALF_DOWN ROUND_HALF_EVEN ROUND_HALF_UP "
        "ROUND_UP Rounded Subnormal Underflow getcontext localcontext setcontext"
    ),
    "functools": "cache lru_cache partial reduce",
    "hashlib": (
        "algorithms_available algorithms_guaranteed blake2b blake2s md5 new pbkdf2_hmac sha1 sha224 sha256 "
        "sha384 sha3_224 sha3_256 sha3_384 sha3_512 sha512 shake_128 shake_256"
    ),
    "itertools": (
        "accumulate batched chain combinations combinations_with_replacement compress count cycle dropwhile "
        "filterfalse groupby islice pairwise permutations product repeat starmap takewhile tee zip_longest"
    ),
    "json": "JSONDecodeError dump dumps load loads",
    "math": (
        "acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp "
        "exp2 expm1 fabs factorial floor fma fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan "
        "isqrt lcm ldexp lgamma log log10 log1p log2 modf nan nextafter perm pi pow prod radians remainder "
        "sin sinh sqrt sumprod tan tanh tau trunc ulp"
    ),
    "os": (
        "altsep chdir curdir defpath devnull extsep fspath getcwd getcwdb getenv linesep listdir makedirs "
        "mkdir name pardir path pathsep remove rename replace rmdir scandir sep stat unlink urandom walk"
    ),
    "pathlib": "Path",
    "posixpath": (
        "abspath altsep basename commonpath commonprefix curdir defpath devnull dirname exists expanduser "
        "expandvars extsep getatime getctime getmtime getsize isabs isdir isfile isjunction islink ismount "
        "join lexists normcase normpath pardir pathsep realpath relpath samefile samestat sep split "
        "splitdrive splitext splitroot supports_unicode_filenames"
    ),
    "random": (
        "Random betavariate binomialvariate choice choices expovariate gammavariate gauss getrandbits "
        "getstate lognormvariate normalvariate paretovariate randbytes randint random randrange sample seed "
        "setstate shuffle triangular uniform vonmisesvariate weibullvariate"
    ),
    "re": (
        "A ASCII DOTALL I IGNORECASE M MULTILINE Match NOFLAG Pattern S compile error escape findall finditer "
        "fullmatch match search split sub"
    ),
    "sys": (
        "abiflags api_version argv base_exec_prefix base_prefix builtin_module_names byteorder copyright "
        "dont_write_bytecode exec_prefix executable flags float_info float_repr_style hexversion maxsize "
        "maxunicode platform platlibdir prefix pycache_prefix stderr stdout version version_info"
    ),
    "time": (
        "altzone asctime ctime daylight gmtime localtime mktime monotonic monotonic_ns perf_counter "
        "perf_counter_ns process_time process_time_ns sleep strftime strptime thread_time thread_time_ns time "
        "time_ns timezone tzname"
    ),
    "tomllib": "TOMLDecodeError load loads",
    "typing": (
        "Annotated Any Callable ClassVar Dict Final FrozenSet Generator Generic Iterable Iterator List "
        "Literal Mapping Never NoReturn Optional Protocol Self Sequence Set TYPE_CHECKING Tuple Type TypeVar "
        "Union"
    ),
    "unicodedata": "category combining is_normalized lookup name normalize unidata_version",
}
"""The names in each importable module, separated by blanks."""


def has_member(module: str, name: str) -> bool:
    """Whether a module has a name in scripts, including names that only the module's own code would use."""
    return name.startswith("_") or module not in MEMBERS or name in MEMBERS[module].split()


# Finds names and module members that a script uses but nothing defines, and syntax that its interpreter lacks.
# Reports only what is certain regardless of scope: a name that the script binds anywhere passes.

Found = Iterator[tuple[int, str]]
"""Problems, each with its line."""

_HOST = {"os": frozenset({"environ"})}
"""Members that the interpreter requests from the host, whose refusal has its own message."""


def undefined_names(nodes: Collection[ast.AST], bound: Collection[str], toolbox: Toolbox) -> Found:
    """Names that are read but defined neither by the script nor by its interpreter."""
    known = BUILTINS | IMPORTED | HELPERS | {*bound, *toolbox.servers}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in known:
            yield node.lineno, _undefined(node.id, bound, toolbox)


def _undefined(name: str, bound: Collection[str], toolbox: Toolbox) -> str:
    servers = toolbox.servers
    if instead := instead_of_name(name):
        return f"{shown(name)} is not defined. {instead}"
    if having := [f"{server}.{name}" for server, tools in servers.items() if name in tools]:
        return f"{shown(name)} is not defined. Did you mean {having[0]}?"
    if name in MODULES:
        return f"{shown(name)} is not imported. Write: import {name}"
    if near := nearest(name, [*servers, *HELPERS, *bound]):
        return f"{shown(name)} is not defined. Did you mean {near}?"
    return f"{shown(name)} is not defined: no variable, and no server.{hint(name, servers, 'servers')}"


def unset_in_functions(nodes: Collection[ast.AST]) -> Found:
    """Names that a function only augments: they are local to it and have no value yet."""
    for scope in nodes:
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        own = list(inside(scope))
        adding = {id(node.target): node.target for node in own if isinstance(node, ast.AugAssign)}
        declared = [name for node in own if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names]
        given = {*declared, *bound_names(node for node in own if id(node) not in adding)}
        for target in adding.values():
            if isinstance(target, ast.Name) and target.id not in given:
                name = shown(target.id)
                yield target.lineno, f"{name} is read before it is given a value: write `global {target.id}` before."


def unknown_members(nodes: Collection[ast.AST], tried: Collection[int]) -> Found:
    """Names that a module lacks in scripts. `tried`: ids of nodes inside `try`, where a failure is not a mistake."""
    modules = _modules(nodes)
    for node in nodes:
        if id(node) in tried:
            continue
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if module := modules.get(name):
                if not has_member(module, attr) and attr not in _HOST.get(module, ()):
                    yield node.lineno, has_no_member(module, attr)
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                missing = (one.name for one in aliases if one.name != "*" and not has_member(module, one.name))
                yield from ((node.lineno, has_no_member(module, name)) for name in missing)


def _modules(nodes: Collection[ast.AST]) -> Mapping[str, str]:
    """Names that mean a module, and nothing else anywhere in the script."""
    imports = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    plain = {one.asname or one.name: one.name for one in imports if one.name in MODULES}
    are_imports = {id(one) for one in imports}
    others = set(bound_names(node for node in nodes if id(node) not in are_imports))
    others |= {(one.asname or one.name).partition(".")[0] for one in imports if one.name not in MODULES}
    return {name: module for name, module in ({one: one for one in IMPORTED} | plain).items() if name not in others}


def missing_syntax(nodes: Collection[ast.AST]) -> Found:
    """Python syntax that the scripts' interpreter cannot read."""
    for node in nodes:
        if what := _lacking(node):
            yield getattr(node, "lineno", 1), unsupported(what)


def _lacking(node: ast.AST) -> str:
    match node:
        case ast.AsyncWith():
            return "async context managers (async with)"
        case ast.AsyncFor():
            return "async for loops"
        case ast.ListComp(generators=parts) | ast.SetComp(generators=parts) | ast.GeneratorExp(generators=parts):
            return "async comprehensions" if any(part.is_async for part in parts) else ""
        case ast.DictComp(generators=parts):
            return "async comprehensions" if any(part.is_async for part in parts) else ""
        case ast.Yield() | ast.YieldFrom():
            return "yield expressions"
        case ast.TryStar():
            return "exception groups (try*/except*)"
        case ast.ClassDef(bases=[_, *_]) | ast.ClassDef(keywords=[_, *_]):
            return "class inheritance and metaclasses"
        case ast.ClassDef(body=body):
            return "method decorators" if any(getattr(one, "decorator_list", ()) for one in body) else ""
        case ast.ImportFrom(names=[ast.alias(name="*")]):
            return "`from ... import *`"
    return ""
