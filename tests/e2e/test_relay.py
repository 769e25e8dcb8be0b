"""The gateway relays everything between a real SDK client and a real server, over stdio and HTTP, in both eras."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from tests.conftest import WriteServers
from tests.e2e.running import gateway_at, gateway_on_stdio
from tests.e2e.test_http_upstreams import free_port, listening
from tests.waiting import until
from tests.warm import warm_server

SERVER = Path(__file__).parents[1] / "servers" / "conformant.py"

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")


class Person:
    """A client's user, model and roots. Records the questions, log messages and notifications that it receives."""

    def __init__(self, name: str = "Ada") -> None:
        self.name = name
        self.asked: list[types.ElicitRequestParams] = []
        self.logged: list[str] = []
        self.noticed: list[str] = []

    async def elicit(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params)
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        content: Any = dict.fromkeys(params.requested_schema.get("properties", {}), self.name)
        return types.ElicitResult(action="accept", content=content)

    async def sample(self, _context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        asked = params.messages[0].content
        words = f"{self.name} heard: {asked.text}" if isinstance(asked, types.TextContent) else ""
        return types.CreateMessageResult(role="assistant", model="m", content=types.TextContent(text=words))

    async def roots(self, _context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=f"file:///home/{self.name}")])  # type: ignore[arg-type]

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logged.append(str(params.data))

    async def notice(self, message: Any) -> None:
        if not isinstance(message, Exception):
            self.noticed.append(message.method)

    def callbacks(self) -> dict[str, Any]:
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
            "logging_callback": self.log,
            "message_handler": self.notice,
        }


Connect = Callable[..., AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def upstream(transport: str, era: str | None = None) -> AsyncIterator[dict[str, Any]]:
    """An entry for the server file. Over HTTP, its server runs until the context exits."""
    options = ["--era", era] if era else []
    if transport == "stdio":
        yield warm_server(SERVER, *options)
        return
    port = free_port()
    async with listening(port, str(SERVER), "--http", str(port), *options):
        yield {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}


def client_on_stdio(config: Path, mode: str, options: list[str], callbacks: dict[str, Any]) -> Client:
    return Client(gateway_on_stdio(config, *options), mode=mode, **callbacks)


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(write_servers: WriteServers) -> Connect:
    """Returns a function that opens a client of a gateway in front of a conformant server."""

    @asynccontextmanager
    async def connected(
        transport: str,
        mode: str,
        person: Person | None = None,
        server_transport: str = "",
        server_era: str | None = None,
        gateway_mode: str = "transparent",
    ) -> AsyncIterator[Client]:
        callbacks = person.callbacks() if person is not None else {}
        options = ["--mode", gateway_mode, "--database", "none", "--encoder", "none"]
        async with AsyncExitStack() as stack:
            entry = await stack.enter_async_context(upstream(server_transport or transport, server_era))
            config = write_servers({"conformant": entry})
            if transport == "stdio":
                client = await stack.enter_async_context(client_on_stdio(config, mode, options, callbacks))
            else:
                address = await stack.enter_async_context(gateway_at(config, *options))
                client = await stack.enter_async_context(Client(address, mode=mode, **callbacks))
            await until_up(client, gateway_mode)
            yield client

    return connected


async def until_up(client: Client, gateway_mode: str = "transparent") -> None:
    async with asyncio.timeout(30):
        while True:
            if gateway_mode == "transparent":
                found = bool((await client.list_tools(cache_mode="bypass")).tools)
            else:
                found = json.loads(text(await client.call_tool("list_tools", {})))["total"] > 0
            if found:
                return
            await asyncio.sleep(0.05)


def text(result: Any) -> str:
    first = result.content[0]
    assert isinstance(first, types.TextContent)
    return first.text


async def test_a_server_asks_the_user_the_model_and_for_roots(connect: Connect, transport: str, era: str) -> None:
    person = Person()
    async with connect(transport, era, person) as client:
        if era == "legacy":
            answer = text(await client.call_tool("test_elicitation", {"message": "Who are you?"}))
            assert answer == 'User response: action=accept, content={"username": "Ada", "email": "Ada"}'
            assert text(await client.call_tool("test_sampling", {"prompt": "Hi"})) == "LLM response: Ada heard: Hi"
            assert "file:///home/Ada" in text(await client.call_tool("list_roots", {}))
            assert text(await client.call_tool("ask_url", {})) == "Visited: accept"
            asked = person.asked[-1]
            assert isinstance(asked, types.ElicitRequestURLParams)
            assert asked.url == "https://example.com/login"
        else:
            assert text(await client.call_tool("test_input_required_result_elicitation", {})) == "Hello, Ada!"
            assert "Ada heard" in text(await client.call_tool("test_input_required_result_sampling", {}))
            assert "file:///home/Ada" in text(await client.call_tool("test_input_required_result_list_roots", {}))
            assert text(await client.call_tool("test_input_required_result_multi_round", {})) == "Both, after round 2."
            prompt = await client.get_prompt("test_input_required_result_prompt")
            assert isinstance(prompt.messages[0].content, types.TextContent)
            assert prompt.messages[0].content.text == "In the context of Ada"


async def test_progress_comes_back_and_a_cancelled_call_ends_at_the_server(
    connect: Connect, transport: str, era: str
) -> None:
    told: list[tuple[float, float | None, str | None]] = []
    begun = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))
        begun.set()

    async with connect(transport, era) as client:
        await client.call_tool("test_tool_with_progress", {}, progress_callback=on_progress)
        assert told == [(done, 100, f"Completed step {done} of 100") for done in (0, 50, 100)]
        begun.clear()
        call = asyncio.create_task(client.call_tool("slow", {"name": "mine"}, progress_callback=on_progress))
        async with asyncio.timeout(10):
            await begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while text(await client.call_tool("was_cancelled", {})) != '["mine"]':
                await asyncio.sleep(0.05)


