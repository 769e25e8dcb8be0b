"""Writes the page that a player gets: instructions, tool definitions, rules and tasks.

python -m benchmarks.agent_trial.prompt --url URL [--act COMMAND] [--last FILE] [--tasks thirty|twelve|all]
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client

TASKS = {
    "thirty": [Path(__file__).with_name("tasks.md")],
    "twelve": [Path(__file__).with_name("more_tasks.md")],
    "all": [Path(__file__).with_name("tasks.md"), Path(__file__).with_name("more_tasks.md")],
}
"""Which tasks a player gets: the files that they are in."""


PAGE = """# You are a model with tools

You do the tasks below, in order, in one conversation, with the tools of one MCP endpoint. Your only way to act is

    {act} TOOL 'JSON arguments'

It sends one call and prints exactly what a model reads of it. For arguments with apostrophes: `{act} TOOL - <<'E'`,
the JSON, and `E` on a line of its own. When a reply begins with QUESTION, the server asks something in the middle of
the call; continue with `{act} answer '{{"action":"accept","content":{{...}}}}'`.

If your terminal shortens a long reply, {last} holds the last reply in full: read it there, in pieces if needed. That is
not a request, but search nothing in it with programs: a model reads.

Rules:

- Use nothing but this command: no file, no source code, no other program, no web. Look at nothing else.
- One call per command. Every command is one model request, so never combine several calls in one shell command, and
  make no call that a model would not make. You may not pipe or shorten replies: a model reads all of a reply.
- Work as you would for a user who pays for every token: no call without a need, no task left out.
- Tool names are those of the definitions below, or whatever replies tell you to call.

At the end, write your answers, one or two sentences for each task. Then, task by task: how many searches, calls and
errors; at which place of a search's reply the right tool stood, or whether it was missing; calls you had to repeat, and
why; and every moment where a reply was confusing, too long, or lacked something.

## What your client shows you

{definitions}

{tasks}"""


async def listed(url: str) -> tuple[str, list[types.Tool]]:
    """The endpoint's instructions and all its tools, page by page."""
    async with Client(url, mode="legacy") as client:
        tools: list[types.Tool] = []
        cursor = None
        while True:
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return client.instructions or "", tools


def definition(tool: types.Tool) -> str:
    """A tool as clients pass it to a model: name, description and input schema."""
    shown: dict[str, Any] = {"name": tool.name, "description": tool.description or "", "inputSchema": tool.input_schema}
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def definitions(instructions: str, tools: list[types.Tool]) -> str:
    """What every request of the conversation begins with, and what `score` counts."""
    return "\n".join([instructions, *(definition(tool) for tool in tools)]).strip()


def tasks(which: str) -> str:
    """The tasks under one heading."""
    first, *more = (path.read_text(encoding="utf-8") for path in TASKS[which])
    return first + "".join(text.split("\n", 2)[2] for text in more)


def page(shown: str, act: Path, last: Path, which: str) -> str:
    return PAGE.format(act=act, last=last, definitions=shown, tasks=tasks(which))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--act", type=Path, default=Path("act.sh"), help="the player's command")
    parser.add_argument("--last", type=Path, default=Path("last.txt"), help="the file with the last reply")
    parser.add_argument("--tasks", choices=TASKS, default="thirty", help="which tasks")
    options = parser.parse_args()
    print(page(definitions(*asyncio.run(listed(options.url))), options.act, options.last, options.tasks))


if __name__ == "__main__":
    main()
