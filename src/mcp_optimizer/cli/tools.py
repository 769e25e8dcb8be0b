"""`find`, `call`, `read` and `tools`: what a model does through the gateway, from a terminal."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.options import JsonFlag, with_settings
from mcp_optimizer.cli.running import run, started
from mcp_optimizer.cli.show import console, print_json
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, printable, printable_json
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

    from mcp_optimizer.gateway.found import FoundTools


def register(app: typer.Typer) -> None:
    for command in (find, call, read, tools):
        app.command()(command)


@with_settings()
def find(
    query: Annotated[str, typer.Argument(help="What you want to do, in plain words.")],
    *,
    settings: Settings,
    keywords: Annotated[str, typer.Option(help="Extra search words, such as a product or server name.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum tools to show.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Search all tools, as a model does with find_tool."""
    run(_find(settings, query, keywords, limit, as_json))


async def _find(settings: Settings, query: str, keywords: str, limit: int | None, as_json: bool) -> None:
    from mcp_optimizer.catalog.forms import Detail
    from mcp_optimizer.serving.own_replies import find_response

    async with started(settings, shows_servers=True) as optimizer:
        found = optimizer.gateway.find(query, keywords, limit, Detail(settings.detail))
        if as_json:
            print_json(find_response(found).model_dump(mode="json", exclude_none=True))
        else:
            show_found(console(), found)


def show_found(out: Console, found: FoundTools) -> None:
    from rich.table import Table
    from rich.text import Text

    from mcp_optimizer.gateway.entries import summary
    from mcp_optimizer.gateway.found import likelihood

    if found.tools:
        table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
        for title in ("tool", "server"):
            table.add_column(title, no_wrap=True)
        table.add_column("tokens", justify="right")
        table.add_column("likely", justify="right")
        table.add_column("description", overflow="ellipsis", no_wrap=True, ratio=1)
        for hit in found.tools:
            texts = (hit.tool.name, hit.tool.server, f"{hit.form.tokens:,}", likelihood(hit.score), summary(hit.tool))
            # Text, not markup: a server's words must not colour or rewrite our screen.
            table.add_row(*map(Text, texts))
        out.print(table)
    else:
        out.print("No tool matches. Try other words, or list all tools with `mcp-optimizer tools`.")
    metrics = found.token_metrics
    # Finding nothing saves nothing.
    if found.tools:
        out.print(
            f"[bold]{metrics.returned_tokens:,}[/] of {metrics.baseline_tokens:,} tokens: "
            f"[green]{metrics.tokens_saved:,} saved ({metrics.savings_percentage:.1f} %)[/]"
        )
    for state in found.missing:
        out.print(Text(in_a_line(f"not searched: {state.name} ({state.status}) {state.reason}"), style="yellow"))