async def test_resources_prompts_and_completion_pass(connect: Connect, transport: str, era: str) -> None:
    async with connect(transport, era) as client:
        listed = await client.list_resources()
        assert [resource.name for resource in listed.resources] == ["static-text", "static-binary", "watched"]
        read = await client.read_resource("test://template/7/data")
        assert isinstance(read.contents[0], types.TextResourceContents)
        assert json.loads(read.contents[0].text) == {"id": "7"}
        templates = await client.list_resource_templates()
        assert [one.uri_template for one in templates.resource_templates] == ["test://template/{id}/data"]
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert isinstance(prompt.messages[0].content, types.TextContent)
        assert prompt.messages[0].content.text.endswith("arg1='a', arg2='b'")
        reference = types.PromptReference(name="test_prompt_with_arguments")
        completed = await client.complete(reference, {"name": "arg1", "value": "par"})
        assert completed.completion.values == ["paris", "park", "party"]
        with pytest.raises(MCPError, match="Resource not found") as refused:
            await client.read_resource("test://nowhere")
        assert refused.value.error.data == {"uri": "test://nowhere"}


async def test_changes_and_log_messages_reach_a_legacy_client(connect: Connect, transport: str) -> None:
    person = Person()
    async with connect(transport, "legacy", person) as client, asyncio.timeout(20):
        await client.set_logging_level("info")
        await client.subscribe_resource("test://watched-resource")
        await client.call_tool("test_tool_with_logging", {})
        assert person.logged == ["Tool execution started", "Tool processing data", "Tool execution completed"]
        for tool in ("test_trigger_tool_change", "test_trigger_prompt_change", "update_watched"):
            await client.call_tool(tool, {})
        expected = {f"notifications/{what}" for what in ("prompts/list_changed", "resources/updated")}
        await until(lambda: expected <= set(person.noticed), timeout=20)


async def test_meta_and_trace_context_pass_both_ways(connect: Connect, era: str) -> None:
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "example.com/own": {"kept": 1}}
    async with connect("http", era) as client:
        result = await client.call_tool("echo", {"text": "x"}, meta=trace)  # type: ignore[arg-type]
        seen = (result.structured_content or {})["meta"]
        assert seen["example.com/own"] == {"kept": 1}
        assert seen["traceparent"].startswith("00-")
        meta = result.meta or {}
        assert meta["echo/kept"] is True
        assert meta["tokens"]["estimated"] > 0
        assert meta["performance"]["cachedResult"] is False


