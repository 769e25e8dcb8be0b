"""A message that a server relates to nothing goes to the only client it can be about, or to nobody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from mcp_optimizer.limits import DEFAULT_LIMITS
from mcp_optimizer.upstream.exchanges import Attribution, Deadlines, Exchange


async def _ignored(_method: str, _params: Any) -> None:
    pass


def exchange(key: str) -> Exchange:
    link: Any = SimpleNamespace(key=key, tell=_ignored)
    return Exchange(link, None, None, DEFAULT_LIMITS, Deadlines({}))


async def test_a_message_during_the_calls_of_one_client_is_for_that_client() -> None:
    ours = {1: exchange("ada"), 2: exchange("ada")}
    assert Attribution().whose(ours, None, is_shared=True) is ours[2]
    assert Attribution().whose({**ours, 3: exchange("bob")}, None, is_shared=True) is None


async def test_what_may_still_be_about_the_last_call_of_another_client_reaches_nobody() -> None:
    attribution, ours = Attribution(), {2: exchange("bob")}
    attribution.ended(cast("Any", SimpleNamespace(key="ada")))
    assert attribution.whose(ours, None, is_shared=True) is None
    # On a session of one client, and where the transport says what a message is about, there is no doubt.
    assert attribution.whose(ours, None, is_shared=False) is ours[2]
    assert attribution.whose(ours, 2, is_shared=True) is ours[2]
    attribution.ended(cast("Any", SimpleNamespace(key="bob")))
    assert Attribution().whose(ours, None, is_shared=True) is ours[2]


async def test_the_clients_that_are_remembered_are_bounded() -> None:
    attribution = Attribution()
    for number in range(5_000):
        attribution.ended(cast("Any", SimpleNamespace(key=f"client {number}")))
    assert attribution.whose({1: exchange("ada")}, None, is_shared=True) is None
