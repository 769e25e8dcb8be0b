"""The gateway's own stdin and stdout as message streams, read and written by the event loop itself.

The SDK reads and writes them in threads, and each message would wait for three of them. Only where both are
pipes or sockets, which is how clients start a server; anything else is the SDK's.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from mcp_optimizer.limits import DEFAULT_LIMITS
from mcp_optimizer.raw_json import Placeholders, has_large
from mcp_optimizer.upstream.lines import Overlong, lines

_CHUNK = 256 * 1024

Incoming = MemoryObjectSendStream[SessionMessage | Exception]


def message_streams() -> AbstractAsyncContextManager[tuple[Any, Any]]:
    """What arrives on stdin, and what is to go to stdout."""
    if sys.platform == "win32" or not (_is_pipe(0) and _is_pipe(1)):
        return stdio_server()
    return _piped()


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@asynccontextmanager
async def _piped() -> AsyncIterator[tuple[Any, Any]]:
    loop = asyncio.get_running_loop()
    # Duplicates: whoever prints by mistake must not print into the protocol.
    stdin, stdout = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)
    reader = asyncio.StreamReader(_CHUNK)
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stdin)
    writing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, stdout)
    writer = asyncio.StreamWriter(writing, protocol, None, loop)
    incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        # Whatever is to be written is written to the end; nobody waits for what is still to be read.
        async with anyio.create_task_group() as writes, write_stream, anyio.create_task_group() as reads:
            writes.start_soon(_write, writer, outgoing)
            reads.start_soon(_read, reader, incoming)
            yield read_stream, write_stream
            reads.cancel_scope.cancel()
    finally:
        reading.close()
        writing.close()


async def _read(reader: asyncio.StreamReader, incoming: Incoming) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        while chunk := await reader.read(_CHUNK):
            yield chunk

    async with incoming:
        async for line in lines(chunks(), DEFAULT_LIMITS.request_bytes):
            if isinstance(line, Overlong) or not line.strip():
                continue
            try:
                message: SessionMessage | Exception = SessionMessage(
                    jsonrpc_message_adapter.validate_json(line, by_name=False)
                )
            except ValidationError as error:
                message = error
            try:
                await incoming.send(message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


async def _write(writer: asyncio.StreamWriter, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with outgoing:
        async for item in outgoing:
            message, large = item.message, Placeholders()
            if isinstance(message, JSONRPCResponse) and has_large(message.result):
                message = message.model_copy(update={"result": large.take(message.result)})
            text = message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
            try:
                for piece in large.filled(text.encode("utf-8", "surrogatepass")):
                    writer.write(piece)
                    await writer.drain()
                    if large:
                        # A client that reads quickly would never make us wait, nor let others run.
                        await asyncio.sleep(0)
            except OSError:
                # The client no longer reads.
                return
