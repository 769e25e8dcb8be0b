"""`find`, `call`, `read` and `tools`: what a model does through the gateway, from a terminal.

Arguments of a call are given as JSON, in a file, on stdin, or as `key=value`; `script run` reads them in the same
way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from mcp_optimizer.cli.command_gateway import FreshFlag, Inquiry, started
from mcp_optimizer.cli.command_options import JsonFlag, complete_server, complete_tool, with_settings
from mcp_optimizer.cli.terminal import console, definition_costs, print_json
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console

    from mcp_optimizer.app.optimizer import Optimizer

_MOST_BYTES = 10_000_000


def given_arguments(positional: str | None, option: str | None, *, is_object: bool) -> Any:
    """The arguments' JSON as text; with `is_object`, an object to which more can be added."""
    if positional is not None and option is not None:
        raise ConfigurationError("The arguments are given twice: after the tool's name and with --args.")
    text = positional if option is None else _read(option)
    if not is_object:
        return "{}" if text is None else text
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"The arguments are not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise ConfigurationError("The arguments are not a JSON object, so --arg cannot add to them.")
    return value


def pairs(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Every `--arg key=value`."""
    for one in given:
        if "=" not in one or one.startswith("="):
            # Without the value, which may be a secret.
            raise ConfigurationError("--arg takes key=value, such as --arg limit=5.")
    return tuple((key, value) for key, _, value in (one.partition("=") for one in given))


def _read(option: str) -> str:
    if option == "-":
        return _bounded(sys.stdin.buffer, "stdin")
    if not option.startswith("@"):
        return option
    path = Path(option[1:]).expanduser()
    try:
        with path.open("rb") as file:
            return _bounded(file, str(path))
    except OSError as error:
        raise ConfigurationError(f"Cannot read the arguments from {path}: {error.strerror}.") from error


def _bounded(file: BinaryIO, name: str) -> str:
    data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ConfigurationError(f"The arguments in {name} are longer than {_MOST_BYTES:,} bytes.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"The arguments in {name} are not UTF-8.") from None


_Tool = Annotated[str, typer.Argument(help="The tool's name, or server__tool.", autocompletion=complete_tool)]

_OWN = {
    "find_tool": "`mcp-optimizer find`",
    "call_tool": "`mcp-optimizer call TOOL`, with that tool's arguments",
    "list_tools": "`mcp-optimizer tools`",
    "read_result": "`mcp-optimizer read`",
    "run_script": "`mcp-optimizer script try FILE`",
}


def register(app: typer.Typer) -> None:
    for command in (find, call, read, tools):
        app.command()(command)


@with_settings()
def find(
    words: Annotated[
        list[str], typer.Argument(metavar="REQUEST", help="What you want to do, in plain words.", show_default=False)
    ],
    *,
    settings: Settings,
    flags: frozenset[str],
    keywords: Annotated[str, typer.Option(help="Extra search words, such as a product or server name.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum tools to show.")] = None,
    fresh: FreshFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Search all tools, as a model does with find_tool."""
    from mcp_optimizer.app.control.command_requests import FindRequest

    request = FindRequest(query=" ".join(words), keywords=keywords, limit=limit)
    begin = partial(started, shows_servers=True)
    found = Inquiry(settings, flags, fresh).answer(request, begin, shows_servers=True)
    if as_json:
        print_json(found["response"])
    else:
        show_found(console(), found)


def show_found(out: Console, found: dict[str, Any]) -> None:
    """Print a search result, in the form of `found_facts`."""
    from rich.table import Table
    from rich.text import Text

    from mcp_optimizer.gateway.found_tools import likelihood

    if found["only_nearest"]:
        out.print("No tool fits well; these are the nearest.", style="yellow")
    for part in found["poor_parts"]:
        out.print(Text(f"No tool fits well: {in_a_line(part)}; its nearest are shown.", style="yellow"))
    if found["rows"]:
        table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
        for title in ("tool", "server"):
            table.add_column(title, no_wrap=True)
        table.add_column("tokens", justify="right")
        table.add_column("likely", justify="right")
        table.add_column("description", overflow="ellipsis", no_wrap=True, ratio=1)
        for row in found["rows"]:
            texts = (row["name"], row["server"], f"{row['tokens']:,}", likelihood(row["score"]), row["summary"])
            # Text, not markup: a server's words must not colour or rewrite our screen.
            table.add_row(*map(Text, texts))
        out.print(table)
    else:
        out.print("No tool matches. Try other words, or list all tools with `mcp-optimizer tools`.")
    metrics = found["response"]["token_metrics"]
    # A search without results saves nothing.
    if found["rows"]:
        out.print(
            f"[bold]{metrics['returned_tokens']:,}[/] of {metrics['baseline_tokens']:,} tokens of definitions: "
            f"[green]{metrics['tokens_saved']:,} saved ({metrics['savings_percentage']:.1f} %)[/]; "
            f"a model reads {found['response']['reply_tokens']:,}"
        )
    for state in found["not_searched"]:
        told = in_a_line(f"not searched: {state['name']} ({state['status']}) {state['reason']}")
        out.print(Text(told, style="yellow"))


@with_settings()
def call(
    tool: _Tool,
    arguments: Annotated[
        str | None, typer.Argument(metavar="[JSON]", help="Its arguments, as a JSON object.", show_default=False)
    ] = None,
    *,
    settings: Settings,
    flags: frozenset[str],
    args: Annotated[str | None, typer.Option(help="The same: JSON, @FILE, or - for stdin.", metavar="JSON")] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(help="One argument, as often as needed; its type is the schema's.", metavar="KEY=VALUE"),
    ] = None,
    server: Annotated[
        str | None, typer.Option(help="The server, if several have the tool.", autocompletion=complete_server)
    ] = None,
    select: Annotated[str, typer.Option(help="JMESPath: return only this part of a JSON result.")] = "",
    fresh: FreshFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Call a tool. Its cost, and notes on what was cut, go to stderr. Exit code 1 if the tool reports an error.

    With --json, prints the CallToolResult as sent to clients.
    """
    from mcp_optimizer.app.control.command_requests import CallRequest

    if (command := _OWN.get(tool)) is not None and server is None:
        raise ConfigurationError(f"{tool} is one of the gateway's own tools. Here it is the command {command}.")
    plain = pairs(arg or [])
    given = given_arguments(arguments, args, is_object=bool(plain))
    request = CallRequest(tool=tool, arguments=given, plain=plain, server=server, select=select)
    answer(Inquiry(settings, flags, fresh).answer(request), as_json)


@with_settings()
def read(
    result_id: Annotated[str, typer.Argument(help="The result_id from the notice of a cut result.")],
    *,
    settings: Settings,
    flags: frozenset[str],
    offset: Annotated[int, typer.Option(min=0, help="First row or line to return.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum rows or lines.")] = None,
    select: Annotated[str, typer.Option(help="JMESPath over the complete result, instead of a page.")] = "",
    search: Annotated[str, typer.Option(help="Return only rows or lines that contain this text.")] = "",
    fresh: FreshFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Read more of a result that was cut, as a model does with read_result."""
    from mcp_optimizer.app.control.command_requests import ReadRequest

    request = ReadRequest(result_id=result_id, offset=offset, limit=limit, select=select, search=search)
    answer(Inquiry(settings, flags, fresh).answer(request, _without_servers, shows_servers=True), as_json)


@asynccontextmanager
async def _without_servers(settings: Settings, _fresh: bool) -> AsyncIterator[Optimizer]:
    """Reading a kept result needs no server."""
    from mcp_optimizer.app.optimizer import Optimizer

    async with Optimizer([], settings.model_copy(update={"encoder": "none"}), serves=False) as optimizer:
        yield optimizer


def answer(answered: dict[str, Any], as_json: bool) -> None:
    """Print a result, and end with exit code 1 if it is an error."""
    result = answered["result"]
    if as_json:
        print_json(result)
    else:
        _show_result(result, answered["notices"])
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


def _show_result(result: dict[str, Any], notices: list[int]) -> None:
    """A tool's result, for people and scripts: text that is not from the tool goes to stderr.

    A server may send anything in place of a block.
    """
    blocks = result.get("content")
    blocks = blocks if isinstance(blocks, list) else []
    for at, block in enumerate(blocks):
        about = block if isinstance(block, dict) else {}
        if about.get("type") == "text":
            print(printable(str(about.get("text", ""))), file=sys.stderr if at in notices else sys.stdout)
        else:
            size = len(str(about.get("data", "")))
            print(in_a_line(f"[{about.get('type')} {about.get('mimeType', '')} {size:,} characters of base64]"))
    if not blocks and "structuredContent" in result:
        print(printable_json(json.dumps(result["structuredContent"], ensure_ascii=False, indent=2)))


@with_settings()
def tools(
    server_name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SERVER]", help="Only this server's tools.", show_default=False, autocompletion=complete_server
        ),
    ] = None,
    *,
    settings: Settings,
    flags: frozenset[str],
    server: Annotated[str | None, typer.Option(help="The same.", autocompletion=complete_server)] = None,
    fresh: FreshFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """List all tools with their cost in every prompt, largest first."""
    from mcp_optimizer.app.control.command_requests import ToolsRequest

    found = Inquiry(settings, flags, fresh).answer(ToolsRequest(server=server_name or server))
    if as_json:
        rows = [{key: row[key] for key in ("name", "server", "tokens", "sent_tokens") if key in row} for row in found]
        print_json({"tools": rows, "total_tokens": sum(row["tokens"] for row in found)})
    else:
        _show_tools(console(), found)


def _show_tools(out: Console, found: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    table.add_column("tokens", justify="right")
    table.add_column("tool", no_wrap=True)
    table.add_column("server", no_wrap=True)
    table.add_column("description", overflow="ellipsis", no_wrap=True, ratio=1)
    for row in found:
        table.add_row(*map(Text, (f"{row['tokens']:,}", row["name"], row["server"], row["summary"])))
    out.print(table)
    # A gateway of an earlier version says nothing about what is sent.
    tokens, sent = (sum(row.get(key, 0) for row in found) for key in ("tokens", "sent_tokens"))
    out.print(definition_costs(len(found), tokens, sent or tokens), soft_wrap=True)
