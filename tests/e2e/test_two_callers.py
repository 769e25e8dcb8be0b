"""Two callers whose clients have the same name share nothing, however their requests interleave."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_optimizer.domain.caller import Risk
from tests.e2e.made_keys import made_key
from tests.e2e.raw_clients import ACCEPT, MODERN, message
from tests.e2e.running import WARM
from tests.e2e.test_relay import Person, text
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

VAULT = Path(__file__).parents[1] / "servers" / "vault.py"
OPTIONS = ("--encoder", "none", "--cache-seconds", "600", "--max-tokens", "300", "--preview-tokens", "200")
ACTS = ("read the same", "read", "keep", "read a result", "ask", "answer", "log", "subscribe", "touch", "find")
WHO = st.sampled_from(["ada legacy", "ada auto", "bob legacy", "bob auto"])


class Gateway:
    """A gateway over HTTP that takes only keys, and one key for each caller."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "catalog.db"
        entries = {name: {"command": sys.executable, "args": [str(VAULT), name]} for name in ("vault", "attic")}
        config = folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": entries}))
        os.environ["MCP_OPTIMIZER_DATABASE"] = str(self.database)
        try:
            made = {"ada": made_key("ada", Risk.DESTRUCTIVE), "bob": made_key("bob", Risk.DESTRUCTIVE, ("vault",))}
            self.keys = {name: asyncio.run(making) for name, making in made.items()}
            command = [*WARM, "serve", "--config", str(config), "--http", "127.0.0.1:0", "--require-auth", *OPTIONS]
            self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
        finally:
            del os.environ["MCP_OPTIMIZER_DATABASE"]
        assert self.process.stderr is not None
        found = next(found for line in self.process.stderr if (found := re.search(r"http://\S+/mcp", line)))
        self.address = found.group()
        self.number = 0

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=30)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    made = Gateway(tmp_path_factory.mktemp("two"))
    yield made
    made.end()


class Shared:
    """What the callers learn of each other's names for things, as a thief would."""

    def __init__(self, marks: str) -> None:
        self.marks = marks
        self.result_ids: list[str] = []
        self.states: list[tuple[str, str | None, str]] = []
        self.owner_of_call: dict[str, str] = {}


