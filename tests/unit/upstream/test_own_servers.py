"""Callers' own servers: as many as are used, and each with the values of its caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.caller import ANYONE, LOCAL_PRINCIPAL, CallerField, CallerText, Principal
from mcp_optimizer.errors import ServerUnavailable
from mcp_optimizer.upstream.lifetimes import OwnServers

SPEC = ServerSpec(
    "crm", Transport.STDIO, command="crm", by_caller=(CallerText("env", "UNIT", (CallerField("claim.unit"),)),)
)


def caller(name: str, unit: str = "eu") -> Principal:
    return Principal(f"token:{name}", f"corp:{name}", claims={"unit": unit})


@dataclass
class Began:
    """Where a pool would start and end servers."""

    ended: list[Any] = field(default_factory=list)

    def begin(self, spec: ServerSpec, principal: Principal) -> Any:
        return SimpleNamespace(server=SimpleNamespace(spec=spec.for_caller(principal), is_in_use=False))


def servers(began: Began) -> OwnServers:
    return OwnServers(began.begin, began.ended.append, most_processes=2)


def test_a_caller_keeps_its_server_until_its_values_change() -> None:
    began = Began()
    own = servers(began)
    first = own.of(SPEC, caller("ada"))
    assert own.of(SPEC, caller("ada")) is first
    second = own.of(SPEC, caller("ada", "us"))
    assert (second.spec.env, [one.server for one in began.ended]) == ({"UNIT": "us"}, [first])
    assert len(list(own)) == 1


def test_the_longest_silent_caller_makes_room_for_another_process() -> None:
    began = Began()
    own = servers(began)
    ada, bob = own.of(SPEC, caller("ada")), own.of(SPEC, caller("bob"))
    own.of(SPEC, caller("ada"))
    own.of(SPEC, caller("cyd"))
    assert [one.server for one in began.ended] == [bob]
    assert own.of(SPEC, caller("ada")) is ada


def test_processes_that_are_all_in_use_are_not_joined_by_another() -> None:
    began = Began()
    own = servers(began)
    for name in ("ada", "bob"):
        used: Any = own.of(SPEC, caller(name))
        used.is_in_use = True
    with pytest.raises(ServerUnavailable, match="all 2 are in use"):
        own.of(SPEC, caller("cyd"))
    assert own.of(SPEC, caller("ada"))
    assert not began.ended


@pytest.mark.parametrize("principal", [ANYONE, LOCAL_PRINCIPAL, Principal("key:1", "key:ci"), caller("eve", "a\nb")])
def test_a_caller_without_the_values_gets_no_server(principal: Principal) -> None:
    began = Began()
    own = servers(began)
    with pytest.raises(ServerUnavailable):
        own.of(SPEC, principal)
    assert not list(own)