@with_settings()
def call(
    tool: Annotated[str, typer.Argument(help="The tool's name, or server__tool.")],
    arguments: Annotated[str, typer.Argument(metavar="[JSON]", help="Its arguments, as a JSON object.")] = "{}",
    *,
    settings: Settings,
    server: Annotated[str | None, typer.Option(help="The server, if several have the tool.")] = None,
    select: Annotated[str, typer.Option(help="JMESPath: return only this part of a JSON result.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Call a tool. The cost of the result goes to stderr. Exit code 1 if the tool reports an error.

    With --json, prints the CallToolResult as sent to clients.
    """
    _answer(run(_call(settings, tool, arguments, server, select)), as_json)


async def _call(settings: Settings, tool: str, arguments: str, server: str | None, select: str) -> dict[str, Any]:
    async with started(settings) as optimizer:
        return await optimizer.call(tool, arguments, server, select)


@with_settings()
def read(
    result_id: Annotated[str, typer.Argument(help="The result_id from the notice of a cut result.")],
    *,
    settings: Settings,
    offset: Annotated[int, typer.Option(min=0, help="First row or line to return.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum rows or lines.")] = None,
    select: Annotated[str, typer.Option(help="JMESPath over the complete result, instead of a page.")] = "",
    search: Annotated[str, typer.Option(help="Return only rows or lines that contain this text.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Read more of a result that was cut, as a model does with read_result."""
    _answer(run(_read(settings, result_id, offset, limit, select, search)), as_json)


async def _read(
    settings: Settings, result_id: str, offset: int, limit: int | None, select: str, search: str
) -> dict[str, Any]:
    from mcp_optimizer.app import Optimizer

    # Reading a kept result needs no server.
    async with Optimizer([], settings.model_copy(update={"encoder": "none"})) as optimizer:
        return await optimizer.read_result(result_id, offset, limit, select=select, search=search)


def _answer(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        _show_result(result)
        print(_cost(result.get("_meta") or {}), file=sys.stderr)
    if result.get("isError"):
        sys.exit(1)


def _cost(meta: dict[str, Any]) -> str:
    """The cost of a result, in one line."""
    tokens, data = meta["tokens"], meta.get("data") or {}
    said = [f"{tokens['estimated']:,} tokens ({tokens['approximationMethod']})"]
    if "rowCount" in data:
        said.append(counted(data["rowCount"], "row"))
    if data.get("truncated"):
        said.append("cut")
    if cost := meta.get("cost"):
        said.append(f"{cost['input']:.6f} {cost['currency']} as input of {cost['model']}")
    performance = meta["performance"]
    said.append("from the cache" if performance["cachedResult"] else f"{performance['executionTimeMs']:,} ms")
    return ", ".join(said)


def _show_result(result: dict[str, Any]) -> None:
    """A tool's result, for people; a server may send anything in place of a block."""
    blocks = result.get("content")
    blocks = blocks if isinstance(blocks, list) else []
    for block in blocks:
        about = block if isinstance(block, dict) else {}
        if about.get("type") == "text":
            print(printable(str(about.get("text", ""))))
        else:
            size = len(str(about.get("data", "")))
            print(in_a_line(f"[{about.get('type')} {about.get('mimeType', '')} {size:,} characters of base64]"))
    if not blocks and "structuredContent" in result:
        print(printable_json(json.dumps(result["structuredContent"], ensure_ascii=False, indent=2)))


@with_settings()
def tools(
    *,
    settings: Settings,
    server: Annotated[str | None, typer.Option(help="Only this server's tools.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List all tools with their cost in every prompt, largest first."""
    run(_tools(settings, server, as_json))


async def _tools(settings: Settings, server: str | None, as_json: bool) -> None:
    from mcp_optimizer.errors import InvalidRequest

    async with started(settings) as optimizer:
        names = [state.name for state in optimizer.servers()]
        if server is not None and server not in names:
            raise InvalidRequest(f"Unknown server {server!r}. Servers: {', '.join(names) or 'none'}.")
        found = [tool for tool in optimizer.snapshot.running if server in (None, tool.server)]
        found.sort(key=lambda tool: (-tool.tokens, tool.name))
        if as_json:
            rows = [{"name": tool.name, "server": tool.server, "tokens": tool.tokens} for tool in found]
            print_json({"tools": rows, "total_tokens": sum(tool.tokens for tool in found)})
            return
        _show_tools(console(), found)


def _show_tools(out: Console, found: list[Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from mcp_optimizer.gateway.entries import summary

    table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    table.add_column("tokens", justify="right")
    table.add_column("tool", no_wrap=True)
    table.add_column("server", no_wrap=True)
    table.add_column("description", overflow="ellipsis", no_wrap=True, ratio=1)
    for tool in found:
        table.add_row(*map(Text, (f"{tool.tokens:,}", tool.name, tool.server, summary(tool))))
    out.print(table)
    tokens = sum(tool.tokens for tool in found)
    out.print(f"[bold]{counted(len(found), 'tool')}, {tokens:,} tokens[/] in every prompt without mcp-optimizer")
