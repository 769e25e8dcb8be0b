"""Where no tool of a catalog fits, the nearest are returned with a mark that says so."""

from __future__ import annotations

import pytest

from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.gateway.found_tools import FoundTools
from mcp_optimizer.search.actions import destroys
from mcp_optimizer.search.doubt import DOUBT_FEATURES, Judge, asks_the_world, bundled_world, is_short
from mcp_optimizer.search.encoders.choose import load_encoder
from mcp_optimizer.search.words import words
from tests.unit.catalogs import mcp_tool, new_catalog, new_gateway, running

SERVERS = (
    running(
        "playwright",
        mcp_tool("browser_resize", "Resize the browser window"),
        mcp_tool("browser_close", "Close the page"),
        mcp_tool("browser_click", "Perform click on a web page"),
    ),
    running(
        "board",
        mcp_tool("create_card", "Create a card in a list of a board"),
        mcp_tool("delete_card", "Delete a card of a board"),
        mcp_tool("delete_board", "Delete a board with its lists"),
    ),
    running("shop", mcp_tool("create_refund", "Refund a payment, in whole or in part")),
)


async def found(request: str) -> FoundTools:
    catalog = new_catalog()
    for server in SERVERS:
        catalog.on_state(server)
    await catalog.use_encoder(load_encoder("bundled"))
    await catalog.caught_up()
    return new_gateway(catalog).find(request, detail=Detail.SIGNATURE)


async def test_a_reply_says_first_that_no_tool_fits_and_shows_the_nearest() -> None:
    reply = await found("order a pizza with mushrooms")
    assert not reply.fits
    assert reply.text.startswith("No tool fits well. These are the nearest")
    assert 1 <= len(reply.tools) <= 3
    assert reply.note.startswith("No tool fits well.")


async def test_what_fits_is_returned_without_a_mark() -> None:
    reply = await found("refund a payment")
    assert reply.fits
    assert reply.tools[0].tool.name == "create_refund"
    assert "No tool fits" not in reply.text


@pytest.mark.slow
@pytest.mark.parametrize("request_", ["empty the recycle bin of my computer", "cancel my trip to the moon"])
async def test_a_tool_that_deletes_is_not_first_where_nothing_fits(request_: str) -> None:
    reply = await found(request_)
    assert not destroys(words(reply.tools[0].tool.name))


@pytest.mark.slow
async def test_one_of_several_actions_that_nothing_fits_is_marked_by_itself() -> None:
    reply = await found("refund a payment; click the button on the page; order a pizza with mushrooms")
    assert [part.fits for part in reply.parts] == [True, True, False]
    assert "No tool fits well; the nearest:" in reply.text


@pytest.mark.parametrize("request_", ["who wrote Moon River", "find the latest news about Mars", "is 17 prime"])
def test_a_question_about_the_world_can_be_searched_for(request_: str) -> None:
    assert asks_the_world(request_)


@pytest.mark.parametrize("request_", ["what is my bank balance", "how did I sleep", "order a pizza", "resize image"])
def test_a_question_about_oneself_or_a_wish_cannot(request_: str) -> None:
    assert not asks_the_world(request_)


def test_only_short_requests_are_judged() -> None:
    assert is_short(words("resize image"))
    assert not is_short(words("resize the image " * 10))


def test_weights_for_other_features_are_rejected() -> None:
    stored = {"features": [*DOUBT_FEATURES, "more"], "weights": [], "bias": 0.0, "threshold": 0.0}
    with pytest.raises(ValueError, match="other features"):
        Judge.of(stored)


def test_what_is_like_tools_elsewhere_is_near_them() -> None:
    world = bundled_world()
    own = world.vectors[0]
    assert world.nearness(own) > world.nearness(-own)
