"""The clients of the three gateways, of both eras: they call, cut, read, find, write, come and go until the end."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from dataclasses import dataclass
from typing import Any

import httpx2

from benchmarks.clients import HELLO, PlainClient, message_of
from benchmarks.many_gateways.ledger import SETTLED, Ledger, Outcome, Rest, Seen

_LONG = 1.0
"""Seconds that some calls take, so that some are in progress whenever a gateway dies."""
_GIVE_UP = SETTLED + 100.0
"""Seconds after which a rest that cannot be read is lost."""


@dataclass(frozen=True)
class Reply:
    """What a request came back with; an empty result unless it was answered."""

    seen: Seen
    result: dict[str, Any]

    @property
    def is_answered(self) -> bool:
        return self.seen.outcome is Outcome.ANSWERED

    @property
    def text(self) -> str:
        return "\n".join(str(block.get("text", "")) for block in self.result.get("content", ()))


class Clients:
    """All clients of one run, until `ends` is set. Without a pause between requests, they would measure the machine.

    `later` is how many seconds after it was cut a rest is read for the last time.
    """

    def __init__(
        self, http: httpx2.AsyncClient, url: str, ledger: Ledger, ends: asyncio.Event, later: float = 12.0
    ) -> None:
        self._http = http
        self._url = url
        self._ledger = ledger
        self._ends = ends
        self._pauses = (0.0, 0.0, later / 4, later)
        self._numbers = itertools.count(1)
        self._reading: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until the end, and until every rest was read or given up."""
        works = [*[self._call] * 6, *[self._cut] * 4, *[self._change] * 4, *[self._find] * 2, self._come_and_go]
        await asyncio.gather(*(work(number % 2 == 0) for number, work in enumerate(works)))
        await self._come_and_go(is_modern=True, once=True)
        if self._reading:
            await asyncio.wait(self._reading)

    @property
    def _goes_on(self) -> bool:
        return not self._ends.is_set()

    async def _connected(self, is_modern: bool) -> PlainClient:
        """A session that lasts until the end, whichever gateway it began at."""
        client = PlainClient(self._http, self._url, is_modern=is_modern)
        if is_modern:
            await client.connect()
            return client
        while True:
            opening = {"id": 0, "method": "initialize", "params": dict(HELLO)}
            _, response = await self._exchange(client, "initialize", opening)
            if response is not None and "mcp-session-id" in response.headers:
                client.use_session(response)
                await self._exchange(client, "initialized", {"method": "notifications/initialized"})
                return client
            await asyncio.sleep(0.1)

    async def _call(self, is_modern: bool) -> None:
        client = await self._connected(is_modern)
        while self._goes_on:
            name, seconds = f"n{next(self._numbers)}", _LONG if random.random() < 0.1 else 0.0
            reply = await self._tool(client, "call", "take_note", {"id": name, "seconds": seconds}, seconds)
            if reply.is_answered:
                self._ledger.answered.append(name)
                if not reply.text.startswith(f"{name} "):
                    self._ledger.wrong.append(f"{name}: {reply.text[:100]!r}")
            await asyncio.sleep(random.uniform(0.1, 0.5))

    async def _cut(self, is_modern: bool) -> None:
        client = await self._connected(is_modern)
        while self._goes_on:
            mark = f"r{next(self._numbers)}"
            reply = await self._tool(client, "cut result", "list_rows", {"id": mark})
            if reply.is_answered:
                about = reply.result.get("_meta", {}).get("mcp-optimizer/result", {})
                rest = Rest(mark, reply.seen.ended, reply.seen.name)
                self._ledger.rests.append(rest)
                if "resultId" not in about:
                    rest.is_lost = True
                else:
                    task = asyncio.create_task(self._read_all(client, rest, about["resultId"]))
                    self._reading.add(task)
                    task.add_done_callback(self._reading.discard)
            await asyncio.sleep(random.uniform(0.5, 1.5))

    async def _read_all(self, client: PlainClient, rest: Rest, result_id: str) -> None:
        for pause in self._pauses:
            await asyncio.sleep(pause)
            deadline = time.monotonic() + _GIVE_UP
            while not await self._read(client, rest, result_id):
                if time.monotonic() > deadline:
                    rest.is_lost = True
                    return
                await asyncio.sleep(1)
            rest.reads += 1

    async def _read(self, client: PlainClient, rest: Rest, result_id: str) -> bool:
        row = f"{rest.mark} row 299"
        arguments = {"result_id": result_id, "search": row}
        reply = await self._ask(client, "read the rest", "tools/call", {"name": "read_result", "arguments": arguments})
        if reply.is_answered and row not in reply.text:
            self._ledger.wrong.append(f"{row}: {reply.text[:100]!r}")
        if not reply.is_answered:
            rest.told.append(reply.seen.name)
        return reply.is_answered

    async def _change(self, is_modern: bool) -> None:
        """One client has one key, so it knows what it must read, at whichever gateway and from whichever cache."""
        client, key = await self._connected(is_modern), f"k{next(self._numbers)}"
        while self._goes_on:
            value = f"v{next(self._numbers)}"
            written = await self._tool(client, "write", "write_value", {"key": key, "value": value})
            for _ in range(4):
                reply = await self._tool(client, "read", "read_value", {"key": key})
                if written.is_answered and reply.is_answered and reply.text.strip() != value:
                    self._ledger.stale.append(reply.seen)
                await asyncio.sleep(random.uniform(0.1, 0.3))

    async def _find(self, is_modern: bool) -> None:
        client = await self._connected(is_modern)
        while self._goes_on:
            arguments = {"tool_description": "store a value under a key"}
            params = {"name": "find_tool", "arguments": arguments}
            reply = await self._ask(client, "find", "tools/call", params)
            if reply.is_answered and "write_value" not in reply.text:
                self._ledger.wrong.append(f"find_tool: {reply.text[:200]!r}")
            await asyncio.sleep(random.uniform(0.3, 0.9))

    async def _come_and_go(self, is_modern: bool, *, once: bool = False) -> None:
        """New legacy sessions, each of a few requests."""
        del is_modern
        while self._goes_on or once:
            client = await self._connected(is_modern=False)
            for _ in range(3):
                await self._ask(client, "list", "tools/list", {})
                await asyncio.sleep(random.uniform(0.1, 0.5))
            try:
                await client.leave()
            except httpx2.HTTPError:
                # Its gateway died: nobody ends the session, and it costs nothing.
                await asyncio.sleep(0.1)
            if once:
                return

    async def _tool(
        self, client: PlainClient, kind: str, tool: str, parameters: dict[str, Any], own: float = 0.0
    ) -> Reply:
        arguments = {"tool_name": tool, "parameters": parameters}
        return await self._ask(client, kind, "tools/call", {"name": "call_tool", "arguments": arguments}, own)

    async def _ask(
        self, client: PlainClient, kind: str, method: str, params: dict[str, Any], own: float = 0.0
    ) -> Reply:
        message = {"id": next(self._numbers), "method": method, "params": params}
        seen, response = await self._exchange(client, kind, message, own)
        return Reply(seen, message_of(response)["result"] if response is not None else {})

    async def _exchange(
        self, client: PlainClient, kind: str, message: dict[str, Any], own: float = 0.0
    ) -> tuple[Seen, httpx2.Response | None]:
        """Send a request and write down what became of it; the response, if it is what the request asked for."""
        name, response = f"q{next(self._numbers)}", None
        outcome, text = Outcome.BROKEN, ""
        request = client.made(message, **{"X-Request-Id": name})
        began = time.monotonic()
        try:
            response = await self._http.send(request)
            outcome, text = _outcome(response, message.get("id"))
        except (httpx2.HTTPError, AssertionError, LookupError, ValueError) as error:
            text = repr(error)[:300]
        seen = Seen(name, kind, began, time.monotonic(), outcome, text, own)
        self._ledger.seen.append(seen)
        return seen, response if outcome is Outcome.ANSWERED else None


def _outcome(response: httpx2.Response, number: int | None) -> tuple[Outcome, str]:
    if response.status_code == 202:
        return Outcome.ANSWERED, ""
    if response.status_code != 200:
        return Outcome.REFUSED, f"{response.status_code} {response.text[:200]}"
    message = message_of(response)
    if (result := message.get("result")) is None:
        return Outcome.TOLD, str(message.get("error", {}).get("message", ""))[:300]
    if message.get("id") != number:
        return Outcome.TOLD, f"the answer to {message.get('id')} instead of {number}"
    if result.get("isError"):
        return Outcome.TOLD, str(result["content"][0].get("text", ""))[:300]
    return Outcome.ANSWERED, ""