class Twin(Person):
    """One of the clients, all of which call themselves the same; notes everything that reaches it."""

    def __init__(self, who: str, shared: Shared) -> None:
        super().__init__()
        self.caller, self.era = who.split()
        self.who = who
        self.client: Client
        self.shared = shared
        self.seen: list[str] = []

    def using(self, client: Client) -> Twin:
        """The client comes after its callbacks, which are ours."""
        self.client = client
        return self

    async def sees_all(self) -> bool:
        """Whether both servers are up."""
        return bool(json.loads(text(await self.client.call_tool("list_tools", {})))["total"] == 14)

    def mark(self, number: int) -> str:
        return f"{self.caller}-{self.shared.marks}-{number}-secret"

    async def elicit(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.seen.append(params.message)
        return types.ElicitResult(action="accept", content={})

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.seen.append(str(params.data))

    async def notice(self, message: Any) -> None:
        self.seen.append(str(message))

    async def call(self, tool: str, **arguments: Any) -> str:
        params = {"tool_name": tool, "parameters": arguments}
        result = await self.client.call_tool("call_tool", params)
        self.seen.append(result.model_dump_json())
        return text(result)

    async def act(self, act: str, number: int) -> None:
        mark, shared = self.mark(number), self.shared
        if act == "read the same":
            said = await self.call("read_vault", text=f"the same {shared.marks}")
            call = re.search(r"#\d+-\d+", said)
            assert call is not None, said
            assert shared.owner_of_call.setdefault(call.group(), self.caller) == self.caller
        elif act == "read":
            assert mark in await self.call("read_vault", text=mark)
        elif act == "keep":
            await self.call("read_vault_book", text=mark, rows=100)
            shared.result_ids += re.findall(r'"resultId":"([^"]+)"', self.seen[-1])
        elif act == "read a result" and shared.result_ids:
            wanted = {"result_id": shared.result_ids[number % len(shared.result_ids)]}
            self.seen.append((await self.client.call_tool("read_result", wanted)).model_dump_json())
        elif act == "ask" and self.era == "auto":
            await self.ask_and_leave(mark)
        elif act == "ask":
            await self.call("ask_vault", text=mark)
        elif act == "answer" and shared.states and self.era == "auto":
            await self.answer(*shared.states[number % len(shared.states)])
        elif act == "log":
            await self.call("log_vault", text=mark)
        elif act == "subscribe" and self.era == "legacy":
            await self.client.session.subscribe_resource("vault://note")
        elif act == "touch":
            await self.call("touch_vault", text=mark)
        elif act == "find":
            found = await self.client.call_tool("find_tool", {"tool_description": f"read the note {mark}"})
            self.seen.append(found.model_dump_json())

    async def ask_and_leave(self, mark: str) -> None:
        """A question that the client leaves open, for anybody to answer who knows its state."""
        params = {"tool_name": "ask_vault", "parameters": {"text": mark}}
        result = await self.client.session.call_tool("call_tool", params, allow_input_required=True)
        self.seen.append(result.model_dump_json())
        # Where a server asks during two calls of one client, nobody can say which it means, and none is asked.
        if isinstance(result, types.InputRequiredResult):
            self.shared.states.append((self.caller, result.request_state, mark))

    async def answer(self, owner: str, state: str | None, mark: str) -> None:
        given: Any = {"q1": types.ElicitResult(action="accept", content={})}
        params = {"tool_name": "ask_vault", "parameters": {"text": mark}}
        result = await self.client.session.call_tool(
            "call_tool", params, input_responses=given, request_state=state, allow_input_required=True
        )
        if owner == self.caller:
            self.seen.append(result.model_dump_json())
        else:
            assert isinstance(result, types.CallToolResult)
            assert result.is_error, "a stranger answered a question"


@asynccontextmanager
async def twins(gateway: Gateway, shared: Shared) -> AsyncIterator[dict[str, Twin]]:
    async with AsyncExitStack() as stack:
        made: dict[str, Twin] = {}
        for who in ("ada legacy", "ada auto", "bob legacy", "bob auto"):
            headers = {"Authorization": f"Bearer {gateway.keys[who.split()[0]]}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=60))
            transport = streamable_http_client(gateway.address, http_client=http)
            twin = Twin(who, shared)
            info = types.Implementation(name="twin", version="1")
            client = Client(transport, mode=who.split()[1], client_info=info, **twin.callbacks())
            made[who] = twin = twin.using(await stack.enter_async_context(client))
            if twin.era == "legacy":
                await twin.client.session.set_logging_level("debug")
        yield made


async def play(gateway: Gateway, acts: list[tuple[str, str]], rounds: list[int]) -> dict[str, Twin]:
    """Do the acts, several at a time as `rounds` says, and let what was sent arrive."""
    gateway.number += 1
    async with twins(gateway, Shared(f"r{gateway.number}")) as made:
        await until(made["ada auto"].sees_all, timeout=60)
        left = list(enumerate(acts))
        for size in [*rounds, len(acts)]:
            now, left = left[:size], left[size:]
            await asyncio.gather(*(made[who].act(act, number) for number, (who, act) in now))
        for twin in made.values():
            await twin.client.call_tool("list_tools", {})
        return made


@pytest.mark.promise("callers-share-nothing")
@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(st.tuples(WHO, st.sampled_from(ACTS)), min_size=4, max_size=24), st.lists(st.integers(1, 6), max_size=6)
)
def test_nothing_of_one_caller_reaches_the_other(
    gateway: Gateway, acts: list[tuple[str, str]], rounds: list[int]
) -> None:
    made = asyncio.run(play(gateway, acts, rounds))
    for twin in made.values():
        other = "bob" if twin.caller == "ada" else "ada"
        leaked = [seen for seen in twin.seen if f"{other}-r" in seen]
        assert leaked == [], f"{twin.who} was sent something of {other}"
        subscribed = any(act == "subscribe" and made[who] is twin for who, act in acts)
        if not subscribed:
            assert not [seen for seen in twin.seen if "resources/updated" in seen]


async def test_history_and_audit_name_who_it_was(gateway: Gateway) -> None:
    in_history = "SELECT caller, count(*) FROM event WHERE tool = 'log_attic' GROUP BY caller"
    in_audit = "SELECT caller, count(*) FROM audit WHERE tool = 'log_attic' GROUP BY caller"

    def calls(query: str) -> Counter[str]:
        with sqlite3.connect(gateway.database) as database:
            return Counter(dict(database.execute(query)))

    async with twins(gateway, Shared("audit")) as made:
        await made["ada auto"].call("log_attic", text="x")
        await made["ada legacy"].call("log_attic", text="x")
        # For bob there is no such server, so nothing is called, and nothing is said about it.
        assert "Unknown tool" in await made["bob auto"].call("log_attic", text="x")
        await made["bob auto"].act("read", 1)
    await until(lambda: calls(in_audit) == calls(in_history) == Counter({"key:ada": 2}))


async def test_whoever_listens_hears_nothing_of_a_server_that_does_not_exist_for_them(gateway: Gateway) -> None:
    wanted = {"notifications": {"resourceSubscriptions": ["attic://note", "vault://note"]}}
    body = message("subscriptions/listen", wanted, 1, MODERN)
    headers = {**ACCEPT, "MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}
    heard: dict[str, list[str]] = {}
    async with asyncio.timeout(60), httpx2.AsyncClient(timeout=60) as http, AsyncExitStack() as stack:
        for who in ("ada", "bob"):
            own = {**headers, "Authorization": f"Bearer {gateway.keys[who]}"}
            stream = await stack.enter_async_context(http.stream("POST", gateway.address, json=body, headers=own))
            async for line in stream.aiter_lines():
                if line.startswith("data: ") and "acknowledged" in line:
                    heard[who] = json.loads(line[6:])["params"]["notifications"]["resourceSubscriptions"]
                    break
    assert heard == {"ada": ["attic://note", "vault://note"], "bob": ["vault://note"]}
