"""`login`, `logout` and `auth status` as processes, with a real authorization server and a real browser."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest

from tests.conftest import plain_server
from tests.e2e.logging_in import given, pasted, person_at, servers
from tests.e2e.running import Finished, command, over_stdio, until_found
from tests.e2e.test_http_upstreams import free_port, listening
from tests.servers.login_world import LoginWorld, login_world

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
CONFORMANT = Path(__file__).parents[1] / "servers" / "conformant.py"
pytestmark = pytest.mark.slow

OTHER = "http://localhost:33418/callback?code=c&state=s&iss=i"


@pytest.fixture(scope="module")
def world() -> Iterator[LoginWorld]:
    with login_world(seconds=60) as world:
        yield world


def refused(done: Finished, code: int, said: str) -> None:
    """It ended with one sentence that says what is wrong."""
    assert (done.code, done.out) == (code, ""), done
    last = done.err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last
    assert done.err.count("error: ") == 1
    assert "Traceback" not in done.err


async def test_a_login_by_paste_is_used_shown_and_forgotten(world: LoginWorld, tmp_path: Path) -> None:
    options = servers(tmp_path, world)
    done = await pasted(world, *options)
    assert (done.code, done.out) == (0, "")
    assert done.err.endswith("Logged in to notes: 3 tools.\n")
    assert "Traceback" not in done.err
    [login] = (await command("auth", "status", "--json", *options, cold=True)).json["logins"]
    assert (login["server"], login["state"], login["issuer"]) == ("notes", "logged in", world.issuer)
    assert (login["scopes"], login["refreshable"]) == (["mcp:read"], True)
    assert "mcp:read" in (await command("call", "whoami", *options)).out
    out = await command("logout", "notes", *options, cold=True)
    assert (out.code, out.err) == (0, "Logged out of notes.\n")
    called, status = await asyncio.gather(command("call", "whoami", *options), command("auth", "status", *options))
    assert called.code == 1
    assert "The server 'notes' is not running: login needed: run `mcp-optimizer login notes`.\n" in called.err
    assert status.out == "notes: none\n"


async def test_what_is_pasted_must_be_the_answer_to_this_login(world: LoginWorld, tmp_path: Path) -> None:
    options = servers(tmp_path, world)

    async def answered(text: str) -> Finished:
        async with person_at("login", "notes", "--paste", *options) as person:
            return await person.answer((await person.address() if text == "same" else text) + "\n")

    said = {
        OTHER: "is of another login",
        "garbage": "not an address that a login ends at",
        "": "Nothing was pasted. Begin again.",
        "same": "that is the address to log in at",
    }
    done = await asyncio.gather(*map(answered, said))
    for one, reason in zip(done, said.values(), strict=True):
        refused(one, 1, reason)


async def test_a_server_that_nobody_can_log_in_to_says_why(world: LoginWorld, tmp_path: Path) -> None:
    port = free_port()
    entries: dict[str, Any] = {
        "local": plain_server("local"),
        "key": {"type": "http", "url": world.server_url, "headers": {"Authorization": "Bearer x"}},
        "open": {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"},
        "gone": {"type": "http", "url": f"http://127.0.0.1:{free_port()}/mcp"},
        "notes": {"type": "http", "url": world.server_url},
    }
    options = given(entries, tmp_path)
    said = {
        "nobody": (2, "There is no server 'nobody'. Servers: "),
        "local": (2, "'local' is a command on this machine; its secrets are in the env of its entry."),
        "key": (2, "has its own headers"),
        "open": (2, "'open' runs without a login and offers none. Just use it."),
        "gone": (1, "nothing answers at its url. Run `mcp-optimizer doctor`."),
        "notes": (2, "cannot be kept with --database none"),
    }
    async with listening(port, str(CONFORMANT), "--http", str(port)):
        done = await asyncio.gather(
            *(
                command("login", name, "--paste", *options, *(["--database", "none"] if name == "notes" else []))
                for name in said
            )
        )
    for one, (code, reason) in zip(done, said.values(), strict=True):
        refused(one, code, reason)
    assert "'nobody'" in (await command("logout", "nobody", *options)).err


async def test_an_authorization_server_that_cannot_be_used_is_named_with_what_to_write(tmp_path: Path) -> None:
    with login_world(pkce_metadata=False) as world:
        refused(await command("login", "notes", "--paste", *servers(tmp_path, world)), 1, '"pkce": "assume"')
    with login_world(registration=False) as world:
        done = await command("login", "notes", "--paste", *servers(tmp_path, world))
        refused(done, 1, "registers no clients: register the gateway there by hand")
        assert '"client_id": "..."' in done.err
        assert "http://localhost:33418/callback" in done.err


@pytest.mark.parametrize("way", ["--paste", pytest.param("--no-browser", marks=pytest.mark.full)])
async def test_a_denied_login_ends_the_command(world: LoginWorld, tmp_path: Path, way: str) -> None:
    await asyncio.to_thread(world.control, deny=True)
    try:
        async with person_at("login", "notes", way, *servers(tmp_path, world)) as person:
            redirect = await asyncio.to_thread(world.browser, await person.address())
            if way == "--paste":
                done = await person.answer(f"{redirect}\n")
            else:
                page = await asyncio.to_thread(world.http.get, redirect)
                assert (page.status_code, "Not logged in" in page.text) == (400, True)
                done = await person.end()
    finally:
        await asyncio.to_thread(world.control, deny=False)
    assert done.err.endswith("refused the login (access_denied): begin again, and allow it\n")
    assert done.code == 1


async def test_a_browser_that_comes_back_logs_in_and_forged_answers_do_not_end_the_wait(
    world: LoginWorld, tmp_path: Path
) -> None:
    async with (
        person_at("login", "notes", "--no-browser", *servers(tmp_path, world)) as person,
        httpx2.AsyncClient(trust_env=False) as http,
    ):
        address = await person.address()
        redirect = await asyncio.to_thread(world.browser, address)
        callback = redirect.partition("?")[0]
        for forged in ("?code=c&state=forged", "?error=access_denied&state=forged", "", "?state=", "?code=c"):
            assert (await http.get(callback + forged)).status_code == 400
        assert (await http.get(callback.replace("/callback", "/"))).status_code == 404
        assert person.process.returncode is None
        page = await http.get(redirect)
        assert "You are logged in to notes" in page.text
        assert page.headers["cache-control"] == "no-store"
        done = await person.end()
    assert done.code == 0
    assert done.out.strip() == address
    assert done.err.endswith("Logged in to notes: 3 tools.\n")


@pytest.mark.parametrize("way", ["--paste", pytest.param("--no-browser", marks=pytest.mark.full)])
async def test_whoever_waits_may_give_up(world: LoginWorld, tmp_path: Path, way: str) -> None:
    async with person_at("login", "notes", way, *servers(tmp_path, world), cold=True) as person:
        assert await person.address()
        person.process.send_signal(signal.SIGINT)
        done = await person.end(10)
    assert done.code == 130
    assert "Traceback" not in done.err


@pytest.mark.skipif(not CHROMIUM, reason="no chromium here: apt-get install chromium")
async def test_a_person_logs_in_with_a_real_browser(world: LoginWorld, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    async with (
        person_at("login", "notes", "--no-browser", *servers(tmp_path, world)) as person,
        playwright.async_playwright() as driver,
    ):
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = await browser.new_page()
            await page.goto(await person.address())
            await page.get_by_role("button", name="Allow").click()
            await page.get_by_role("heading", name="Logged in").wait_for()
            assert "You are logged in to notes" in await page.locator("body").inner_text()
        finally:
            await browser.close()
        done = await person.end()
    assert (done.code, done.err.endswith("Logged in to notes: 3 tools.\n")) == (0, True)


async def test_a_running_gateway_uses_logins_and_logouts_of_other_processes(world: LoginWorld, tmp_path: Path) -> None:
    options = servers(tmp_path, world)
    async with over_stdio(Path(str(options[1])), *options[2:]) as client:
        assert (await pasted(world, *options)).code == 0
        await until_found(client, "the client and the scopes of the token", "whoami")

        async def called(tool: str) -> str:
            result = await client.call_tool("call_tool", {"tool_name": tool, "parameters": {}})
            assert isinstance(result.content[0], types.TextContent)
            return result.content[0].text

        assert "needs more permissions than its login has (mcp:write)" in await called("write_note")
        # With more permissions.
        assert (await pasted(world, *options)).code == 0
        told = await called("write_note")
        assert told.startswith("{"), told
        assert json.loads(told)["scopes"] == ["mcp:read", "mcp:write"]
        # After what was given before was revoked.
        await asyncio.to_thread(world.control, revoke_all=True)
        assert "mcp-optimizer login notes" in await called("whoami")
        assert (await pasted(world, *options)).code == 0
        assert "scopes" in await called("whoami")
        # A token that was refreshed must not bring back what somebody has logged out of.
        assert (await command("logout", "notes", *options)).code == 0
        assert "mcp-optimizer login notes" in await called("whoami")
        [login] = (await command("auth", "status", "--json", *options)).json["logins"]
        assert login["state"] == "none"
