"""How a kanban tool is declared: a decorated function becomes a tool value with its schemas.

Every tool takes the optional `instance` parameter; the decorator adds it and hands the function the
instance it names. Tool modules use this; it knows nothing of any single tool.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcp_optimizer_demo.json_schema import Schema, arguments, result, string
from mcp_optimizer_demo.kanban.state import Installation, Kanban
from mcp_optimizer_demo.toolserver import READS, Arguments, DemoTool, Hints

KanbanTool = DemoTool[Installation]
Handler = Callable[[Kanban, Arguments], dict[str, Any]]

INSTANCE = string(
    "Name of the kanban instance to work with, as returned by list_instances. Optional: when omitted, the "
    "call goes to the default instance of this server.",
    minLength=1,
    maxLength=64,
)


def kanban_tool(
    title: str,
    description: str,
    parameters: Mapping[str, Schema],
    *,
    required: Sequence[str] = (),
    hints: Hints = READS,
    output: Mapping[str, Schema] | None = None,
    output_required: Sequence[str] | None = None,
) -> Callable[[Handler], KanbanTool]:
    """Turn a function into the tool of the same name."""

    def declare(function: Handler) -> KanbanTool:
        def handle(installation: Installation, call_arguments: Arguments) -> dict[str, Any]:
            kanban = installation.instance(call_arguments)
            with kanban.all_or_nothing():
                return function(kanban, call_arguments)

        return DemoTool(
            name=function.__name__,
            title=title,
            description=description,
            input_schema=arguments({**parameters, "instance": INSTANCE}, required),
            handler=handle,
            hints=hints,
            output_schema=None if output is None else result(output, output_required),
        )

    return declare
