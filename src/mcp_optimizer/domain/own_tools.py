"""The gateway's own tools, as every model sees them in every prompt, and the modes of scripts.

Their cost is part of the product: a test keeps them under 400 tokens together, and under 600 with scripts, even with a
separate tool for read-only calls. Pure data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mcp_optimizer.domain.caller import Risk
from mcp_optimizer.domain.client_habits import UNKNOWN, ClientHabits, LoadMarks

SCRIPT_META_KEY = "mcp-optimizer/script"
"""The `_meta` key for a script's account: its calls, and the tokens that stayed out of the context."""


class ScriptMode(StrEnum):
    """Which tools scripts may call."""

    OFF = "off"
    """No scripts."""
    READ = "read"
    """Tools that only read."""
    WRITE = "write"
    """Every tool, if the request names those that change something."""

    @property
    def most(self) -> Risk:
        """The highest risk class of tools that a script may call."""
        return Risk.DESTRUCTIVE if self is ScriptMode.WRITE else Risk.READ


SCRIPTS_OFF = (
    'Scripts are off. Enable them with scripts = "read" in the settings file (or "write", for scripts that change '
    'something), or with --scripts read. They need the extra: pip install "mcp-optimizer-gateway[scripts]".'
)


NATIVE_INSTRUCTIONS = "What was cut of a result, read_result reads."

INSTRUCTIONS = "Gives access to many tools of many servers: search with find_tool, then run with call_tool."

LIST_TTL_MS = 3_600_000
"""How long a client may cache the list of our tools if it cannot change while the gateway runs."""

CHANGING_TTL_MS = 60_000
"""The same for a list that changes when a server starts or stops."""


@dataclass(frozen=True)
class Signpost:
    """One line about the servers behind the gateway: `kanban (boards, cards), sql (tables)`; "" if unknown."""

    servers: str = ""
    may_change: bool = True
    """Whether this line may appear or change while the gateway runs."""

    @property
    def instructions(self) -> str:
        """The gateway's own instructions. Some clients show only their first line."""
        if not self.servers:
            return INSTRUCTIONS
        return f"Tools of {self.servers}: search with find_tool, then run with call_tool."

    @property
    def native_instructions(self) -> str:
        """The instructions if all tools are listed."""
        return f"Tools of {self.servers or 'many servers'}. {NATIVE_INSTRUCTIONS}"

    @property
    def ttl_ms(self) -> int:
        return CHANGING_TTL_MS if self.may_change else LIST_TTL_MS

    @property
    def scope(self) -> str:
        """The cache scope of a list with this line: the servers behind the gateway depend on the caller."""
        return "private" if self.may_change else "public"

    def on(self, tools: Sequence[dict[str, Any]], habits: ClientHabits = UNKNOWN) -> tuple[dict[str, Any], ...]:
        """Our own tools for this client; find_tool says what it searches."""
        named = tuple(self._named(tool) for tool in tools)
        if (marks := habits.load_marks) is None:
            return named
        return tuple({**tool, "_meta": self._loaded(tool["name"], marks)} for tool in named)

    def _named(self, tool: dict[str, Any]) -> dict[str, Any]:
        if not self.servers or tool["name"] != "find_tool":
            return tool
        return {**tool, "description": f"{tool['description']} Servers: {self.servers}."}

    def _loaded(self, tool: str, marks: LoadMarks) -> dict[str, Any]:
        """Marks our tools as always loaded: otherwise a client would have to search for the search."""
        hint = {marks.hint: self.servers} if self.servers and tool == "find_tool" else {}
        return {marks.always: True, **hint}


NO_SIGNPOST = Signpost(may_change=False)
"""Used if callers are not shown what is behind the gateway."""


_SOUGHT: dict[str, Any] = {
    "tool_description": {"type": "string", "description": "In English, e.g. 'list open orders; send an email'"},
    "tool_keywords": {"type": "string"},
    "limit": {"type": "integer"},
}

FIND_TOOL: dict[str, Any] = {
    "name": "find_tool",
    "description": (
        "Search all tools by what you want to do, before saying it cannot be done. Separate several actions by "
        "';'. Shows name(parameters) [server] (? is optional); a search for a name shows all of that tool."
    ),
    "inputSchema": {
        "type": "object",
        "properties": _SOUGHT,
        "required": ["tool_description"],
    },
    "annotations": {"readOnlyHint": True},
}

FIND_TOOL_FOR_SCRIPTS: dict[str, Any] = {
    **FIND_TOOL,
    "inputSchema": {
        "type": "object",
        "properties": {**_SOUGHT, "detail": {"type": "string", "description": "'python' for run_script"}},
        "required": ["tool_description"],
    },
}
"""find_tool, if scripts are available."""

_ARGUMENTS: dict[str, Any] = {"type": ["object", "array"], "items": {"type": "object"}}
_ARGUMENTS_OF_ONE: dict[str, Any] = {"type": "object"}
"""For clients that cannot read a list of types; the description alone says that there may be a list."""


