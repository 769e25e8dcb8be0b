"""A gateway says what its tools return: what they declare, or what their results showed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mcp_optimizer.app.parts import learning
from mcp_optimizer.catalog.learned_shapes import LearnedShapes
from mcp_optimizer.catalog.learned_use import LearnedHoldings
from mcp_optimizer.catalog.tool_forms import Detail, ToolForms
from mcp_optimizer.domain.caller import LOCAL, Caller, Principal
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import RecordingPool, gateway_over, live_catalog, mcp_tool, no_database, running

PLAIN = mcp_tool("list_cards", "List cards.")
TYPED = mcp_tool("get_card", "Get a card.", outputSchema={"properties": {"card_id": {}}, "required": ["card_id"]})


def cards(_server: str, params: dict[str, Any]) -> dict[str, Any]:
    found = {"total": 1, "cards": [{"card_id": 7, "title": "Paint the fence"}]}
    return {"content": [{"type": "text", "text": json.dumps(found)}], "isError": "fail" in params["arguments"]}


async def test_the_shape_of_a_tool_is_known_after_two_calls_that_succeeded() -> None:
    counter, shapes = TokenCounter(), LearnedShapes(no_database, 100)
    results = Results(Estimator("auto", counter), learn=learning(shapes, None))
    catalog = await live_catalog(running("board", PLAIN, TYPED), counter=counter)
    gateway = Gateway(catalog, RecordingPool(cards), ToolForms(counter), results, 5, shapes=shapes)
    plain, typed = gateway.resolve("list_cards"), gateway.resolve("get_card")
    assert gateway.shape(typed) == "{card_id}"
    await gateway.call("list_cards", {"fail": 1})
    await gateway.call("list_cards", select="cards[].title")
    assert gateway.shape(plain) == ""
    await gateway.call("list_cards")
    await asyncio.sleep(0)
    assert gateway.shape(plain) == "{total, cards[]: {card_id, title}}"
    await shapes.stop()


async def test_without_learning_a_gateway_says_what_tools_declare() -> None:
    gateway = await gateway_over(running("board", PLAIN, TYPED), pool=RecordingPool(cards))
    for _ in range(3):
        await gateway.call("list_cards")
    assert gateway.shape(gateway.resolve("list_cards")) == ""
    assert gateway.shape(gateway.resolve("get_card")) == "{card_id}"


async def test_a_search_shows_a_caller_only_the_keys_of_its_own_results() -> None:
    counter, shapes = TokenCounter(), LearnedShapes(no_database, 100)
    catalog = await live_catalog(running("board", PLAIN), counter=counter)
    results = Results(Estimator("auto", counter), learn=learning(shapes, None))
    gateway = Gateway(catalog, RecordingPool(cards), ToolForms(counter), results, 5, shapes=shapes)
    evil, other = (Caller(principal=Principal(f"key:{name}", f"key:{name}")) for name in ("evil", "other"))
    for _ in range(3):
        await gateway.call("list_cards", caller=evil)
    await asyncio.sleep(0)

    def told(caller: Caller) -> bool:
        return "card_id" in gateway.find("list cards", detail=Detail.SIGNATURE, caller=caller).text

    assert [told(caller) for caller in (evil, other, LOCAL)] == [True, False, False]
    await shapes.stop()


async def test_a_search_says_what_a_server_holds_to_the_caller_that_listed_it() -> None:
    def tables(_server: str, _params: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": "[{'name': 'trips'}, {'name': 'drivers'}]"}]}

    counter, holdings = TokenCounter(), LearnedHoldings()
    catalog = await live_catalog(running("travel", mcp_tool("list_tables", "List all tables.")), counter=counter)
    results = Results(Estimator("auto", counter), learn=learning(None, holdings))
    gateway = Gateway(catalog, RecordingPool(tables), ToolForms(counter), results, 5, holdings=holdings)
    ada, ben = (Caller(principal=Principal(f"key:{name}", f"key:{name}")) for name in ("ada", "ben"))
    await gateway.call("list_tables", caller=ada)
    await asyncio.sleep(0)

    def lines(caller: Caller) -> list[str]:
        return gateway.find("list tables", detail=Detail.SIGNATURE, caller=caller).text.split("\n")

    assert "[travel] tables: trips, drivers" in lines(ada)
    assert not [line for line in lines(ben) if "trips" in line]
