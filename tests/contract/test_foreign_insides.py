"""Everything that we use of other libraries beyond what they document is in a table here, and exists.

`test_foreign_behaviour.py` shows that it does what we rely on. The private members of the `mcp` package have tests of
their own, in `test_sdk_internals.py`.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.contract.sources import parsed

DOCUMENTED = {
    "asyncio.protocols.Protocol": {"connection_made", "connection_lost", "data_received"},
    "asyncio.streams.StreamReader": {"read"},
    "asyncio.subprocess.SubprocessStreamProtocol": {"connection_made"},
    "httpx2.AsyncBaseTransport": {"handle_async_request", "aclose"},
    "httpx2.AsyncByteStream": {"aclose"},
    "httpx2.AsyncClient": {"build_request", "cookies", "is_closed", "send"},
    "logging.Formatter": {"format", "formatException"},
    "opentelemetry.sdk.trace.export.SpanExporter": {"export", "shutdown"},
    "prometheus_client.registry.Collector": {"collect"},
    "pydantic.main.BaseModel": {"model_dump_json"},
    "rich.console.RenderHook": {"process_renderables"},
    "sqlalchemy.sql.type_api.TypeDecorator": {"process_result_value"},
    "typer.core.TyperCommand": {"format_help", "get_params"},
    "typer.main.Typer": {"command"},
    "uvicorn.protocols.http.httptools_impl.HttpToolsProtocol": {
        *("connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing")
    },
    "uvicorn.server.Server": {"force_exit", "should_exit"},
}
"""Members of classes that ours derive from, which their libraries document."""

INSIDES = {
    "asyncio.streams.StreamReader": {"feed_data"},
    "asyncio.subprocess.SubprocessStreamProtocol": {"stdout"},
    "functools.cached_property": {"attrname", "func"},
    "jmespath.functions.Functions": {"_create_key_func"},
    "jmespath.visitor.TreeInterpreter": {
        *("_functions", "_is_true", "visit", "visit_comparator", "visit_filter_projection", "visit_flatten"),
        *("visit_function_expression", "visit_multi_select_dict", "visit_multi_select_list", "visit_projection"),
        *("visit_slice", "visit_value_projection"),
    },
    "uvicorn.protocols.http.httptools_impl.HttpToolsProtocol": {
        *("on_message_begin", "on_headers_complete", "on_body", "on_message_complete"),
        *("_unset_keepalive_if_required", "send_400_response", "connections", "cycle", "headers", "loop", "parser"),
        *("scope", "transport", "url"),
    },
    "uvicorn.server.Server": {"capture_signals"},
}
"""Members of the same classes that they do not document."""

UNDOCUMENTED_NAMES = {
    ("serving/pipes.py", "asyncio.streams.FlowControlMixin"),
    ("upstream/transports/processes.py", "asyncio.subprocess.SubprocessStreamProtocol"),
    ("metrics/prometheus.py", "prometheus_client.exposition.choose_encoder"),
    ("runtime/outgoing.py", "urllib.request.proxy_bypass"),
}
"""Names that their modules do not offer."""

SDK_NAMES = {
    ("serving/dispatcher.py", "mcp.server.runner.modern_error_data"),
    ("serving/stdio.py", "mcp.server.connection.NotifyOnlyOutbound"),
}
"""The same of the `mcp` package, at most these."""

TEXTS = {("serving/tracing.py", "_TRACER_PROVIDER")}
"""Private members that are asked for by a text."""

FOREIGN_HOOKS = {("largejson/raw.py", "__pydantic_serializer__")}
"""Attributes that another library looks for in our classes."""

MODULES_WRITTEN = {"runtime/lazy.py"}
"""Files that put modules into `sys.modules`; `tests/unit/cli/test_lazy_sdk.py` loads everything of ours with them."""

OWN_TO_PYTHON = re.compile(r"__(?!pydantic|sqlalchemy|rich_repr)\w+__")


# What is used of others is in the tables.


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("mcp_optimizer", "__future__")


def is_sdk(module: str) -> bool:
    return module.partition(".")[0] in ("mcp", "mcp_types")


def imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """The full names of what a file imports from others, by the name that it has there."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not is_ours(node.module):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if not is_ours(alias.name):
                    found[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
    return found


def value_of(name: str) -> Any:
    """What a full name stands for: a module, or something in one. None if it exists for type checkers alone."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError):
            value: Any = import_module(".".join(parts[:length]))
            for part in parts[length:]:
                value = getattr(value, part, None)
            return value
    return None


@cache
def members(kind: type) -> set[str]:
    """What a class and its bases define, or use on `self`."""
    found = {name for base in kind.__mro__[:-1] for name in members_of_one(base)}
    return {name for name in found if not name.startswith("__")}


@cache
def members_of_one(kind: type) -> set[str]:
    found = {*vars(kind)}
    with contextlib.suppress(TypeError, OSError):
        found |= set(re.findall(r"self\.(\w+)", inspect.getsource(kind)))
    return found


def foreign_bases(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.ClassDef, type]]:
    known = imported(nodes)
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                first, dot, rest = ast.unparse(base.value if isinstance(base, ast.Subscript) else base).partition(".")
                kind = value_of(f"{known[first]}{dot}{rest}") if first in known else None
                if isinstance(kind, type) and not is_sdk(kind.__module__):
                    yield node, kind


def own_names(node: ast.ClassDef) -> set[str]:
    """What a class defines, and uses on `self` or on what it derives from."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(inner.name)
        elif isinstance(inner, ast.Attribute) and is_oneself(inner.value):
            found.add(inner.attr)
    return found


def is_oneself(value: ast.expr) -> bool:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


@cache
def members_in_use() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for _, nodes in parsed():
        for node, kind in foreign_bases(nodes):
            if used := own_names(node) & members(kind):
                found.setdefault(f"{kind.__module__}.{kind.__qualname__}", set()).update(used)
    return found


def test_every_member_of_a_foreign_base_class_is_documented_or_in_the_table() -> None:
    undocumented = {name: used - DOCUMENTED.get(name, set()) for name, used in members_in_use().items()}
    assert {name: used for name, used in undocumented.items() if used} == INSIDES


def test_nothing_in_the_table_of_what_is_documented_is_out_of_use() -> None:
    in_use = members_in_use()
    unused = {name: names - in_use.get(name, set()) for name, names in DOCUMENTED.items()}
    assert {name: names for name, names in unused.items() if names} == {}


def undocumented_names(file: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Private names, and those that a module which lists what it offers does not list."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not is_ours(node.module):
            yield from (
                (file, f"{node.module}.{alias.name}") for alias in node.names if is_inside(node.module, alias.name)
            )
        elif isinstance(node, ast.Attribute) and is_inside_asyncio(node):
            yield file, ast.unparse(node)


def is_inside_asyncio(node: ast.Attribute) -> bool:
    match node.value:
        case ast.Attribute(ast.Name("asyncio"), module):
            return is_inside(f"asyncio.{module}", node.attr)
    return False


def is_inside(module: str, name: str) -> bool:
    if module == "_typeshed":
        return False
    if any(part.startswith("_") for part in [*module.split("."), name]):
        return True
    offered = getattr(import_module(module), "__all__", None)
    documented = {"PIPE", "DEVNULL", "Process"} if module == "asyncio.subprocess" else set()
    return (
        offered is not None
        and name not in {*offered, *documented}
        and not inspect.ismodule(value_of(f"{module}.{name}"))
    )


def test_every_undocumented_name_is_in_the_table() -> None:
    found = {one for file, nodes in parsed() for one in undocumented_names(file, nodes)}
    assert {one for one in found if not is_sdk(one[1])} == UNDOCUMENTED_NAMES
    assert {one for one in found if is_sdk(one[1])} <= SDK_NAMES


def private_texts(file: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        match node:
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "hasattr" | "delattr"), args=[_, ast.Constant(str(name)), *_]
            ):
                if re.match("_(?!_)", name):
                    yield file, name
            case ast.Call(func=ast.Name(id=("attrgetter" | "methodcaller")), args=[ast.Constant(str(name)), *_]):
                if re.match("_(?!_)", name):
                    yield file, name


def test_every_private_member_that_is_asked_for_by_a_text_is_in_the_table() -> None:
    assert {one for file, nodes in parsed() for one in private_texts(file, nodes)} <= TEXTS


def foreign_hooks(file: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name.startswith("__") and name.endswith("__") and not OWN_TO_PYTHON.fullmatch(name):
            yield file, name


def test_every_attribute_that_another_library_looks_for_is_in_the_table() -> None:
    assert {one for file, nodes in parsed() for one in foreign_hooks(file, nodes)} == FOREIGN_HOOKS


def writes_modules(nodes: Iterable[ast.AST]) -> bool:
    targets = [target for node in nodes if isinstance(node, ast.Assign | ast.Delete) for target in node.targets]
    return any(isinstance(one, ast.Subscript) and ast.unparse(one.value) == "sys.modules" for one in targets)


def test_modules_are_replaced_in_one_file_only() -> None:
    assert {file for file, nodes in parsed() if writes_modules(nodes)} == MODULES_WRITTEN


SAMPLE = """
import asyncio, logging, sys
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from mcp.server._otel import OpenTelemetryMiddleware
from prometheus_client.exposition import choose_encoder

class Mine(HttpToolsProtocol):
    def on_body(self, body):
        super().on_url(body)
        self.pipeline.clear()
        self.own = asyncio.streams.FlowControlMixin

Mine.__pydantic_serializer__ = getattr(logging, "_lock")
sys.modules["mine"] = asyncio.subprocess.PIPE
"""


def test_the_search_for_insides_finds_them() -> None:
    nodes = list(ast.walk(ast.parse(SAMPLE)))
    [(node, kind)] = foreign_bases(nodes)
    assert kind is HttpToolsProtocol
    assert own_names(node) & members(kind) == {"on_body", "on_url", "pipeline"}
    assert {name for _, name in undocumented_names("mine.py", nodes)} == {
        "mcp.server._otel.OpenTelemetryMiddleware",
        "prometheus_client.exposition.choose_encoder",
        "asyncio.streams.FlowControlMixin",
    }
    assert list(private_texts("mine.py", nodes)) == [("mine.py", "_lock")]
    assert list(foreign_hooks("mine.py", nodes)) == [("mine.py", "__pydantic_serializer__")]
    assert writes_modules(nodes)


@pytest.mark.parametrize("name", sorted(DOCUMENTED.keys() | INSIDES.keys()))
def test_a_foreign_base_class_has_the_members_in_use(name: str) -> None:
    wanted = DOCUMENTED.get(name, set()) | INSIDES.get(name, set())
    assert wanted - members(value_of(name)) == set()