async def test_a_server_is_told_of_no_feature_that_the_client_did_not_declare(connect: Connect, era: str) -> None:
    async with connect("stdio", era) as client:
        result = await client.call_tool("test_sampling", {"prompt": "Hi"})
        assert result.is_error
        assert text(result) == "This client does not support sampling."


async def test_a_legacy_client_is_asked_for_what_a_modern_server_needs(connect: Connect) -> None:
    async with connect("http", "legacy", Person(), server_era="modern") as client:
        assert text(await client.call_tool("test_input_required_result_elicitation", {})) == "Hello, Ada!"
        assert text(await client.call_tool("test_input_required_result_multi_round", {})) == "Both, after round 2."


async def test_a_modern_client_uses_a_legacy_server(connect: Connect) -> None:
    async with connect("http", "auto", Person(), "stdio", "legacy") as client:
        assert text(await client.call_tool("test_simple_text", {})).startswith("This is a simple text")
    async with connect("http", "auto", None, "stdio", "legacy") as client:
        result = await client.call_tool("test_elicitation", {"message": "Who are you?"})
        assert text(result) == "This client does not support elicitation."


async def test_elicitation_passes_also_where_tools_are_found_and_called(connect: Connect, era: str) -> None:
    tool = "test_elicitation" if era == "legacy" else "test_input_required_result_elicitation"
    async with connect("stdio", era, Person(), gateway_mode="search") as client:
        call = {"tool_name": tool, "parameters": {"message": "Who?"} if era == "legacy" else {}}
        assert "Ada" in text(await client.call_tool("call_tool", call))


@pytest.mark.parametrize(("server_transport", "era"), [("stdio", "legacy"), ("http", "legacy"), ("http", "auto")])
async def test_each_client_is_asked_only_what_its_own_call_needs(
    write_servers: WriteServers, server_transport: str, era: str
) -> None:
    people = [Person("Ada"), Person("Bob"), Person("Cyd")]
    async with AsyncExitStack() as stack:
        entry = await stack.enter_async_context(upstream(server_transport, "legacy"))
        options = ["--mode", "transparent", "--database", "none"]
        address = await stack.enter_async_context(gateway_at(write_servers({"conformant": entry}), *options))
        clients = [
            await stack.enter_async_context(Client(address, mode=era, **person.callbacks())) for person in people
        ]
        await until_up(clients[0])
        calls = [client.call_tool("test_sampling", {"prompt": "Hi"}) for client in clients for _ in range(3)]
        answers = [text(result) for result in await asyncio.gather(*calls)]
    assert answers == [f"LLM response: {person.name} heard: Hi" for person in people for _ in range(3)]


async def test_two_servers_keep_their_own_prompts_and_resources(write_servers: WriteServers) -> None:
    config = write_servers({name: warm_server(SERVER) for name in ("one", "two")})
    options = ["--mode", "transparent", "--database", "none", "--encoder", "none"]
    async with client_on_stdio(config, "auto", options, {}) as client, asyncio.timeout(30):
        while len((await client.list_prompts(cache_mode="bypass")).prompts) < 10:
            await asyncio.sleep(0.05)
        names = [prompt.name for prompt in (await client.list_prompts(cache_mode="bypass")).prompts]
        assert names[0] == "one__test_simple_prompt"
        assert len(set(names)) == 10
        uris = [str(one.uri) for one in (await client.list_resources(cache_mode="bypass")).resources]
        assert "two+test://static-text" in uris
        read = await client.read_resource("two+test://static-text")
        assert str(read.contents[0].uri) == "two+test://static-text"
        assert await client.get_prompt("two__test_simple_prompt")
        read = await client.read_resource("two+test://template/7/data")
        assert isinstance(read.contents[0], types.TextResourceContents)
        # Both servers could be meant, so neither is asked.
        with pytest.raises(MCPError, match=r"Read one of: one\+test://template/7/data, two\+test://template/7/data"):
            await client.read_resource("test://template/7/data")
