"""What calls of modern clients say beside their arguments, and whether it is remembered rightly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import LOG_LEVEL_META_KEY, ErrorData

from mcp_optimizer.serving.dispatcher import CallChain, RequestContext
from mcp_optimizer.serving.messages import CALL
from mcp_optimizer.serving.modern_clients import ModernClients, SchemaOf
from mcp_optimizer.serving.relay.head import Fields
from tests.e2e.raw_clients import MODERN, message

WITH_HEADER = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
REVISION, METHOD, NAME = b"mcp-protocol-version", b"mcp-method", b"mcp-name"
RIGHT = {REVISION: MODERN.encode(), METHOD: b"tools/call", NAME: b"echo"}


class Routes(ModernClients):
    """Says None where a client is refused."""

    def __init__(self, schema_of: SchemaOf) -> None:
        super().__init__(Server("test", version="1", get_tool_input_schema=schema_of), {})

    def of_call(self, asked: Mapping[str, Any], fields: Fields) -> Connection | None:
        try:
            return self.connection(CALL, asked, fields)
        except MCPError:
            return None


def params(name: str = "echo", **arguments: Any) -> dict[str, Any]:
    made: dict[str, Any] = message("tools/call", {"name": name, "arguments": arguments}, 1, MODERN)["params"]
    return made


def with_meta(**more: Any) -> dict[str, Any]:
    made = params()
    return {**made, "_meta": {**made["_meta"], **more}}


def test_calls_of_the_same_client_share_a_connection_whatever_their_arguments_and_tokens() -> None:
    routes = Routes(lambda _name: None)
    first = routes.of_call(params(), RIGHT)
    assert first is not None
    assert routes.of_call(params(text="other"), RIGHT) is first
    assert routes.of_call(with_meta(progressToken="t" * 5_000), RIGHT) is first


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        (params("other"), RIGHT),
        (params(), {**RIGHT, NAME: b"other"}),
        (params(), {**RIGHT, METHOD: b"tools/list"}),
        (params(), {**RIGHT, REVISION: b"2025-11-25"}),
        (params(), {name: value for name, value in RIGHT.items() if name != METHOD}),
        ({**params(), "_meta": None}, RIGHT),
        ({"name": "echo"}, RIGHT),
        (params(), {**RIGHT, NAME: b"\xff"}),
    ],
)
def test_what_the_sdk_would_refuse_is_refused_after_a_call_that_was_right_and_each_time(
    asked: dict[str, Any], fields: dict[bytes, bytes]
) -> None:
    routes = Routes(lambda _name: None)
    for _ in range(2):
        assert routes.of_call(params(), RIGHT) is not None
        assert routes.of_call(asked, fields) is None


def test_a_header_that_repeats_an_argument_is_looked_at_in_every_call() -> None:
    routes = Routes(lambda _name: WITH_HEADER)
    right = {**RIGHT, b"mcp-param-region": b"eu"}
    for _ in range(2):
        assert routes.of_call(params(region="eu"), right) is not None
        assert routes.of_call(params(region="us"), right) is None
        assert routes.of_call(params(region="eu"), RIGHT) is None
        assert routes.of_call(params(), right) is None


def test_a_client_that_says_very_much_is_answered_and_not_remembered() -> None:
    routes = Routes(lambda _name: None)
    much = with_meta(note="x" * 10_000)
    first, second = routes.of_call(much, RIGHT), routes.of_call(much, RIGHT)
    assert first is not None
    assert second is not None
    assert first is not second


class Way:
    """A client that is sent nothing."""

    def tell(self, message: Any) -> None:
        raise AssertionError(message)

    async def drained(self) -> None:
        """There is always room."""


class Seen:
    """A middleware that keeps what it is asked and answers with what it is given."""

    def __init__(self, result: Any) -> None:
        self.contexts: list[ServerRequestContext[Any, Any]] = []
        self._result = result

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        del call_next
        self.contexts.append(ctx)
        answer: HandlerResult = self._result
        return answer


def seen_by(result: Any) -> tuple[Seen, Server[Any]]:
    seen, server = Seen(result), Server[Any]("test", version="1")
    server.middleware.append(seen)
    return seen, server


@pytest.mark.parametrize(
    "asked",
    [
        params(text="a"),
        {"name": "echo"},
        {"name": "echo", "_meta": None},
        {"name": "echo", "_meta": [1]},
        with_meta(progressToken="t"),
        with_meta(progressToken=[]),
        with_meta(progress_token="t"),
        with_meta(**{LOG_LEVEL_META_KEY: "error", "more": {"deep": [1]}}),
        with_meta(**{LOG_LEVEL_META_KEY: "loud"}),
    ],
    ids=str,
)
async def test_a_call_reaches_the_middlewares_as_the_sdk_would_pass_it_on(asked: dict[str, Any]) -> None:
    seen, server = seen_by({"content": []})
    connection = Connection.from_envelope(MODERN, None, None)
    for number in (1, None):
        context = RequestContext(number, asked, Way(), None, ServerMessageMetadata(request_context=seen))
        own = await CallChain(server, seen).answer(connection, context, asked)
        assert own == await ServerRunner(server, connection, seen).on_request(context, CALL, asked) == {"content": []}
        ours, theirs = seen.contexts[-2:]
        assert {**vars(ours), "session": vars(ours.session)} == {**vars(theirs), "session": vars(theirs.session)}


async def test_an_error_that_a_middleware_answers_with_is_raised_and_its_result_stays_its_own() -> None:
    connection, context = Connection.from_envelope(MODERN, None, None), RequestContext(1, params(), Way())
    _, refusing = seen_by(ErrorData(code=-32000, message="no"))
    with pytest.raises(MCPError, match="no"):
        await CallChain(refusing, {}).answer(connection, context, params())
    kept: dict[str, Any] = {"content": []}
    _, server = seen_by(kept)
    assert await CallChain(server, {}).answer(connection, context, params()) is not kept
