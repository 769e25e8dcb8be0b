"""The undocumented parts of other libraries that `test_foreign_insides.py` lists do what we rely on."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import jmespath.parser
import pydantic_core
import pytest
import uvicorn
from jmespath.functions import Functions, signature
from jmespath.visitor import Options, TreeInterpreter
from pydantic_core import core_schema
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mcp_optimizer.results.interpreter import Interpreter
from mcp_optimizer.runtime.http_server import HttpServer
from tests.waiting import until

# uvicorn


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        """All there is was fed."""

    def resume_reading(self) -> None:
        """As above."""


class Recorded(HttpToolsProtocol):
    """Records the callbacks of the parser."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.heard: list[Any] = []

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.heard.append("begin")

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self.heard.append((name, value))

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.heard.append("headers")

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self.heard.append(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.heard.append("complete")


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def connection() -> Recorded:
    config = uvicorn.Config(application, ws="none", lifespan="off", log_level="critical")
    made = Recorded(config=config, server_state=ServerState(), app_state={}, _loop=asyncio.get_running_loop())
    made.connection_made(Wire())
    return made


REQUEST = b"POST /path?q=1 HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nbody"


def wire_of(connection: Recorded) -> Wire:
    assert isinstance(connection.transport, Wire)
    return connection.transport


async def test_uvicorn_calls_the_parsers_callbacks_in_order_and_answers_by_a_cycle(connection: Recorded) -> None:
    assert connection in connection.connections
    assert vars(connection)["cycle"] is None
    assert connection.loop is asyncio.get_running_loop()
    connection.data_received(REQUEST)
    fields = [(b"Host", b"here"), (b"Content-Length", b"4")]
    assert connection.heard == ["begin", *fields, "headers", b"body", "complete"]
    assert connection.url == b"/path?q=1"
    assert connection.scope["headers"] is connection.headers
    assert connection.headers == [(b"host", b"here"), (b"content-length", b"4")]
    assert not connection.cycle.response_complete
    await until(lambda: connection.cycle.response_complete)
    assert wire_of(connection).written.startswith(b"HTTP/1.1 200 ")
    assert wire_of(connection).written.endswith(b"\r\n\r\nbody")
    connection.connection_lost(None)
    assert connection not in connection.connections


async def test_what_is_added_to_uvicorns_scope_before_the_body_ended_reaches_the_application(
    connection: Recorded,
) -> None:
    connection.data_received(REQUEST[:-4])
    assert connection.cycle.scope is connection.scope
    connection.connection_lost(None)
    assert connection.cycle.disconnected


async def test_uvicorn_waits_for_another_request_and_stops_waiting_when_asked(connection: Recorded) -> None:
    connection.data_received(REQUEST)
    await until(lambda: connection.timeout_keep_alive_task is not None)
    timer = connection.timeout_keep_alive_task
    assert timer is not None
    connection._unset_keepalive_if_required()
    assert timer.cancelled()
    connection.connection_lost(None)


async def test_uvicorn_refuses_what_is_no_http_and_the_parser_can_be_replaced(connection: Recorded) -> None:
    connection.parser = type(connection.parser)(connection)
    connection.data_received(REQUEST)
    assert connection.heard[-1] == "complete"
    connection.send_400_response("no HTTP")
    assert wire_of(connection).written.startswith(b"HTTP/1.1 400 ")
    assert wire_of(connection).is_closed
    connection.connection_lost(None)


def test_uvicorn_makes_connections_of_the_class_that_it_is_given() -> None:
    config = uvicorn.Config(application, http=Recorded)
    config.load()
    assert config.http_protocol_class is Recorded


@pytest.mark.parametrize(("kind", "takes"), [(uvicorn.Server, True), (HttpServer, False)])
async def test_uvicorn_takes_signals_unless_it_is_kept_from_it(kind: type[uvicorn.Server], takes: bool) -> None:
    before = signal.getsignal(signal.SIGTERM)
    server = kind(uvicorn.Config(application, ws="none", lifespan="off", log_level="critical"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await until(lambda: server.started)
        assert (signal.getsignal(signal.SIGTERM) is not before) is takes
        server.should_exit = True
        await serving
    assert signal.getsignal(signal.SIGTERM) is before


# jmespath


EVERY_KIND = (
    "a.b",
    "[*].a",
    "a.*.b",
    "[?a > `1`].b",
    "[]",
    "[0:2]",
    "[0]",
    "a[0]",
    "[a, b]",
    "{x: a}",
    "sort_by(a, &b)",
    "a || b && !c",
    "a | b",
    "@",
    "'text'",
)


def kinds_of(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield node["type"]
        for child in node["children"]:
            yield from kinds_of(child)


def test_jmespath_evaluates_each_kind_of_node_by_a_method_of_its_name() -> None:
    kinds = {kind for text in EVERY_KIND for kind in kinds_of(jmespath.parser.Parser().parse(text).parsed)}
    methods = {name.removeprefix("visit_") for name in dir(TreeInterpreter) if name.startswith("visit_")}
    assert kinds - methods == set()
    # Each kind is in an example: a new one would be evaluated without being counted as it should be.
    assert methods - kinds <= {"identity", "key_val_pair"}


def test_jmespath_evaluates_inner_nodes_by_the_same_interpreter() -> None:
    seen: list[str] = []

    class Seeing(Interpreter):
        def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(node["type"])
            return super().visit(node, *args, **kwargs)

    expression = jmespath.parser.Parser().parse("a[?b == `1`].c | sort_by(@, &d)[0:1]").parsed
    Seeing(1000, 1000).visit(expression, {"a": [{"b": 1, "c": {"d": 2}}]})
    assert set(seen) >= {"filter_projection", "comparator", "literal", "function_expression", "expref", "slice"}
    # The key of the only element is never asked for.
    assert seen.count("field") >= 3


def test_jmespath_finds_a_function_by_its_name_and_what_it_declares() -> None:
    shout = signature({"types": ["string"]})(lambda _self, text: text.upper())
    functions = type("Mine", (Functions,), {"_func_shout": shout})()
    interpreter = TreeInterpreter(Options(custom_functions=functions))
    assert interpreter._functions is functions
    assert functions.call_function("shout", ["a"]) == "A"
    assert functions.call_function("length", ["abc"]) == 3
    assert interpreter._is_true([]) is False
    key = TreeInterpreter().visit(jmespath.parser.Parser().parse("&a").parsed, None)
    assert (key.expression["type"], key.visit(key.expression, {"a": 1})) == ("field", 1)
    assert functions._create_key_func(key, ["number"], "sort_by")({"a": 1}) == 1


# asyncio


async def test_asyncio_feeds_a_reader_by_the_method_that_ours_overrides() -> None:
    fed: list[bytes] = []

    class Reader(asyncio.StreamReader):
        def feed_data(self, data: Any) -> None:
            fed.append(data)
            super().feed_data(data)

    reader = Reader()
    protocol = asyncio.StreamReaderProtocol(reader)
    protocol.connection_made(Wire())
    protocol.data_received(b"some")
    assert fed == [b"some"]
    assert await reader.read(10) == b"some"


async def test_asyncio_stops_reading_at_twice_the_limit_by_the_transport_that_a_reader_is_given() -> None:
    calls: list[str] = []

    class Pausing(Wire):
        def pause_reading(self) -> None:
            calls.append("pause")

        def resume_reading(self) -> None:
            calls.append("resume")

    reader = asyncio.StreamReader(limit=10)
    reader.set_transport(Pausing())
    reader.feed_data(b"x" * 20)
    assert calls == []
    reader.feed_data(b"x")
    assert calls == ["pause"]
    assert len(await reader.read(100)) == 21
    assert calls == ["pause", "resume"]


async def test_asyncios_flow_control_lets_a_writer_wait_until_the_reader_is_ready() -> None:
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(writing, "wb", 0))
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    writer.write(b"x" * 1_000_000)
    waiting = asyncio.ensure_future(writer.drain())
    await asyncio.sleep(0)
    assert not waiting.done()
    left = 1_000_000
    while left:
        left -= len(await asyncio.to_thread(os.read, reading, 1_000_000))
    await waiting
    writer.close()
    os.close(reading)


async def test_asyncio_makes_a_process_of_a_transport_and_a_protocol_whose_stdout_can_be_replaced() -> None:
    made: list[asyncio.StreamReader] = []

    class Pipes(asyncio.subprocess.SubprocessStreamProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            assert isinstance(transport, asyncio.SubprocessTransport)
            self.stdout = asyncio.StreamReader(100)
            stdout = transport.get_pipe_transport(1)
            assert stdout is not None
            self.stdout.set_transport(stdout)
            made.append(self.stdout)

    loop = asyncio.get_running_loop()
    transport, pipes = await loop.subprocess_exec(lambda: Pipes(100, loop), sys.executable, "-c", "print('said')")
    process = asyncio.subprocess.Process(transport, pipes, loop)
    assert process.stdout is made[0]
    assert (await process.stdout.read()).split() == [b"said"]
    assert await process.wait() == 0
    transport.close()


# Others


def test_a_cached_property_has_its_name_and_its_function() -> None:
    class Some:
        @cached_property
        def value(self) -> int:
            return 7

    found = vars(Some)["value"]
    assert (found.attrname, found.func(Some())) == ("value", 7)


def test_pydantic_writes_a_value_of_any_class_that_has_a_serializer_and_passes_it_the_context() -> None:
    class Value:
        __pydantic_serializer__ = pydantic_core.SchemaSerializer(
            core_schema.any_schema(
                serialization=core_schema.plain_serializer_function_ser_schema(
                    lambda value, info: {"context": info.context, "own": isinstance(value, Value)}, info_arg=True
                )
            )
        )

    assert pydantic_core.to_json([{"in": Value()}], context=5) == b'[{"in":{"context":5,"own":true}}]'


def test_prometheus_chooses_the_encoder_for_what_a_scraper_accepts() -> None:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    encode, kind = choose_encoder("application/openmetrics-text")
    assert kind.startswith("application/openmetrics-text")
    assert encode(CollectorRegistry()) == b"# EOF\n"


def test_python_knows_which_hosts_need_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    from urllib.request import proxy_bypass

    monkeypatch.setenv("no_proxy", "inside.example")
    assert proxy_bypass("inside.example")
    assert not proxy_bypass("outside.example")
