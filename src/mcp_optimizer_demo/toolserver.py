"""Serves a fixed set of declared tools over MCP: lists them, checks arguments, runs handlers.

The demo servers call this with their tools and their state; it knows nothing of either.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
import jsonschema_rs
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from mcp_optimizer_demo.json_schema import Schema

StateT = TypeVar("StateT")
Arguments = Mapping[str, Any]

LISTED_ERRORS = 5
TOOLS_FRESH_MS = 3_600_000


class ToolFault(Exception):
    """A tool could not do what it was asked; the message says what was wrong and what to do."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An answer that is a picture: the image, and the facts about it as JSON."""

    data_base64: str
    mime_type: str
    facts: dict[str, Any]


Answer = dict[str, Any] | Picture


@dataclass(frozen=True, slots=True)
class Hints:
    """What a tool does to the world, as the protocol's tool annotations name it."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


READS = Hints(read_only=True, idempotent=True)
ADDS = Hints()
SETS = Hints(idempotent=True)
DESTROYS = Hints(destructive=True, idempotent=True)


@dataclass(frozen=True, slots=True)
class DemoTool(Generic[StateT]):
    """One tool: how it is described to a client, and the function that does the work."""

    name: str
    title: str
    description: str
    input_schema: Schema
    handler: Callable[[StateT, Arguments], Answer] = field(repr=False)
    hints: Hints = READS
    output_schema: Schema | None = None

    def definition(self) -> types.Tool:
        return types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=self.input_schema,
            output_schema=self.output_schema,
            annotations=types.ToolAnnotations(
                read_only_hint=self.hints.read_only,
                destructive_hint=self.hints.destructive,
                idempotent_hint=self.hints.idempotent,
                open_world_hint=self.hints.open_world,
            ),
        )

    def call(self, state: StateT, arguments: Arguments) -> types.CallToolResult:
        """Run the tool; what it could not do comes back as an error result, never as an exception."""
        try:
            check_arguments(self.name, self.input_schema, arguments)
            answer = self.handler(state, arguments)
        except ToolFault as fault:
            return types.CallToolResult(content=[types.TextContent(text=str(fault))], is_error=True)
        if isinstance(answer, Picture):
            image = types.ImageContent(data=answer.data_base64, mime_type=answer.mime_type)
            return types.CallToolResult(content=[image, types.TextContent(text=compact(answer.facts))])
        return types.CallToolResult(
            content=[types.TextContent(text=compact(answer))],
            structured_content=answer if self.output_schema else None,
        )


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def check_arguments(tool: str, schema: Schema, arguments: Arguments) -> None:
    """Raise a ToolFault that names every argument (up to a few) the schema refuses."""
    validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    complaints = []
    for error in validator.iter_errors(dict(arguments)):
        where = ".".join(str(step) for step in error.instance_path)
        complaints.append(f"{where}: {error.message}" if where else error.message)
    if complaints:
        more = f" (and {len(complaints) - LISTED_ERRORS} more)" if len(complaints) > LISTED_ERRORS else ""
        raise ToolFault(
            f"Invalid arguments for {tool}: {'; '.join(complaints[:LISTED_ERRORS])}{more}. "
            "Correct them as the tool's input schema says and call again."
        )


def build_server(
    name: str,
    title: str,
    instructions: str,
    tools: Sequence[DemoTool[StateT]],
    state: StateT,
) -> Server[dict[str, Any]]:
    """A server that offers the tools, working on the given state."""
    by_name = {tool.name: tool for tool in tools}
    definitions = [tool.definition() for tool in tools]

    async def list_tools(_context: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=definitions, ttl_ms=TOOLS_FRESH_MS, cache_scope="public")

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = by_name.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}. Call tools/list for the names.")
        return tool.call(state, params.arguments or {})

    return Server(
        name,
        version="1.0.0",
        title=title,
        instructions=instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve_stdio(server: Server[dict[str, Any]]) -> None:
    """Serve over stdin and stdout until stdin closes."""

    async def serve() -> None:
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())

    anyio.run(serve)
