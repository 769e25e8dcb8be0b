"""The name that sign-ins have to themselves: who is led there, who is told, and what else is taken for it."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest

from mcp_optimizer.dashboard.sign_ins import SignInHost
from mcp_optimizer.domain.caller import Role
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.local_names import LocalNames
from mcp_optimizer.runtime.signatures import Signatures
from tests.unit.dashboard.visiting import gateway, sign_in, ticket_of

TOKEN = "a-token-of-tests"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "catalog.sqlite"


async def test_who_signs_in_by_a_form_keeps_nothing_for_the_address(place: Path) -> None:
    async with gateway(place, dashboard_token=TOKEN) as world:
        for text in (world.keys[Role.SEE], TOKEN):
            async with world.browser() as client:
                answer = await client.post("/login", data={"token": text})
                assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)
                assert text not in answer.text
                assert (await sign_in(client, text)).status_code == 200
                assert client.base_url.host.endswith(".localhost")
                assert (await client.get("/callers")).status_code == 200
                # Neither the sign-in nor the name of where it is kept is known at the address.
                client.base_url = httpx2.URL("http://127.0.0.1:8765")
                answer = await client.get("/callers")
                assert (answer.status_code, ".localhost" in answer.text) == (401, False)


async def test_a_ticket_stands_for_whoever_gave_the_key_and_ends_with_it(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.SEE) as client:
        assert "see-key" in (await client.get("/")).text
        assert (await client.post("/callers/new", data={"name": "x"})).status_code == 403


async def test_no_other_name_is_admitted(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.SEE) as client:
        own = client.base_url.host
        for host in (
            f"x.{own}",
            f"{own}.evil.example",
            f"{'0' * 32}.localhost",
            f"{own[1:]}",
            f"{own}@evil.example",
            "é.localhost",
            ".localhost",
        ):
            answer = await client.get("/", headers={b"Host": host.encode("latin-1")})
            assert answer.status_code in (400, 421), host
            assert own not in answer.text
        assert (await client.get("/", headers={"Host": own.upper()})).status_code == 200
        # It is for pages, not for clients.
        asked = await client.post("/mcp", json={}, headers={"Authorization": f"Bearer {world.keys[Role.SEE]}"})
        assert asked.status_code == 421


async def test_a_page_of_another_port_of_the_same_name_changes_nothing(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.MANAGE) as client:
        own = client.base_url
        for origin in (f"http://{own.host}:1", "http://127.0.0.1:8765", "null", f"https://{own.host}:8765"):
            answer = await client.post("/callers/new", data={"name": "x"}, headers={"Origin": origin})
            assert answer.status_code == 403, origin


async def test_keys_are_made_for_the_address_not_for_the_name(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.MANAGE) as client:
        made = await client.post("/callers/new", data={"name": "new", "risk": "read"})
        assert made.status_code == 200
        assert "/mcp" in made.text
        assert ".localhost" not in made.text


async def test_with_a_public_address_the_command_leads_there(place: Path) -> None:
    async with gateway(place, public_url="http://gate.example") as world, world.browser() as client:
        entered = await client.get(f"/enter?ticket={await ticket_of(world.optimizer)}")
        assert "set-cookie" in entered.headers
        assert (await sign_in(client, world.keys[Role.SEE])).status_code == 303


async def test_nobody_is_led_to_an_issuer_that_the_gateway_did_not_name(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.MANAGE) as client:
        signatures = world.optimizer.parts.storage.signatures
        for purpose, mark, to in (
            ("", "m", "http://evil.example"),
            ("the way to an issuer", "other", "http://evil.example"),
        ):
            signature = await signatures.sign(purpose, "m http://evil.example") if purpose else "x"
            query = urlencode({"mark": mark, "to": to, "signature": signature})
            answer = await client.get(f"/logins/set-out?{query}", headers={"Host": "127.0.0.1:8765"})
            assert (answer.status_code, "location" in answer.headers) == (400, False)


async def test_while_the_shared_key_cannot_be_read_there_is_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unread() -> None:
        return None

    monkeypatch.setattr("mcp_optimizer.dashboard.sign_ins._PATIENCE", 0.05)
    with pytest.raises(CatalogError, match="cannot be read"):
        await SignInHost(Signatures(unread), LocalNames()).origin(8765)


async def test_a_program_at_the_other_address_of_this_machine_is_sent_no_sign_in(place: Path) -> None:
    async with gateway(place, dashboard_token=TOKEN) as world, world.browser() as client:
        with socket.create_server(("127.0.0.1", 0)) as ours:
            port = ours.getsockname()[1]
            with socket.create_server(("::1", port), family=socket.AF_INET6):
                world.optimizer.bind_beside(ours)
        answer = await client.post("/login", data={"token": TOKEN})
        assert (answer.status_code, ".localhost" in answer.text, "set-cookie" in answer.headers) == (503, False, False)
        assert f"[::1]:{port}" in answer.text
