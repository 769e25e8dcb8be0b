"""One caller who sends large requests without a pause leaves everybody else a gateway that answers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from mcp_optimizer.domain.caller import Risk
from tests.conftest import WriteServers, plain_server
from tests.e2e.made_keys import made_key
from tests.e2e.raw_clients import LEGACY, HttpClient, answer_of, message
from tests.e2e.running import gateway_at
from tests.waiting import until

pytestmark = pytest.mark.slow

VALUES = 330_000
"""In less than a megabyte, so that a limit on bytes alone does not notice them."""
CONNECTIONS = 16
CALLS = 25
PATIENCE = 30.0

_FLOOD = """
import http.client, json, sys, threading, urllib.parse
address, headers, path, connections = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4])
body, url = open(path, "rb").read(), urllib.parse.urlsplit(address)
said = threading.Lock()
def flood(number):
    mine = body.replace(b'"id":7', b'"id":%d' % (1_000 + number))
    while True:
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
        connection.request("POST", url.path, mine, headers)
        with said:
            print(connection.getresponse().status, flush=True)
        connection.close()
for number in range(connections):
    threading.Thread(target=flood, args=(number,)).start()
"""


@asynccontextmanager
async def flooding(address: str, headers: dict[str, str], body: Path) -> AsyncIterator[Counter[bytes]]:
    """Somebody who sends this again and again, in a process of its own; what it is answered with."""
    given = (address, json.dumps(headers), str(body), str(CONNECTIONS))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _FLOOD, *given, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    answered: Counter[bytes] = Counter()
    assert process.stdout is not None

    async def count(lines: asyncio.StreamReader) -> None:
        async for line in lines:
            answered[line.strip()] += 1

    counting = asyncio.ensure_future(count(process.stdout))
    try:
        yield answered
    finally:
        process.kill()
        await process.wait()
        await counting


@pytest.mark.parametrize("tool", ["echo", "no_such_tool"])
async def test_a_flood_of_large_calls_with_one_key_leaves_another_key_its_calls(
    tool: str, write_servers: WriteServers, tmp_path: Path
) -> None:
    config = write_servers({"loud": plain_server("loud"), "quiet": plain_server("quiet")})
    loud, quiet = await made_key("loud", Risk.DESTRUCTIVE), await made_key("quiet", Risk.DESTRUCTIVE)
    async with (
        gateway_at(config, "--require-auth") as address,
        httpx2.AsyncClient(timeout=60, headers={"Authorization": f"Bearer {quiet}"}) as http,
        httpx2.AsyncClient(timeout=60, headers={"Authorization": f"Bearer {loud}"}) as flood,
    ):
        mine, theirs = HttpClient(address, LEGACY, http), HttpClient(address, LEGACY, flood)
        await mine.open()
        await theirs.open()

        async def call(number: int) -> httpx2.Response:
            asked = {"tool_name": "echo", "server_name": "quiet", "parameters": {"rows": [number]}}
            return await mine.post(message("tools/call", {"name": "call_tool", "arguments": asked}, number, LEGACY))

        async def is_there() -> bool:
            return "isError" not in answer_of(await call(1))["result"]

        await until(is_there)
        asked = {"tool_name": tool, "server_name": "loud", "parameters": {"rows": [1] * VALUES}}
        body = tmp_path / "body.json"
        request = message("tools/call", {"name": "call_tool", "arguments": asked}, 7, LEGACY)
        body.write_text(json.dumps(request, separators=(",", ":")))
        assert body.stat().st_size < 1_000_000
        async with flooding(address, {**theirs.headers, "Authorization": f"Bearer {loud}"}, body) as answered:
            await until(lambda: answered, timeout=60)
            for number in range(2, CALLS):
                response = await asyncio.wait_for(call(number), PATIENCE)
                assert response.status_code == 200, response.text
                assert "isError" not in answer_of(response)["result"]
            await until(lambda: sum(answered.values()) > CONNECTIONS, timeout=60)
        assert answered.keys() == {b"200"}, answered
