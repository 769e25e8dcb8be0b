"""Builds tools, server states, catalogs and a pool with the product's own constructors, without processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.catalog.tool_forms import ToolForms
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.own_tools import OWN_NAMES
from mcp_optimizer.domain.tools import Definition, McpTool, ServerStatus
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.permissions import Permissions
from mcp_optimizer.gateway.python_text import Stubs
from mcp_optimizer.gateway.servers import BuiltInServers
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.scripts.stubs import StubWriter
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.state import PoolOptions, UpstreamState


def mcp_tool(name: str, description: str = "", properties: Mapping[str, Any] | None = None, **fields: Any) -> McpTool:
    """A tool; `fields` are additional fields, named as in the protocol."""
    schema = {"type": "object", "properties": dict(properties or {})}
    return McpTool.model_validate({"name": name, "description": description, "inputSchema": schema, **fields})


def spec(name: str, command: str = "start-it") -> ServerSpec:
    return ServerSpec(name=name, transport=Transport.STDIO, command=command)


def running(name: str, *tools: McpTool) -> UpstreamState:
    return UpstreamState(spec(name), ServerStatus.RUNNING, Listing(tuple(map(Definition.of, tools))))


def down(name: str, reason: str = "it exited with code 1", status: ServerStatus = ServerStatus.FAILED) -> UpstreamState:
    return UpstreamState(spec(name), status, reason=reason)


async def no_database() -> None:
    return None


def new_catalog(counter: TokenCounter | None = None, own_names: Sequence[str] = OWN_NAMES) -> LiveCatalog:
    counter, vocabulary = counter or TokenCounter(), Vocabulary()
    return LiveCatalog(Ingestion(counter, vocabulary, no_database), vocabulary, counter, own_names)


async def live_catalog(
    *states: UpstreamState, counter: TokenCounter | None = None, own_names: Sequence[str] = OWN_NAMES
) -> LiveCatalog:
    """A catalog that has ingested the listings of these servers."""
    catalog = new_catalog(counter, own_names)
    for state in states:
        catalog.on_state(state)
    await catalog.caught_up()
    return catalog


Answer = Callable[[str, dict[str, Any]], dict[str, Any]]


class RecordingPool(UpstreamPool):
    """A pool without servers, which records calls and answers with a given function."""

    def __init__(self, answer: Answer | None = None) -> None:
        super().__init__((), PoolOptions(), "test")
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self._answer: Answer = answer or (lambda _server, _params: {"content": [{"type": "text", "text": "done"}]})

    async def call(self, server: str, method: str, params: dict[str, Any], caller: Caller = LOCAL) -> dict[str, Any]:
        self.calls.append((server, method, params))
        return self._answer(server, params)


def new_gateway(
    catalog: LiveCatalog,
    pool: UpstreamPool | None = None,
    find_limit: int = 5,
    counter: TokenCounter | None = None,
    permissions: Permissions | None = None,
    built_in: BuiltInServers | None = None,
) -> Gateway:
    counter = counter or TokenCounter()
    forms, results = ToolForms(counter), Results.plain(counter)
    stubs = python_stubs()
    used = pool or RecordingPool()
    return Gateway(catalog, used, forms, results, find_limit, permissions=permissions, stubs=stubs, built_in=built_in)


def python_stubs() -> Stubs:
    """As where scripts are on."""
    writer = StubWriter()
    return Stubs(writer.spelling, writer.stub)


async def gateway_over(
    *states: UpstreamState,
    pool: UpstreamPool | None = None,
    find_limit: int = 5,
    counter: TokenCounter | None = None,
    permissions: Permissions | None = None,
) -> Gateway:
    return new_gateway(await live_catalog(*states, counter=counter), pool, find_limit, counter, permissions)


class Choking(TokenCounter):
    """Fails on any text that contains "poison"."""

    def count_tokens(self, text: str) -> int:
        if "poison" in text:
            raise ValueError("the tokenizer choked")
        return super().count_tokens(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count_tokens(text) for text in texts]
