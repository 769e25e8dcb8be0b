"""Logging in to a real protected server through the gateway, with a real authorization server."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import LoginRequired, UpstreamError
from mcp_optimizer.identity.oauth_client import Attempt
from tests import waiting
from tests.servers.login_world import LoginWorld, login_world

REDIRECT = "http://localhost:33418/callback"


@pytest.fixture
def world() -> Iterator[LoginWorld]:
    with login_world(seconds=60) as world:
        yield world


def gateway(world: LoginWorld, folder: Path, **entry: Any) -> Optimizer:
    """A gateway with the protected server and a database in the folder."""
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"notes": {"type": "http", "url": world.server_url, **entry}}}))
    return Optimizer.from_config(config, database=str(folder / "catalog.db"), encoder="none")


def only(optimizer: Optimizer) -> ServerSpec:
    return optimizer.servers()[0].spec


async def begin(optimizer: Optimizer) -> Attempt:
    return await optimizer.logins.begin(only(optimizer), REDIRECT)


async def log_in(optimizer: Optimizer, world: LoginWorld) -> None:
    attempt = await begin(optimizer)
    redirect = await asyncio.to_thread(world.browser, attempt.address)
    await optimizer.logins.finish(redirect, attempt)


async def until(optimizer: Optimizer, status: ServerStatus) -> None:
    await waiting.until(lambda: optimizer.servers()[0].status is status, f"the server is {status}")
    await optimizer.catalog.caught_up()


async def answer(optimizer: Optimizer) -> str:
    """What `whoami` says; empty while it cannot be called."""
    try:
        return json.dumps(await optimizer.call("whoami"))
    except UpstreamError:
        return ""


async def test_a_server_that_wants_a_login_says_so_and_comes_up_by_itself_after_it(
    world: LoginWorld, tmp_path: Path
) -> None:
    async with gateway(world, tmp_path) as optimizer:
        state = optimizer.servers()[0]
        assert state.status is ServerStatus.LOGIN_NEEDED
        assert state.failure == "login"
        assert "mcp-optimizer login notes" in state.reason
        await log_in(optimizer, world)
        await until(optimizer, ServerStatus.RUNNING)
        result = await optimizer.call("whoami")
        assert "mcp:read" in json.dumps(result)


async def test_a_running_gateway_notices_a_login_of_another_process(world: LoginWorld, tmp_path: Path) -> None:
    async with gateway(world, tmp_path) as waiting, gateway(world, tmp_path) as other:
        await log_in(other, world)
        await until(waiting, ServerStatus.RUNNING)


async def test_after_a_restart_an_expired_token_is_refreshed_and_nobody_is_asked(
    world: LoginWorld, tmp_path: Path
) -> None:
    async with gateway(world, tmp_path) as optimizer:
        await log_in(optimizer, world)
        await until(optimizer, ServerStatus.RUNNING)
    await asyncio.to_thread(world.control, expire_all=True)
    before = world.counts()
    async with gateway(world, tmp_path) as optimizer:
        await until(optimizer, ServerStatus.RESTING)
        assert world.counts() == before
        await optimizer.call("whoami")
    after = world.counts()
    assert after["refreshes"] == before["refreshes"] + 1
    assert after["authorizations"] == before["authorizations"]


async def test_a_failing_refresh_keeps_the_tokens_and_recovers(
    world: LoginWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(world, tmp_path) as optimizer:
        await log_in(optimizer, world)
        await until(optimizer, ServerStatus.RUNNING)
        await asyncio.to_thread(world.control, fail_refresh=503, expire_all=True)
        with pytest.raises(Exception, match="503"):
            await optimizer.call("whoami")
        assert (await optimizer.logins.statuses([only(optimizer)]))[0].state == "logged in"
        await asyncio.to_thread(world.control, fail_refresh=0)
        await waiting.until(lambda: answer(optimizer), "the refresh is tried again")
    assert world.counts()["authorizations"] == 1


async def test_a_revoked_login_says_once_to_log_in_again_and_a_new_one_works(
    world: LoginWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(world, tmp_path) as optimizer:
        await log_in(optimizer, world)
        await until(optimizer, ServerStatus.RUNNING)
        await asyncio.to_thread(world.control, revoke_all=True)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                with pytest.raises(LoginRequired, match="mcp-optimizer login notes"):
                    await optimizer.call("whoami")
        told = [record for record in caplog.records if "invalid_grant" in record.getMessage()]
        assert len(told) == 1
        assert (await optimizer.logins.statuses([only(optimizer)]))[0].state == "login needed"
        await log_in(optimizer, world)
        assert "mcp:read" in json.dumps(await optimizer.call("whoami"))


async def test_two_gateways_that_refresh_at_the_same_moment_make_one_refresh(world: LoginWorld, tmp_path: Path) -> None:
    async with gateway(world, tmp_path) as one, gateway(world, tmp_path) as two:
        await log_in(one, world)
        await until(one, ServerStatus.RUNNING)
        await until(two, ServerStatus.RUNNING)
        await asyncio.to_thread(world.control, expire_all=True, delay_refresh=0.5)
        before = world.counts()
        calls = [optimizer.call("whoami") for optimizer in (one, two) for _ in range(5)]
        results = await asyncio.gather(*calls)
        assert all("mcp:read" in json.dumps(result) for result in results)
        after = world.counts()
        assert after["refresh_requests"] == before["refresh_requests"] + 1
        assert after["reuses"] == 0


async def test_twenty_parallel_calls_are_not_made_one_after_the_other(world: LoginWorld, tmp_path: Path) -> None:
    async with gateway(world, tmp_path) as optimizer:
        await log_in(optimizer, world)
        await until(optimizer, ServerStatus.RUNNING)
        began = time.monotonic()
        await asyncio.gather(*(optimizer.call("slow") for _ in range(20)))
        # One after the other, they would take ten seconds; what they take is measured by hand.
        assert time.monotonic() - began < 3


async def test_a_call_that_needs_more_permissions_says_so_and_works_after_a_login_with_both(
    world: LoginWorld, tmp_path: Path
) -> None:
    async with gateway(world, tmp_path) as optimizer:
        await log_in(optimizer, world)
        await until(optimizer, ServerStatus.RUNNING)
        with pytest.raises(LoginRequired, match="mcp:write"):
            await optimizer.call("write_note", {"text": "x"})
        assert "mcp:read" in json.dumps(await optimizer.call("whoami"))
        status = (await optimizer.logins.statuses([only(optimizer)]))[0]
        assert (status.state, status.wanted) == ("more permissions needed", ("mcp:write",))
        await log_in(optimizer, world)
        await optimizer.call("write_note", {"text": "x"})
        assert "mcp:read" in json.dumps(await optimizer.call("whoami"))


async def test_a_logout_forgets_the_login_and_tells_the_authorization_server(world: LoginWorld, tmp_path: Path) -> None:
    async with gateway(world, tmp_path) as optimizer:
        await log_in(optimizer, world)
        await until(optimizer, ServerStatus.RUNNING)
        assert await optimizer.logins.log_out(only(optimizer))
        assert world.counts()["revocations"] == 1
        assert (await optimizer.logins.statuses([only(optimizer)]))[0].state == "none"
        with pytest.raises(LoginRequired):
            await optimizer.call("whoami")
        assert not await optimizer.logins.log_out(only(optimizer))


async def test_the_login_of_the_one_user_is_not_the_shared_one(world: LoginWorld, tmp_path: Path) -> None:
    own = {"auth": {"type": "oauth", "principal": "caller"}}
    async with gateway(world, tmp_path, **own) as optimizer:
        await log_in(optimizer, world)
        await until(optimizer, ServerStatus.RUNNING)
    async with gateway(world, tmp_path) as optimizer:
        assert optimizer.servers()[0].status is ServerStatus.LOGIN_NEEDED
    async with gateway(world, tmp_path, **own) as optimizer:
        await optimizer.call("whoami")
        assert optimizer.servers()[0].status is ServerStatus.RUNNING


async def test_a_login_that_has_ended_is_shown_without_a_connection(world: LoginWorld, tmp_path: Path) -> None:
    own = {"auth": {"type": "oauth"}}
    async with gateway(world, tmp_path, **own) as optimizer:
        await log_in(optimizer, world)
        await until(optimizer, ServerStatus.RUNNING)
        assert await optimizer.logins.log_out(only(optimizer))
    before = world.counts()
    async with gateway(world, tmp_path, **own) as optimizer:
        await until(optimizer, ServerStatus.LOGIN_NEEDED)
        assert "mcp-optimizer login notes" in optimizer.servers()[0].reason
        assert world.counts() == before


async def test_over_http_nothing_starts_for_an_entry_that_acts_as_each_caller_before_one_calls(
    world: LoginWorld, tmp_path: Path
) -> None:
    gateway(world, tmp_path, auth={"principal": "caller"})
    served = Optimizer.from_config(tmp_path / "mcp.json", database="none", encoder="none", http="127.0.0.1:8000")
    before = world.counts()
    async with served:
        state = served.servers()[0]
        assert (state.status, state.reason) == (ServerStatus.RESTING, "")
    assert world.counts() == before
