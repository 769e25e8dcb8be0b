"""The demo's kanban server, which also writes down what was changed.

Its boards are in memory, so `check` reads here what a player did, however it was called: alone, in a list, by a script.
Started by the gateway of a trial. Its only argument is the file to write to.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcp_optimizer_demo.kanban.declaration import KanbanTool
from mcp_optimizer_demo.kanban.seed import seeded_installation
from mcp_optimizer_demo.kanban.server import INSTRUCTIONS, KANBAN_TOOLS
from mcp_optimizer_demo.kanban.state import Installation
from mcp_optimizer_demo.toolserver import Answer, Arguments, build_server, serve_stdio


def noted(tool: KanbanTool, file: Path) -> KanbanTool:
    """The tool, which writes down each call that it carried out."""

    def handle(installation: Installation, arguments: Arguments) -> Answer:
        answer = tool.handler(installation, arguments)
        line: dict[str, Any] = {"tool": tool.name, "arguments": dict(arguments), "answer": answer}
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"{json.dumps(line)}\n")
        return answer

    return tool if tool.hints.read_only else replace(tool, handler=handle)


if __name__ == "__main__":
    tools = [noted(tool, Path(sys.argv[1])) for tool in KANBAN_TOOLS]
    serve_stdio(build_server("kanban", "Kanban", INSTRUCTIONS, tools, seeded_installation()))
