"""Who a request is from: no self-given name, session or subject makes two callers one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CLIENT_INFO_META_KEY
from starlette.requests import Request

from mcp_optimizer.domain.caller import ANYONE, LOCAL, LOCAL_PRINCIPAL, Caller, ClientLink, Principal
from mcp_optimizer.limits import DEFAULT_LIMITS
from mcp_optimizer.serving.relay.connected import PRINCIPAL_KEY, Clients, Context


def request(principal: Principal | None, name: str = "", session: str = "") -> Context:
    """A modern request over HTTP."""
    headers = [(b"mcp-session-id", session.encode("latin-1"))] if session else []
    scope: dict[str, Any] = {"type": "http", "method": "POST", "headers": headers, "query_string": b""}
    if principal is not None:
        scope[PRINCIPAL_KEY] = principal
    params = {"_meta": {CLIENT_INFO_META_KEY: {"name": name}}}
    found = SimpleNamespace(
        request=Request(scope),
        params=params,
        protocol_version="2026-07-28",
        session=SimpleNamespace(client_params=None),
        request_id=1,
    )
    return cast("Context", found)


def caller(ctx: Context) -> Caller:
    return Clients(lambda _: None, DEFAULT_LIMITS).caller(ctx)


def test_a_verified_caller_is_known_by_its_id_and_its_connections_by_more() -> None:
    ada = Principal("key:ada", "key:ada")
    one, two = caller(request(ada, "claude")), caller(request(ada, "cursor"))
    assert one.key == two.key == "key:ada"
    assert one.principal is ada
    assert one.conversation != two.conversation
    assert one.is_distinct


def test_anyone_is_known_by_a_session_or_else_by_a_name_that_others_may_have() -> None:
    named, unknown = caller(request(ANYONE, "claude")), caller(request(None, "claude"))
    assert named.key == unknown.key == "http:claude"
    assert (named.principal, unknown.principal) == (ANYONE, ANYONE)
    assert not named.is_distinct
    assert caller(request(ANYONE, "claude", "4711")).key == "http:4711"


def test_whoever_started_the_gateway_is_distinct() -> None:
    assert (LOCAL.principal, LOCAL.conversation, LOCAL.is_distinct) == (LOCAL_PRINCIPAL, "local", True)
    legacy = cast("ClientLink", SimpleNamespace(is_modern=False, key="http:1"))
    assert Caller("x", "http:1", legacy, principal=ANYONE).is_distinct


IDS = st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1, max_size=8)
NAMES = st.text(max_size=8)


@given(IDS, IDS, NAMES, NAMES)
def test_no_client_s_name_makes_its_connection_another_caller_s(one: str, two: str, mine: str, yours: str) -> None:
    ada, bob = Principal(f"token:{one}", "corp:ada"), Principal(f"token:{two}", "corp:bob")
    first, second = caller(request(ada, mine)), caller(request(bob, yours))
    if one != two:
        assert first.key != second.key
        assert first.conversation != second.conversation
    anyone = caller(request(ANYONE, mine))
    assert anyone.key != first.key
    assert anyone.conversation != first.conversation
