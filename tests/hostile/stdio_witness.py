"""A witness on stdio, where a gateway has one client only, so the witness itself sends changed lines between calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from tests.hostile.client_messages import CLIENT_MESSAGES
from tests.hostile.gateway import GatewayProcess
from tests.hostile.mutate import Mutator
from tests.hostile.witness import Witness


class StdioWitness(Witness):
    """A witness whose calls have ids that no changed message has."""

    def __init__(self, gateway: GatewayProcess, mutator: Mutator) -> None:
        self.gateway = gateway
        self._mutator = mutator
        self._number = 0
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._reading: asyncio.Task[None] | None = None
        super().__init__(self._request, 0.05)

    async def connect(self) -> None:
        self._reading = asyncio.create_task(self._read())
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "w", "version": "1"}}
        await self._exchange("initialize", about)
        await self._write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    async def send_changed(self) -> str:
        """Send one changed line. Returns its kind."""
        era, message = self._mutator.random.choice(CLIENT_MESSAGES)
        data, kind = self._mutator.message(message)
        await self._write(data)
        return f"{era} {message.get('method', 'answer')} {kind}"

    async def _request(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        message = await self._exchange("tools/call", {"name": tool, "arguments": arguments})
        result: dict[str, Any] = message.get("result") or {"isError": True, **message}
        return result

    async def _exchange(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        number = f"witness-{self._number}"
        if self._reading is None or self._reading.done():
            raise ConnectionError("the gateway closed its stdout")
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode())
        message: dict[str, Any] = await answer
        return message

    async def _write(self, line: bytes) -> None:
        stdin = self.gateway.process.stdin
        assert stdin is not None

        def write() -> None:
            # If the gateway is gone, the code that waits for a response notices.
            with contextlib.suppress(OSError, ValueError):
                stdin.write(line + b"\n")
                stdin.flush()

        await asyncio.to_thread(write)

    async def _read(self) -> None:
        stdout = self.gateway.process.stdout
        assert stdout is not None
        # Ends when the gateway ends, or when the test closes the pipes.
        with contextlib.suppress(ValueError, OSError):
            while line := await asyncio.to_thread(stdout.readline):
                message = json.loads(line)
                waiting = self._waiting.pop(str(message.get("id")), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the gateway closed its stdout"))
