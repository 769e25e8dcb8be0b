"""What requests say of the host they are for, as it was admitted before."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from mcp_optimizer.serving.http import admitted_hosts
from mcp_optimizer.serving.http_gate import Hosts
from mcp_optimizer.serving.relay.head import fields_of

RIGHT = {"host": "127.0.0.1:8765", "content-type": "application/json"}


def posted(**fields: str) -> dict[str, Any]:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    return {"type": "http", "method": "POST", "headers": lines}


def knows(hosts: Hosts, scope: dict[str, Any]) -> bool:
    return hosts.has_admitted(scope["method"], fields_of(scope))


async def test_a_request_that_says_what_an_admitted_one_said_is_admitted_and_no_other() -> None:
    hosts = Hosts(admitted_hosts((), ()))
    scope = posted(**RIGHT)
    assert not knows(hosts, scope)
    assert await hosts.refusal(Request(scope)) is None
    assert knows(hosts, posted(**RIGHT, accept="anything"))
    wrong = {
        "host": (421, {**RIGHT, "host": "evil.example"}),
        "origin": (403, {**RIGHT, "origin": "http://evil.example"}),
        "content": (400, {**RIGHT, "content-type": "text/plain"}),
    }
    for status, fields in wrong.values():
        for _ in range(2):
            asked = posted(**fields)
            assert not knows(hosts, asked)
            refusal = await hosts.refusal(Request(asked))
            assert refusal is not None
            assert refusal.status_code == status
    other = {**posted(**{name: value for name, value in RIGHT.items() if name == "host"}), "method": "GET"}
    assert not knows(hosts, other), "a GET needs no content type, and says nothing about a POST"


async def test_what_is_remembered_of_hosts_stays_small() -> None:
    hosts = Hosts(admitted_hosts((), ()))
    first = posted(**RIGHT)
    assert await hosts.refusal(Request(first)) is None
    for port in range(100):
        assert await hosts.refusal(Request(posted(**{**RIGHT, "host": f"127.0.0.1:{port}"}))) is None
    assert not knows(hosts, first), "among so many, the oldest are forgotten"
    long = posted(**{**RIGHT, "host": f"127.0.0.1:{'1' * 5_000}"})
    assert await hosts.refusal(Request(long)) is None
    assert not knows(hosts, long)
