"""The undocumented parts of the `mcp` package that we use exist, behave as we expect, and are used in one file only."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared import inbound

from mcp_optimizer.domain import protocol
from mcp_optimizer.serving.relay.connected import ask_client, connection_of
from tests.contract import sources
from tests.contract.ratchets import mentions_private
from tests.contract.sources import PACKAGE, nodes_of, text_of

ROOT = Path(__file__).parents[2]
IN_USE = {"connected.py": {"_connection", "_request_outbound"}}
"""The private members that each file may use."""

HOMES = [PACKAGE / "serving" / "relay" / name for name in IN_USE]

NOT_THE_SDKS = {"_replace", "_asdict", "_fields", "_mapping", "_exit", "_create_key_func"}
"""Members of named tuples, SQLAlchemy's rows, `os`, and JMESPath's interpreter, which is designed to be subclassed."""


def test_our_constants_are_the_sdks() -> None:
    ours = {name: value for name, value in vars(protocol).items() if name.isupper()}
    theirs = [types, import_module("mcp_types.version"), import_module("mcp_types.methods"), inbound]
    assert {name: next(getattr(one, name) for one in theirs if hasattr(one, name)) for name in ours} == ours


# The private members exist and do what we use them for.


def test_only_the_release_that_this_was_run_on_is_admitted() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [needed] = [line for line in project["dependencies"] if re.match(r"mcp\b(?!-)", line)]
    major, minor = map(int, version("mcp").split(".")[:2])
    assert needed == f"mcp>={major}.{minor},<{major}.{minor + 1}"


@pytest.mark.slow
def test_whether_somebody_takes_spans_is_known_from_the_beginning_and_when_it_changes() -> None:
    # In another process, because a process has one tracer provider.
    program = (
        "from mcp_optimizer.serving.tracing import is_traced; from opentelemetry import trace; print(is_traced());"
        "trace.set_tracer_provider(trace.NoOpTracerProvider()); print(is_traced())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


async def test_a_request_knows_its_connection_for_as_long_as_its_client_is_there() -> None:
    seen: list[Connection] = []
    left: list[str] = []

    async def look(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/list":
            connection = connection_of(ctx)
            if not seen:
                connection.state["mine"] = "kept"
                connection.exit_stack.callback(left.append, "left")
            seen.append(connection)
        return await call_next(ctx)

    async def no_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    server: Server[Any] = Server("test", version="1", on_list_tools=no_tools)
    server.middleware.append(look)
    async with Client(server, mode="legacy") as client:
        await client.list_tools()
        await client.list_tools(cache_mode="refresh")
        assert left == []
    assert seen[0] is seen[1]
    assert seen[1].state["mine"] == "kept"
    assert left == ["left"]


@pytest.mark.parametrize("on_request", [True, False])
async def test_a_question_to_a_client_can_have_an_id_of_our_own(on_request: bool) -> None:
    ids: list[Any] = []

    async def look(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/list":
            answer = await ask_client(ctx.session, "roots/list", {}, on_request=on_request, request_id="our-q1")
            assert answer["roots"][0]["uri"] == "file:///home"
        return await call_next(ctx)

    async def no_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    async def roots(context: Any) -> types.ListRootsResult:
        ids.append(context.request_id)
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///home"}]})

    server: Server[Any] = Server("test", version="1", on_list_tools=no_tools)
    server.middleware.append(look)
    async with Client(server, mode="legacy", list_roots_callback=roots) as client:
        await client.list_tools()
    assert ids == ["our-q1"]


# The private members are used in few files only.


_FROM_SDK = re.compile(r"\bfrom\s+mcp(_types)?\b")


def private_uses(path: Path) -> Iterator[tuple[int, str]]:
    """Uses of private members of other objects, and of SDK classes that our classes derive from."""
    text = text_of(path)
    if not mentions_private(text) and not _FROM_SDK.search(text):
        return
    imported = _imported_from_sdk(path)
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_self(node.value):
            if node.attr not in NOT_THE_SDKS:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ClassDef):
            bases = [imported[name] for name in map(_plain_name, node.bases) if name in imported]
            taken = set().union(*map(_private_members, bases))
            yield from ((line, name) for line, name in _own_private_names(node) if name in taken)


def _imported_from_sdk(path: Path) -> dict[str, type]:
    found: dict[str, type] = {}
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("mcp", "mcp_types"):
            for alias in node.names:
                value = getattr(import_module(node.module or ""), alias.name, None)
                if isinstance(value, type):
                    found[alias.asname or alias.name] = value
    return found


def _plain_name(base: ast.expr) -> str:
    return ast.unparse(base.value if isinstance(base, ast.Subscript) else base)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def _private_members(base: type) -> set[str]:
    """Private members that an SDK class defines, or that its methods use on `self`."""
    kinds = [kind for kind in base.__mro__ if kind.__module__.split(".")[0] in ("mcp", "mcp_types")]
    names = {name for kind in kinds for name in vars(kind)}
    names |= {name for kind in kinds for name in re.findall(r"self\.(_\w+)", inspect.getsource(kind))}
    return {name for name in names if _is_private(name)}


def _own_private_names(node: ast.ClassDef) -> Iterator[tuple[int, str]]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and _is_private(inner.name):
            yield inner.lineno, inner.name
        elif isinstance(inner, ast.Attribute) and _is_self(inner.value) and _is_private(inner.attr):
            yield inner.lineno, inner.attr


FILES = [path for path in sources.FILES if path not in HOMES]


def test_no_other_file_touches_a_private_member() -> None:
    uses = {path.relative_to(PACKAGE).as_posix(): list(private_uses(path)) for path in FILES}
    found = {name: where for name, where in uses.items() if where}
    assert found == {}, "put it into relay/connected.py, with its reason and its test"


@pytest.mark.parametrize("path", HOMES, ids=lambda path: path.name)
def test_the_private_members_in_use_are_found(path: Path) -> None:
    found = {name.rpartition(".")[2] for _, name in private_uses(path)}
    assert found == IN_USE[path.name]


def test_the_protocol_types_are_those_of_the_same_release() -> None:
    assert version("mcp-types") == version("mcp")
