"""Tenants: callers who are confined to their own servers, over one index."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_optimizer.access.policy.policy import Policy, RuleBook
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.domain.caller import Caller, Principal, Risk
from mcp_optimizer.errors import InvalidRequest, RequestError, UnknownTool
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.permissions import Permissions, Views
from mcp_optimizer.upstream.state import UpstreamState
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


@pytest.mark.slow
@pytest.mark.parametrize("kept", [64_000_000, 10_000, 0], ids=["all", "some", "the last"])
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


async def test_keys_of_one_person_are_one_caller_and_each_finds_and_calls_only_what_it_may() -> None:
    wide = Caller(key="holder:ada", principal=Principal("holder:ada", "holder:ada", key="wide"))
    bank, shop = (
        wide._replace(principal=replace(wide.principal, servers=frozenset({server}), risk=Risk.READ, key=server))
        for server in ("bank", "shop")
    )
    gateway = await gateway_over(BANK, SHOP, permissions=permissions())
    for _ in range(2):
        assert seen(gateway, wide) == {"get_balance", "bank__search", "shop__search", "pay"}
        assert seen(gateway, bank) == {"get_balance", "bank__search"}
        assert seen(gateway, shop) == {"shop__search"}, "paying is no reading"
    with pytest.raises((UnknownTool, InvalidRequest)):
        await gateway.call("get_balance", {}, "bank", shop)


async def test_a_tenant_sees_its_servers_come_and_go() -> None:
    catalog = await live_catalog(BANK, SHOP)
    gateway = new_gateway(catalog, permissions=permissions())
    assert seen(gateway, SHOPPER) == {"shop__search", "pay"}
    catalog.on_state(down("shop", "it exited"))
    assert seen(gateway, SHOPPER) == set()
    catalog.on_state(SHOP)
    assert seen(gateway, SHOPPER) == {"shop__search", "pay"}


PAYER = Caller(key="payer", principal=Principal("key:4", "key:payer", servers=frozenset({"mine"})))
MINE = running(
    "mine",
    mcp_tool("pay_card", "Pay with a card at the harbour"),
    mcp_tool("list_harbours", "List all harbours and their lighthouses"),
    mcp_tool("close_account", "Close an account for ever"),
)
HIDDEN = (
    running("pay", *(mcp_tool(f"card_{number}", f"Harbour {number} of lighthouses") for number in range(30))),
    running("other", mcp_tool("lihgthouse", "Lihgthouse ships")),
)


async def seen_with(*hidden: UpstreamState) -> list[object]:
    """What a caller can find out: scores, repaired words, names and suggestions."""
    gateway = await gateway_over(MINE, *hidden, permissions=permissions())
    found: list[object] = []
    for request in ("pay at the harbour", "lihgthouse", "close it", "card_3", "harbour 7"):
        reply = gateway.find(request, limit=9, detail=Detail.SIGNATURE, caller=PAYER)
        found.append(([(hit.tool.name, hit.score) for hit in reply.tools], reply.text, reply.note))
    for name in ("pay.card", "pay__card", "pay_card", "pay__nothing", "card_3", "other.lihgthouse"):
        try:
            found.append((await gateway.permissions.resolve(gateway.snapshot, name, None, PAYER)).name)
        except RequestError as error:
            found.append(str(error))
    return found


async def test_servers_that_do_not_exist_for_a_caller_change_nothing_that_it_sees() -> None:
    alone = await seen_with()
    assert alone == await seen_with(*HIDDEN)
    assert alone[5] == "pay_card"


async def test_callers_who_see_the_same_servers_share_the_index_of_their_tools() -> None:
    gateway = await gateway_over(MINE, *HIDDEN, permissions=permissions())
    views = gateway.permissions.views
    twin = PAYER._replace(key="twin", principal=Principal("key:5", "key:twin", servers=frozenset({"mine"})))
    one, other = (views.of(gateway.snapshot, caller) for caller in (PAYER, twin))
    assert one.index is other.index
    assert (one.index.size, len(one.tools)) == (3, 3)
