"""A login in the middle of a call: who is asked, how often, and what becomes of the call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.errors import LoginRequired, OptimizerError
from mcp_optimizer.upstream.authorization import LoginOffer
from mcp_optimizer.upstream.questions import ParkedCalls, Request
from mcp_optimizer.upstream.server_calls import LoginInCall
from tests import waiting

ADDRESS = "https://login.example/authorize"
REQUEST = Request.of("notes", "tools/call", {"name": "write"})
NEEDED = LoginRequired("notes", "login needed")


class Link:
    """A legacy client whose user answers."""

    is_modern = False
    log_level = None

    def __init__(self, action: str = "accept", key: str = "client", **capabilities: Any) -> None:
        self.key = key
        self.capabilities = capabilities or {"elicitation": {"url": {}}}
        self._action = action
        self.asked: list[Mapping[str, Any]] = []

    @property
    def lasting(self) -> Link:
        return self

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        assert method == "elicitation/create"
        self.asked.append(params)
        return {"action": self._action}

    async def tell(self, method: str, params: Mapping[str, Any]) -> None: ...

    async def release_streams(self) -> None: ...


class Logins:
    """Offers one login, which is made when `made` is set."""

    def __init__(self) -> None:
        self.made = asyncio.Event()
        self.offers = 0

    async def headers(self) -> dict[str, str]:
        return {}

    async def refused(self, status: int, challenges: str, sent: Mapping[str, str]) -> bool:
        return False

    def secrets(self) -> dict[str, str]:
        return {}

    async def missing(self) -> str:
        return ""

    async def until_login(self) -> None: ...

    async def has_another(self) -> bool:
        return False

    def offered(self) -> AbstractAsyncContextManager[LoginOffer]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[LoginOffer]:
        self.offers += 1
        yield LoginOffer(ADDRESS, self.made.wait)


async def answer(_caller: Caller) -> dict[str, Any]:
    return {"content": []}


def calling(logins: Logins, link: Link) -> asyncio.Task[dict[str, Any]]:
    login = LoginInCall(logins, ParkedCalls())
    return asyncio.create_task(login.first(NEEDED, REQUEST, Caller(link=link), answer))


async def test_the_call_goes_on_after_the_login() -> None:
    logins, link = Logins(), Link()
    call = calling(logins, link)
    await waiting.until(lambda: link.asked, "the client is asked")
    assert link.asked[0]["url"] == ADDRESS
    logins.made.set()
    assert await call == {"content": []}


async def test_calls_at_the_same_time_share_one_question() -> None:
    logins, link = Logins(), Link()
    login = LoginInCall(logins, ParkedCalls())
    calls = [asyncio.create_task(login.first(NEEDED, REQUEST, Caller(link=link), answer)) for _ in range(20)]
    await waiting.until(lambda: link.asked, "the client is asked")
    logins.made.set()
    assert await asyncio.gather(*calls) == [{"content": []}] * 20
    assert logins.offers == 1
    assert len(link.asked) == 1


async def test_two_clients_are_asked_each() -> None:
    logins = Logins()
    login = LoginInCall(logins, ParkedCalls())
    links = [Link(key="one"), Link(key="two")]
    calls = [asyncio.create_task(login.first(NEEDED, REQUEST, Caller(link=link), answer)) for link in links]
    await waiting.until(lambda: all(link.asked for link in links), "both are asked")
    logins.made.set()
    await asyncio.gather(*calls)


async def test_whoever_shared_the_question_of_a_call_that_was_cancelled_is_not_left_waiting() -> None:
    logins, link = Logins(), Link()
    login = LoginInCall(logins, ParkedCalls())
    first = asyncio.create_task(login.first(NEEDED, REQUEST, Caller(link=link), answer))
    await waiting.until(lambda: link.asked, "the client is asked")
    second = asyncio.create_task(login.first(NEEDED, REQUEST, Caller(link=link), answer))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(LoginRequired):
        await second


@pytest.mark.parametrize("action", ["decline", "cancel", "anything"])
async def test_who_does_not_want_to_log_in_gets_the_error(action: str) -> None:
    with pytest.raises(LoginRequired):
        await calling(Logins(), Link(action))


async def test_a_client_that_cannot_show_addresses_is_not_asked() -> None:
    link = Link(elicitation={})
    with pytest.raises(LoginRequired):
        await calling(Logins(), link)
    assert link.asked == []


async def test_a_login_that_cannot_be_offered_is_the_error_of_the_call() -> None:
    class Broken(Logins):
        def offered(self) -> AbstractAsyncContextManager[LoginOffer]:
            raise OptimizerError("no metadata")

    with pytest.raises(LoginRequired):
        await calling(Broken(), Link())
