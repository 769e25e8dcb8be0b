"""Tenants: callers who are confined to their own servers, over one index."""

from __future__ import annotations

import pytest

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.principal import Principal
from mcp_optimizer.errors import InvalidRequest, UnknownTool
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.permissions import Permissions
from mcp_optimizer.gateway.views import Views
from mcp_optimizer.policy.access import Policy
from mcp_optimizer.policy.rules import RuleBook
from tests.unit.catalogs import down, gateway_over, live_catalog, mcp_tool, new_gateway, running

BANK = running("bank", mcp_tool("get_balance", "Read the balance"), mcp_tool("search", "Search in accounts"))
SHOP = running("shop", mcp_tool("search", "Search for goods"), mcp_tool("pay", "Pay for goods"))
SHOPPER = Caller(key="shopper", principal=Principal("key:3", "key:shopper", servers=frozenset({"shop"})))


def permissions(kept: int | None = None) -> Permissions:
    policy = Policy(RuleBook(()))
    return Permissions(Views(policy) if kept is None else Views(policy, kept))


def seen(gateway: Gateway, caller: Caller) -> set[str]:
    return {tool.name for tool in gateway.list_tools(caller=caller).tools}


def own(caller: Caller) -> frozenset[str]:
    assert caller.principal.servers is not None
    return caller.principal.servers


def tenants(count: int) -> list[Caller]:
    """Each with three servers of its own; they list the same tools as everybody's."""
    return [
        Caller(
            key=f"tenant {number}",
            principal=Principal(
                f"key:{number}", f"key:{number}", servers=frozenset(f"s{number}-{which}" for which in range(3))
            ),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("kept", [64_000_000, 3_000, 0], ids=["all", "some", "the last"])
async def test_many_tenants_share_one_index_and_each_sees_its_own_servers(kept: int) -> None:
    callers = tenants(20)
    listing = [mcp_tool("open_ticket", "Open a ticket for a customer"), mcp_tool("list_orders", "List the orders")]
    states = [running(server, *listing) for caller in callers for server in own(caller)]
    gateway = await gateway_over(*states, permissions=permissions(kept))
    for caller in [*callers, *callers[::-1], *callers]:
        found = gateway.find("open a ticket for a customer", limit=50, caller=caller).tools
        assert {hit.tool.server for hit in found} == own(caller)
        listed = gateway.list_tools(caller=caller)
        assert {tool.server for tool in listed.tools} == own(caller)
        assert len(listed.tools) == 6
        other = own(callers[callers.index(caller) - 1])
        with pytest.raises((UnknownTool, InvalidRequest)):
            await gateway.call("open_ticket", {}, min(other), caller)
        with pytest.raises(UnknownTool):
            await gateway.call(f"{min(other)}__open_ticket", {}, caller=caller)


async def test_a_tenant_sees_its_servers_come_and_go() -> None:
    catalog = await live_catalog(BANK, SHOP)
    gateway = new_gateway(catalog, permissions=permissions())
    assert seen(gateway, SHOPPER) == {"shop__search", "pay"}
    catalog.on_state(down("shop", "it exited"))
    assert seen(gateway, SHOPPER) == set()
    catalog.on_state(SHOP)
    assert seen(gateway, SHOPPER) == {"shop__search", "pay"}


async def test_tools_at_few_positions_read_like_the_whole_row() -> None:
    gateway = await gateway_over(BANK, SHOP, permissions=permissions())
    whole = gateway.snapshot.tools
    few = gateway.permissions.views.of(gateway.snapshot, SHOPPER).tools
    assert len(few) == len(whole)
    assert list(few) == [tool if tool is not None and tool.server == "shop" else None for tool in whole]
    assert few[-1] is whole[-1]
    assert few[1:] == list(few)[1:]
    with pytest.raises(IndexError):
        few[len(whole)]
