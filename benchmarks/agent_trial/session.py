"""Keeps one MCP session open for a whole conversation, and answers `client` on a unix socket.

Started by `client start`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client, MCPError

ANSWER = "answer"
"""What a model calls to answer a question; not a tool of the server."""

LAST = "last.txt"
"""File beside the log that holds the last reply in full, for terminals that shorten long output."""

LIMIT = 60.0
"""Seconds after which a client gives a call up."""


CALLS = "mcp-optimizer/calls"
"""Where the gateway counts the outcomes of a list of calls, in a result's `_meta`."""


@dataclass(frozen=True)
class Reply:
    """What a model reads, and how many calls of a list failed or were not made."""

    text: str
    failed: int = 0


def reply_of(result: types.CallToolResult) -> Reply:
    text = "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))
    outcomes = (result.meta or {}).get(CALLS, {}).get("outcomes", {})
    failed = sum(count for outcome, count in outcomes.items() if outcome != "done")
    return Reply(f"ERROR: {text}" if result.is_error else text, failed)


class Conversation:
    """One conversation: a call at a time, which a question of the server may interrupt."""

    def __init__(self, log: Path, limit: float = LIMIT) -> None:
        self._log = log
        self._limit = limit
        self._call: asyncio.Task[Reply] | None = None
        self._questions: asyncio.Queue[types.ElicitRequestParams] = asyncio.Queue()
        self._answer: asyncio.Future[types.ElicitResult] | None = None

    async def asked(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        """The callback for questions: wait until the model answers."""
        del context
        self._answer = asyncio.get_running_loop().create_future()
        self._questions.put_nowait(params)
        return await self._answer

    async def exchange(self, client: Client, tool: str, arguments: dict[str, Any]) -> str:
        """Send what the model sent, and return and record what it reads."""
        if tool == ANSWER:
            reply = await self._answered(arguments)
        elif self._answer is not None:
            reply = Reply("ERROR: A question is open. Answer it first.")
        else:
            self._call = asyncio.create_task(called(client.call_tool(tool, arguments)))
            reply = await self._next()
        self._record(tool, arguments, reply)
        return reply.text

    async def _answered(self, arguments: dict[str, Any]) -> Reply:
        if self._answer is None:
            return Reply("ERROR: No question is open.")
        try:
            answer = types.ElicitResult.model_validate(arguments)
        except ValueError as error:
            return Reply(f"ERROR: {error}")
        self._answer.set_result(answer)
        self._answer = None
        return await self._next()

    async def _next(self) -> Reply:
        """The call's result, or the question that comes before it."""
        assert self._call is not None
        question = asyncio.create_task(self._questions.get())
        done, _ = await asyncio.wait({self._call, question}, timeout=self._limit, return_when=asyncio.FIRST_COMPLETED)
        if question in done:
            return Reply(question_text(question.result()))
        question.cancel()
        if self._call in done:
            return self._call.result()
        self._call.cancel()
        return Reply(f"ERROR: The call took longer than {self._limit:g} seconds.")

    def _record(self, tool: str, arguments: dict[str, Any], reply: Reply) -> None:
        row: dict[str, Any] = {"at": time.time(), "tool": tool, "arguments": arguments, "reply": reply.text}
        if reply.failed:
            row["failed"] = reply.failed
        with self._log.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(row)}\n")
        self._log.with_name(LAST).write_text(reply.text, encoding="utf-8")


async def called(call: Awaitable[types.CallToolResult]) -> Reply:
    try:
        return reply_of(await call)
    except MCPError as error:
        return Reply(f"ERROR: {error}")


def question_text(params: types.ElicitRequestParams) -> str:
    schema = getattr(params, "requested_schema", {})
    wanted = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    example = '{"action":"accept","content":{...}}'
    return f"QUESTION: {params.message}\n{wanted}\nAnswer with: answer '{example}' (or action decline or cancel)"


async def serve(url: str, log: Path, socket: Path, name: str) -> None:
    """Answer on the socket until the process is stopped."""
    conversation = Conversation(log)
    info = types.Implementation(name=name, version="1")
    # The handshake of today's clients: its session is how a gateway knows a conversation.
    async with Client(url, mode="legacy", client_info=info, elicitation_callback=conversation.asked) as client:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = json.loads(await reader.read())
            reply = await conversation.exchange(client, request["tool"], request["arguments"])
            writer.write(reply.encode())
            writer.close()

        async with await asyncio.start_unix_server(answer, socket) as server:
            await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--name", default="agent-trial")
    options = parser.parse_args()
    asyncio.run(serve(options.url, options.log, options.socket, options.name))


if __name__ == "__main__":
    main()
