"""A caller sees exactly what it may call: in searches, lists, names and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mcp_optimizer.access.policy.policy import Policy, RuleBook
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.caller import LOCAL, Caller, Effect, Principal, Risk, Rule
from mcp_optimizer.errors import AmbiguousTool, CallNotWaiting, CallRefused, InvalidRequest, UnknownTool
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.permissions import Permissions, Views
from mcp_optimizer.upstream.questions import ParkedCalls
from mcp_optimizer.upstream.session_choice import OnlyClient
from mcp_optimizer.upstream.state import PoolOptions
from mcp_optimizer.upstream.supervisor import Supervisor
from tests.unit.catalogs import RecordingPool, down, gateway_over, live_catalog, mcp_tool, new_gateway, running

BANK = running(
    "bank",
    mcp_tool("get_balance", "Read the balance of an account", annotations={"readOnlyHint": True}),
    mcp_tool("transfer_money", "Transfer money to another account"),
    mcp_tool("delete_account", "Delete an account for good"),
    mcp_tool("search", "Search in accounts"),
)
SHOP = running(
    "shop",
    mcp_tool("search", "Search for goods", annotations={"readOnlyHint": True}),
    mcp_tool("bank__refund", "Pretend to be the bank"),
)
EVERYBODY = Caller(key="key", principal=Principal("key:1", "key:all"))
READER = Caller(key="reader", principal=Principal("key:2", "key:reader", risk=Risk.READ))
SHOPPER = Caller(key="shopper", principal=Principal("key:3", "key:shopper", servers=frozenset({"shop"})))


class Asked:
    """A client whose user can be asked."""

    key = "asked"
    capabilities: Mapping[str, Any] = {"elicitation": {}}
    is_modern = False
    log_level = None

    def __init__(self, answer: dict[str, Any] | None = None) -> None:
        self.answer = answer or {"action": "decline"}
        self.questions: list[Mapping[str, Any]] = []

    @property
    def lasting(self) -> Asked:
        return self

    async def ask(self, _method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.questions.append(params)
        return self.answer

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        pass

    async def release_streams(self) -> None:
        pass


async def gateway_with(*rules: Rule, pool: RecordingPool | None = None) -> Gateway:
    permissions = Permissions(Views(Policy(RuleBook(rules))))
    return await gateway_over(BANK, SHOP, down("jira", "it exited"), pool=pool, permissions=permissions)


def names(gateway: Gateway, caller: Caller) -> set[str]:
    """What the caller is shown, which every way of looking must agree on."""
    listed = {tool.name for tool in gateway.list_tools(caller=caller).tools}
    snapshot = gateway.permissions.views.of(gateway.snapshot, caller)
    assert {tool.name for tool in snapshot.running} == set(snapshot.by_name) == listed
    found = {
        hit.tool.name
        for word in ("balance account", "transfer money", "delete account", "search", "refund bank")
        for hit in gateway.find(word, limit=10, caller=caller).tools
    }
    assert found <= listed
    return listed


async def test_a_caller_who_may_do_everything_sees_the_catalog_itself() -> None:
    gateway = await gateway_with()
    assert gateway.permissions.views.of(gateway.snapshot, EVERYBODY) is gateway.snapshot


@pytest.mark.promise("found-is-callable")
async def test_a_reader_sees_only_what_reads_and_is_told_why_the_rest_is_refused() -> None:
    gateway = await gateway_with(pool=(pool := RecordingPool()))
    assert names(gateway, READER) == {"get_balance", "bank__search", "shop__search"}
    for name in ("transfer_money", "delete_account", "bank__delete_account"):
        with pytest.raises(CallRefused, match="may only read"):
            await gateway.call(name, caller=READER)
    with pytest.raises(CallRefused):
        await gateway.pass_on("delete_account", {}, READER)
    assert pool.calls == []


async def test_a_server_of_others_does_not_exist() -> None:
    gateway = await gateway_with(pool=(pool := RecordingPool()))
    assert names(gateway, SHOPPER) == {"shop__search", "shop__bank__refund"}
    told = []
    for name, server in (("get_balance", None), ("bank__get_balance", None), ("search", "bank"), ("x", "nowhere")):
        with pytest.raises((UnknownTool, InvalidRequest)) as raised:
            await gateway.call(name, {}, server, SHOPPER)
        told.append(str(raised.value))
    assert not [text for text in told if "bank'" in text.replace("'bank__", "") and "Unknown server" not in text]
    assert told[2].replace("bank", "X") == told[3].replace("nowhere", "X")
    assert [state.name for state in gateway.list_tools(caller=SHOPPER).missing] == []
    assert pool.calls == []


async def test_no_other_server_takes_the_calls_of_one_that_a_connection_leaves_out() -> None:
    gateway = await gateway_with(pool=(pool := RecordingPool()))
    with pytest.raises(UnknownTool) as raised:
        await gateway.call("bank__refund", {}, caller=EVERYBODY._replace(narrowed=frozenset({"shop"})))
    assert set(raised.value.nearest) <= {"shop__search", "shop__bank__refund"}
    assert pool.calls == []


async def test_the_name_of_a_server_that_does_not_exist_for_a_caller_is_like_any_other() -> None:
    gateway = await gateway_with(pool=(pool := RecordingPool()))
    await gateway.call("bank__refund", {}, caller=SHOPPER)
    assert [server for server, _, _ in pool.calls] == ["shop"]


async def test_a_name_is_unambiguous_if_only_one_of_its_tools_may_be_called() -> None:
    deny = Rule(Effect.DENY, server="bank", tool="search")
    gateway = await gateway_with(deny, pool=(pool := RecordingPool()))
    await gateway.call("search", {}, caller=EVERYBODY)
    assert [server for server, _, _ in pool.calls] == ["shop"]
    with pytest.raises(AmbiguousTool):
        await (await gateway_with()).call("search", {}, caller=EVERYBODY)


async def test_a_rule_hides_a_tool_and_the_refusal_says_which_and_why() -> None:
    deny = Rule(Effect.DENY, tool="delete_*", reason="Accounts are deleted by hand.")
    gateway = await gateway_with(deny)
    assert "delete_account" not in names(gateway, LOCAL)
    with pytest.raises(CallRefused, match=r"rule 1.*deleted by hand"):
        await gateway.call("delete_account")


async def test_an_address_narrows_and_never_widens() -> None:
    gateway = await gateway_with()
    views = gateway.permissions.views
    narrowed = EVERYBODY._replace(narrowed=frozenset({"shop"}))
    assert names(gateway, narrowed) == {"shop__search", "shop__bank__refund"}
    assert names(gateway, SHOPPER._replace(narrowed=frozenset({"bank", "shop"}))) == names(gateway, SHOPPER)
    views.check_narrowing(gateway.snapshot, narrowed)
    for caller, asked in ((EVERYBODY, "nowhere"), (SHOPPER, "bank")):
        with pytest.raises(InvalidRequest, match=asked):
            views.check_narrowing(gateway.snapshot, caller._replace(narrowed=frozenset({asked})))
    assert not views.permits_reading(SHOPPER._replace(narrowed=frozenset({"bank"})), "shop")


async def test_what_must_be_asked_for_exists_only_for_those_who_can_be_asked() -> None:
    ask = Rule(Effect.ASK, risk=Risk.DESTRUCTIVE)
    gateway = await gateway_with(ask)
    assert "delete_account" not in names(gateway, EVERYBODY)
    assert "delete_account" in names(gateway, EVERYBODY._replace(link=Asked()))
    with pytest.raises(CallRefused, match="needs a person's agreement"):
        await gateway.call("delete_account", caller=EVERYBODY)


@pytest.mark.parametrize(
    "answer", [{"action": "decline"}, {"action": "cancel"}, {}, {"action": "accept", "content": 3}]
)
async def test_a_call_that_nobody_agrees_to_is_not_made(answer: dict[str, Any]) -> None:
    gateway = await gateway_with(Rule(Effect.ASK), pool=(pool := RecordingPool()))
    with pytest.raises(CallRefused, match="no person agreed"):
        await gateway.call("delete_account", caller=EVERYBODY._replace(link=Asked(answer)))
    assert pool.calls == []


async def test_a_yes_for_an_hour_is_asked_for_once_and_only_for_this_caller_and_tool() -> None:
    gateway = await gateway_with(Rule(Effect.ASK, risk=Risk.DESTRUCTIVE), Rule(Effect.ASK, tool="transfer*"))
    link = Asked({"action": "accept", "content": {"approve_for": "this tool for an hour"}})
    caller, other = EVERYBODY._replace(link=link), READER._replace(principal=Principal("key:9", "key:9"), link=link)
    for _ in range(3):
        await gateway.call("delete_account", caller=caller)
    assert len(link.questions) == 1
    assert link.questions[0]["message"].startswith(
        'mcp-optimizer asks: On server "bank", may "delete_account" be called for "key:all"?'
    )
    await gateway.call("transfer_money", caller=caller)
    await gateway.call("delete_account", caller=other)
    assert len(link.questions) == 3


async def test_a_yes_for_one_call_is_for_one() -> None:
    gateway = await gateway_with(Rule(Effect.ASK))
    link = Asked({"action": "accept", "content": {"approve_for": "this call"}})
    for _ in range(2):
        await gateway.call("get_balance", caller=EVERYBODY._replace(link=link))
    assert len(link.questions) == 2


async def test_a_caller_who_calls_too_often_is_told_when_to_try_again() -> None:
    gateway = await gateway_with()
    limited = EVERYBODY._replace(principal=replace(EVERYBODY.principal, calls_per_minute=2))
    for _ in range(2):
        await gateway.call("get_balance", caller=limited)
    with pytest.raises(Exception, match=r"2 a minute. Try again in"):
        await gateway.call("get_balance", caller=limited)
    await gateway.call("get_balance", caller=EVERYBODY)


async def test_views_follow_the_catalog_and_their_number_is_bounded() -> None:
    gateway = await gateway_with()
    views = gateway.permissions.views
    before = gateway.snapshot
    assert views.of(before, READER) is views.of(before, READER)
    for number in range(300):
        views.of(before, READER._replace(narrowed=frozenset({f"s{number}"})))
    after = replace(before, tools=tuple(None for _ in before.tools), mask=None)
    assert views.of(after, READER).running == ()


async def test_a_token_without_the_scopes_finds_a_tool_and_cannot_call_it_in_any_spelling() -> None:
    gateway = await gateway_with(pool=(pool := RecordingPool()))
    token = Principal("token:ada", "corp:ada", scopes=frozenset(), classes=frozenset({Risk.READ}))
    caller = Caller(key="ada", principal=token)
    assert "delete_account" in names(gateway, caller)
    narrowed = caller._replace(narrowed=frozenset({"bank"}))
    for name, server, who in (("delete_account", None, caller), ("deleteAccount", "bank", caller)):
        with pytest.raises(CallRefused, match="scopes are not enough"):
            await gateway.call(name, {}, server, who)
        with pytest.raises(CallRefused, match="scopes are not enough"):
            await gateway.call(name, {}, server, narrowed)
    await gateway.call("get_balance", caller=caller)
    assert len(pool.calls) == 1


async def test_a_call_is_not_made_if_its_tool_changed_while_a_person_was_asked() -> None:
    catalog = await live_catalog(BANK, SHOP)
    gateway = new_gateway(
        catalog, pool := RecordingPool(), permissions=Permissions(Views(Policy(RuleBook([Rule(Effect.ASK)]))))
    )

    class Slow(Asked):
        async def ask(self, _method: str, params: Mapping[str, Any]) -> dict[str, Any]:
            catalog.on_state(running("bank", mcp_tool("delete_account", "Delete everything and more")))
            await catalog.caught_up()
            return {"action": "accept"}

    with pytest.raises(InvalidRequest, match="changed while a person was asked"):
        await gateway.call("delete_account", caller=EVERYBODY._replace(link=Slow()))
    assert pool.calls == []


async def test_a_request_that_continues_a_parked_call_makes_no_other() -> None:
    """Such a request was not asked about again, so it must not become a call of its own."""
    supervisor = Supervisor(
        ServerSpec("bank", Transport.STDIO, command="unused"),
        PoolOptions(),
        {},
        lambda _state: None,
        lambda _server, _method, _params, _key: None,
        OnlyClient(),
        ParkedCalls(),
    )
    caller = EVERYBODY._replace(link=Asked(), passed_on={"requestState": "gone"}, is_continuing=True)
    with pytest.raises(CallNotWaiting):
        await supervisor.request("tools/call", {"name": "delete_account"}, caller)