def _call_tool(arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "call_tool",
        "description": "Run a tool that find_tool showed or named.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool_name": {"type": "string"},
                "parameters": {**arguments, "description": "Arguments; a list of them is many calls"},
                "server_name": {"type": "string"},
                "select": {
                    "type": "string",
                    "description": "JMESPath: only this of a JSON result: items[].name, count_by(items, &owner)",
                },
            },
            "required": ["tool_name", "parameters"],
        },
    }


def _call_tool_read(arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        **_call_tool(arguments),
        "name": "call_tool_read",
        "description": "Run a tool that only reads (get, list, search ...).",
        "annotations": {"readOnlyHint": True},
    }


def _call_any_tool(arguments: dict[str, Any]) -> dict[str, Any]:
    """Used next to call_tool_read, which explains the arguments. It accepts read-only tools too; names from find_tool
    need no server, and a tool's answer about a change is short.
    """
    return {
        "name": "call_tool",
        "description": "Run any other tool, as call_tool_read does.",
        "inputSchema": {
            "type": "object",
            "properties": {"tool_name": {"type": "string"}, "parameters": arguments},
            "required": ["tool_name", "parameters"],
        },
    }


LIST_TOOLS: dict[str, Any] = {
    "name": "list_tools",
    "description": "All tools by name, in pages. Prefer find_tool.",
    "inputSchema": {
        "type": "object",
        "properties": {"server": {"type": "string"}, "offset": {"type": "integer"}},
    },
    "annotations": {"readOnlyHint": True},
}

READ_RESULT: dict[str, Any] = {
    "name": "read_result",
    "description": "Read more of a cut result.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "result_id": {"type": "string"},
            "offset": {"type": "integer"},
            "limit": {"type": "integer"},
            "select": {"type": "string", "description": "JMESPath over all of it"},
            "search": {"type": "string", "description": "Only rows with this text"},
        },
        "required": ["result_id"],
    },
    "annotations": {"readOnlyHint": True},
}

RUN_SCRIPT: dict[str, Any] = {
    "name": "run_script",
    "description": (
        "Run Python that calls many tools, filters, joins or counts; only its prints and last expression come back. "
        "server.tool(arg=...) or call(name, arg=...) returns parsed JSON or text; parallel(name, [{...}, ...]) calls "
        "many at once. Failed calls raise ToolError. No files or network. find_tool with detail='python' shows how: x? "
        "is optional, -> the result (key? may be None or missing)."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "script": {"type": "string"},
            "may_change": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Changing tools it may call",
            },
        },
        "required": ["script"],
    },
}

RUN_READ_SCRIPT: dict[str, Any] = {
    **RUN_SCRIPT,
    "inputSchema": {"type": "object", "properties": {"script": {"type": "string"}}, "required": ["script"]},
    "annotations": {"readOnlyHint": True},
}
"""run_script, if scripts may only read."""


def _tools(arguments: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return FIND_TOOL, _call_tool(arguments), LIST_TOOLS, READ_RESULT


def _split_tools(arguments: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return FIND_TOOL, _call_tool_read(arguments), _call_any_tool(arguments), LIST_TOOLS, READ_RESULT


OWN_TOOLS = _tools(_ARGUMENTS)
SPLIT_TOOLS = _split_tools(_ARGUMENTS)
"""Read-only calls have a tool of their own, so that a client can approve them once and ask about the others."""

OWN_NAMES = (*(tool["name"] for tool in SPLIT_TOOLS), RUN_SCRIPT["name"])
"""Names that no server's tool gets, whatever the settings: otherwise a setting would rename tools."""

CALLING = frozenset({"call_tool", "call_tool_read"})
"""Our tools that call other tools."""


def splits_calls(habits: ClientHabits, wanted: bool | None) -> bool:
    """Whether read-only calls get their own tool: by the settings, or by the client's habits if `wanted` is None."""
    return habits.asks_by_tool if wanted is None else wanted


def tools_for(
    habits: ClientHabits, split_calls: bool | None, *, scripts: ScriptMode = ScriptMode.OFF, native: bool = False
) -> tuple[dict[str, Any], ...]:
    """Our tools as a client with these habits sees them, early or later. `split_calls`: what the settings say."""
    return own_tools(
        split_calls=splits_calls(habits, split_calls),
        scripts=scripts,
        native=native,
        reads_lists=habits.reads_references,
    )


def own_tools(
    *, split_calls: bool, scripts: ScriptMode = ScriptMode.OFF, native: bool = False, reads_lists: bool = True
) -> tuple[dict[str, Any], ...]:
    """Our tools that clients see. `native`: next to all other tools, which the client searches itself. `reads_lists`:
    whether the client can read a list of types; without it, the description alone says that `parameters` can be a list.
    """
    tools: tuple[dict[str, Any], ...]
    if native:
        tools = (READ_RESULT,)
    elif reads_lists:
        tools = SPLIT_TOOLS if split_calls else OWN_TOOLS
    else:
        tools = (_split_tools if split_calls else _tools)(_ARGUMENTS_OF_ONE)
    if scripts is ScriptMode.OFF:
        return tools
    of_scripts = RUN_SCRIPT if scripts is ScriptMode.WRITE else RUN_READ_SCRIPT
    return (*tools, of_scripts) if native else (FIND_TOOL_FOR_SCRIPTS, *tools[1:], of_scripts)
