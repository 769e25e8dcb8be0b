"""One URI can mean another server for another caller: who watches it is told only of its own."""

from __future__ import annotations

import pytest
from mcp.server.subscriptions import ResourceUpdated

from tests.unit.serving.relay.two_servers import TwoServers
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

SALARY, LAST = "note:///salary", "note:///last"


async def test_legacy_clients_are_told_only_of_the_server_that_their_uri_means() -> None:
    two, told, other = TwoServers(), list[str](), list[str]()
    async with two.client("notes", "legacy", told) as notes, two.client("payroll", "legacy", other) as payroll:
        for client in (notes, payroll):
            await client.session.subscribe_resource(SALARY)
            await client.session.subscribe_resource(LAST)
        assert sorted(two.pool.watched) == sorted((s, u) for s in ("notes", "payroll") for u in (SALARY, LAST))
        two.update("payroll", SALARY)
        two.update("notes", LAST)
        await until(lambda: told and other)
        assert (told, other) == ([LAST], [SALARY])
        await notes.session.unsubscribe_resource(SALARY)
        assert ("payroll", SALARY) in two.pool.watched
        assert ("notes", SALARY) not in two.pool.watched
    await until(lambda: not two.pool.watched)


async def test_modern_listeners_are_told_only_of_the_server_that_their_uri_means() -> None:
    two = TwoServers()
    async with two.client("notes", "auto") as notes, two.client("payroll", "auto") as payroll:
        async with (
            notes.listen(resource_subscriptions=[SALARY, LAST]) as mine,
            payroll.listen(resource_subscriptions=[SALARY]) as theirs,
        ):
            two.update("payroll", SALARY)
            two.update("notes", LAST)
            assert await anext(aiter(theirs)) == ResourceUpdated(SALARY)
            assert await anext(aiter(mine)) == ResourceUpdated(LAST)
        await until(lambda: not two.pool.watched)


@pytest.mark.parametrize("uri", [SALARY, f"notes+{SALARY}"])
async def test_each_is_told_by_the_uri_that_it_asked_for(uri: str) -> None:
    two, told = TwoServers(), list[str]()
    async with two.client("notes", "legacy", told) as legacy, two.client("notes", "auto") as modern:
        # The other spelling is watched as well, and first.
        await legacy.session.subscribe_resource(SALARY)
        await legacy.session.subscribe_resource(f"notes+{SALARY}")
        async with modern.listen(resource_subscriptions=[uri]) as listening:
            two.update("notes", SALARY)
            assert await anext(aiter(listening)) == ResourceUpdated(uri)
        await until(lambda: len(told) == 2)
        assert told == [SALARY, f"notes+{SALARY}"]


async def test_what_is_not_watched_is_not_announced() -> None:
    two, told = TwoServers(), list[str]()
    async with two.client("notes", "legacy", told) as notes:
        await notes.session.subscribe_resource(LAST)
        two.update("notes", SALARY)
        two.relay.on_notice("notes", "notifications/resources/updated", {"uri": [LAST]})
        two.relay.on_notice("notes", "notifications/resources/updated", {})
        two.update("notes", LAST)
        await until(lambda: told)
        assert told == [LAST]
