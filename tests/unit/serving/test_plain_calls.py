"""What the SDK is not shown is always something that it would accept, and read as we do."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    InitializeRequestParams,
)
from mcp_types.methods import validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_optimizer.serving.dispatcher import ClientDispatcher, RequestContext
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.messages import CALL, Message

ANY = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.just([1])
KEYS = ["progressToken", "progress_token", "other", CLIENT_INFO_META_KEY, LOG_LEVEL_META_KEY]
INFOS = st.sampled_from([{"name": "x"}, {"name": "x", "version": "1"}, {"name": "x", "version": 1}])
ENVELOPE = {PROTOCOL_VERSION_META_KEY: MODERN_PROTOCOL_VERSIONS[-1], CLIENT_CAPABILITIES_META_KEY: {}}
_PARTS = st.dictionaries(st.sampled_from(KEYS), ANY | INFOS | st.just({}), max_size=3)
METAS = _PARTS | _PARTS.map(lambda meta: {**meta, **ENVELOPE})
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=3) | ANY,
        "arguments": st.dictionaries(st.text(max_size=3), ANY, max_size=2) | ANY,
        "_meta": METAS | ANY,
        "task": ANY | st.just({"ttl": 1}),
        "requestState": ANY,
    },
)
VERSIONS = [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS]


def is_accepted(version: str, params: dict[str, Any]) -> bool:
    try:
        validate_client_request(CALL, version, params)
    except ValidationError:
        return False
    return True


def context(connection: Connection, params: dict[str, Any]) -> ServerRequestContext[Any, Any]:
    way = Silent()
    session = ServerSession(RequestContext(1, params, way), connection)
    version = connection.protocol_version
    return ServerRequestContext(
        session=session, lifespan_context={}, protocol_version=version, method=CALL, params=params, request_id=1
    )


class Silent:
    """A way back that nobody takes."""

    def tell(self, message: Message) -> None:
        raise AssertionError(message)

    async def drained(self) -> None:
        """Nothing waits."""


def connected(version: str, meta: Any) -> Connection:
    """As a request of this client is answered."""
    if version in HANDSHAKE_PROTOCOL_VERSIONS:
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        connection = Connection.for_loop(ClientDispatcher(Silent()), protocol_version_hint=version)
        connection.client_params = InitializeRequestParams.model_validate(hello, by_name=False)
        return connection
    said = meta if isinstance(meta, dict) else {}
    return Connection.from_envelope(version, said.get(CLIENT_INFO_META_KEY), said.get(CLIENT_CAPABILITIES_META_KEY))


async def is_passed_on(gate: Gate, connection: Connection, params: dict[str, Any]) -> bool:
    async def done(_ctx: Any) -> dict[str, Any]:
        return {}

    try:
        await gate.check(context(connection, params), done)
    except (MCPError, ValidationError):
        return False
    return True


@given(st.lists(CALLS, min_size=1, max_size=4), st.sampled_from(VERSIONS))
async def test_a_call_that_is_not_shown_to_the_sdk_is_one_that_it_accepts(
    calls: list[dict[str, Any]], version: str
) -> None:
    gate, connections = Gate(), dict[str, Connection]()
    for params in calls:
        meta = params.get("_meta")
        known = {key: value for key, value in meta.items() if key != "progressToken"} if type(meta) is dict else meta
        # Calls that say the same of their client share a connection, as they do in reality.
        connection = connections.setdefault(repr(known), connected(version, meta))
        tolerated = dict(params)
        if not tolerated.get("arguments"):
            tolerated.pop("arguments", None)
        assert await is_passed_on(gate, connection, params) == is_accepted(version, tolerated)
