"""Who may see the dashboard, who may change something on it, and how somebody is remembered who signed in."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.dashboard.guard import HEADERS
from mcp_optimizer.dashboard.sign_ins import LASTS
from mcp_optimizer.domain.caller import Role
from mcp_optimizer.domain.events import Event, EventKind
from tests.unit.dashboard.test_dashboard import Elements, assert_harmless
from tests.unit.dashboard.visiting import Gateway, gateway, let_in, sign_in, ticket_of
from tests.waiting import until

TOKEN = "tök en of the tests"
PAGES = ["/", "/servers", "/catalog", "/search", "/callers", "/rules", "/trust", "/audit", "/logins", "/settings"]
PAGES += ["/tools/no/such", "/servers/such", "/results/such"]
BACK = ["/login", "/logout", "/callers/new", "/trust/x/approve", "/logins/x", "/servers/x/enable", "/servers/x/remove"]
"""Addresses that forms lead to, opened again."""
DATA = ["/figures", "/metrics", "/servers/such/now"]
ACTIONS = ["/callers/new", "/callers/revoke", "/trust/x/approve", "/trust/x/reset", "/logins/x", "/logins/x/out"]
ACTIONS += ["/servers", "/servers/undo", "/servers/x/enable", "/servers/x/disable", "/servers/x/restart"]
ACTIONS += ["/servers/x/remove", "/tools/no/such"]
OPEN = ["/static/style.css", "/health", "/ready"]
ELSEWHERE = ["/mcp", "/events", "/mine", "/logins/callback", "/logins/set-out", "/enter"]
"""Tested where they are about something else."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.mark.slow
async def test_every_address_asks_for_the_role_it_needs(place: Path) -> None:
    async with gateway(place) as world:
        await _matrix(world)
        routes = world.app.app.pages.routes
        paths = {route.path.partition("{")[0].rstrip("/") for route in routes}
    assert len(paths) > 10
    tested = [*PAGES, *BACK, *DATA, *ACTIONS, *OPEN, *ELSEWHERE]
    assert [path for path in paths if not any(one.startswith(path or "/") for one in tested)] == []


async def _matrix(world: Gateway) -> None:
    """Every page and form, for nobody and for each role, signed in and with a key in a header."""
    async with world.browser() as client:
        for path in OPEN[:2]:
            assert (await client.get(path)).status_code == 200
        for path in [*PAGES, *BACK, *DATA]:
            assert (await client.get(path)).status_code == 401, path
        for path in ACTIONS:
            assert (await client.post(path)).status_code == 401, path
        for role, text in world.keys.items():
            found = {
                path: (await client.get(path, headers=bearer(text))).status_code for path in [*PAGES, *BACK, *DATA]
            }
            may_see = role is not Role.NONE
            wanted = {path: 404 if "such" in path else 303 if path in BACK else 200 for path in found}
            assert found == (wanted if may_see else dict.fromkeys(found, 403)), role
            for path in ACTIONS:
                answer = await client.post(path, headers=bearer(text))
                assert (answer.status_code == 403) is (role is not Role.MANAGE), (role, path)
                assert ("role manage" in answer.text) is (role is not Role.MANAGE), (role, path)
    for role in (Role.SEE, Role.MANAGE):
        async with world.browser(role) as client:
            assert {path: (await client.get(path)).status_code for path in [*PAGES, *DATA]} == {
                path: 404 if "such" in path else 200 for path in [*PAGES, *DATA]
            }
            for path in ACTIONS:
                assert ((await client.post(path)).status_code == 403) is (role is Role.SEE), (role, path)


@pytest.mark.slow
async def test_who_may_only_see_gets_no_buttons(place: Path) -> None:
    async with gateway(place) as world:
        found = {}
        for role in (Role.SEE, Role.MANAGE):
            async with world.browser(role) as client:
                pages = [Elements((await client.get(path)).text) for path in PAGES]
            found[role] = {
                given.get("action") for page in pages for tag, given in page.tags if given.get("method") == "post"
            }
            assert all(f"key:{role}-key" in page.text for page in pages)
    assert found[Role.SEE] == {"/logout"}
    assert found[Role.MANAGE] >= {"/logout", "/callers/new", "/callers/revoke"}


async def test_a_key_without_a_role_is_told_so(place: Path) -> None:
    async with gateway(place) as world, world.browser() as client:
        answer = await sign_in(client, world.keys[Role.NONE])
        assert answer.status_code == 403
        assert "needs a key with the role see, and key:none-key has the role none" in answer.text
        assert "set-cookie" not in answer.headers
        assert "--role see" in (await client.get("/")).text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "options", "is_secure"),
    [
        ("http://localhost:8765", {}, False),
        ("https://localhost:8765", {}, True),
        ("http://localhost:8765", {"public_url": "https://gate.example"}, True),
        ("http://localhost:8765", {"public_url": "http://gate.example"}, False),
    ],
)
async def test_the_cookie_is_for_our_own_pages_only(
    place: Path, address: str, options: dict[str, Any], is_secure: bool
) -> None:
    async with gateway(place, allowed_origins="https://localhost:8765", **options) as world:
        async with world.browser(address=address) as client:
            answer = await sign_in(client, world.keys[Role.SEE])
        name, _, rest = answer.headers["set-cookie"].partition("=")
        flags = {flag.strip().lower() for flag in rest.split(";")[1:]}
        assert flags - {"secure"} == {"httponly", "samesite=strict", "path=/", f"max-age={LASTS}"}
        assert ("secure" in flags) is is_secure
        assert name == ("__Host-mcp-optimizer" if is_secure else "mcp-optimizer")
        assert LASTS <= 12 * 3_600
        assert not [text for text in world.keys.values() if text[18:] in answer.headers["set-cookie"]]
        assert answer.headers["cache-control"] == "no-store"


async def test_signing_out_ends_it_for_this_browser_alone(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.SEE) as one, world.browser(Role.SEE) as other:
        kept = one.cookies["mcp-optimizer"]
        answer = await one.post("/logout")
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert "mcp-optimizer" not in one.cookies
        assert (await one.get("/", headers={"Cookie": f"mcp-optimizer={kept}"})).status_code == 401
        assert (await other.get("/")).status_code == 200


async def test_a_sign_in_ends_with_its_key(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.MANAGE) as one, world.browser(Role.SEE) as other:
        await world.revoke("manage-key")

        async def is_over() -> bool:
            return (await one.get("/callers")).status_code == 401

        await until(is_over, "the key ended", timeout=6)
        assert (await other.get("/callers")).status_code == 200


async def test_what_another_site_sends_signs_nobody_in_or_out(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.SEE) as client:
        key = {"token": world.keys[Role.MANAGE]}
        for headers in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": "http://evil.example"},
        ):
            for path in ("/login", "/logout"):
                answer = await client.post(path, data=key, headers=headers)
                assert answer.status_code == 403
                assert "set-cookie" not in answer.headers
        assert "see-key" in (await client.get("/")).text


async def test_a_cookie_that_somebody_else_chose_is_worth_nothing(place: Path) -> None:
    async with gateway(place) as world, world.browser() as client:
        for chosen in ("x" * 43, "x" * 4_000, "é", ""):
            header = {b"cookie": f"mcp-optimizer={chosen}".encode()}
            assert (await client.get("/", headers=header)).status_code == 401
        client.cookies["mcp-optimizer"] = "x" * 43
        answer = await sign_in(client, world.keys[Role.SEE])
        assert f"mcp-optimizer={'x' * 43}" not in answer.headers["set-cookie"]
        # With TLS, the plain name is one that a neighbouring host could set.
        kept = answer.headers["set-cookie"].partition(";")[0]
    async with world.browser(address="https://localhost:8765") as client:
        assert (await client.get("/", headers={"Cookie": kept})).status_code == 401


@pytest.mark.slow
@pytest.mark.parametrize("host", ["localhost:[", "localhost:1@evil.example", "localhost:", "[::1]:]["])
async def test_a_host_that_is_no_host_is_asked_for_a_key_like_any_other(place: Path, host: str) -> None:
    async with gateway(place) as world, world.browser() as client:
        assert (await client.get("/", headers={"Host": host})).status_code == 401
        answer = await client.post("/login", data={"token": world.keys[Role.SEE]}, headers={"Host": host})
        assert answer.status_code in (200, 303)


async def test_a_key_in_an_address_opens_nothing(place: Path) -> None:
    async with gateway(place) as world, world.browser() as client:
        for path in ("/?token={}", "/login?token={}", "/callers?key={}"):
            answer = await client.get(path.format(world.keys[Role.MANAGE]))
            assert answer.status_code == 401
            assert world.keys[Role.MANAGE] not in answer.text


async def test_wrong_keys_wait_and_are_counted_in_one_entry(place: Path) -> None:
    async with gateway(place, dashboard_token=TOKEN) as world, world.browser() as client:
        almost = world.keys[Role.SEE][:-1] + "!"
        wrong = ["mcpo_", "x", "", almost, "mcpo_" + "a" * 12 + "_" + "b" * 43, "<script>alert(1)</script>"]
        begun = time.monotonic()
        answers = await asyncio.gather(
            *(sign_in(client, text) for text in wrong),
            *(client.get("/metrics", headers=bearer(text)) for text in wrong if text),
        )
        assert time.monotonic() - begun >= 0.5
        for answer in answers:
            assert answer.status_code == 401
            assert_harmless(answer.text)
            assert "alert" not in answer.text.replace('role="alert"', "")
            assert almost not in answer.text
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    entries = [entry for entry in await world.audited() if entry.method == "http/refused"]
    assert [entry.rule for entry in entries] == ["dashboard", "dashboard"]
    assert [entry.outcome for entry in entries] == ["401", f"401, {len(answers) - 1} times"]


FOR_ANYBODY = ["/", "/catalog", "/search", "/tools/no/such", "/figures", "/metrics"]
"""What the docs say that somebody who is not signed in may see of an open dashboard."""


HEADERS_OF_ANYBODY: list[dict[str, str]] = [
    {},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "", "Origin": "http://localhost:8765"},
    {"Sec-Fetch-Site": "", "Authorization": "Basic x"},
    {"Sec-Fetch-Site": "", "Authorization": "Negotiate x"},
    {"Cookie": "mcp-optimizer=" + "x" * 43},
]


async def test_on_loopback_anybody_may_look_at_a_few_pages_and_change_nothing(place: Path) -> None:
    async with gateway(place, require_auth=None) as world:
        for headers in HEADERS_OF_ANYBODY:
            async with world.browser() as client:
                for path in [*PAGES, *DATA]:
                    is_refused = (await client.get(path, headers=headers)).status_code == 401
                    assert is_refused is (path not in FOR_ANYBODY), (path, headers)
                for path in ACTIONS:
                    assert (await client.post(path, headers=headers)).status_code == 401, (path, headers)
        assert await world.audited() == []


async def test_the_owner_is_let_in_with_a_ticket_once(place: Path) -> None:
    async with gateway(place, require_auth=None) as world:
        ticket = await ticket_of(world.optimizer)
        async with world.browser() as client, world.browser() as other:
            entered = await client.get(f"/enter?ticket={ticket}")
            assert entered.status_code == 200
            assert 'content="0;url=/"' in entered.text
            assert ticket not in entered.text
            assert entered.headers["referrer-policy"] == "no-referrer"
            assert (await other.get(f"/enter?ticket={ticket}")).status_code == 401
            assert (await other.get("/callers")).status_code == 401
            assert "Make the key" in (await client.get("/callers")).text
            answer = await client.post("/callers/new", data={"name": "ci", "role": "manage"})
            assert answer.status_code == 200
            await client.post("/logout")
            assert (await client.get("/callers")).status_code == 401

        async def is_told() -> bool:
            return ("key/create", "local") in [(entry.method, entry.caller) for entry in await world.audited()]

        await until(is_told, "the audit says who made the key")


async def test_the_owner_is_let_in_where_keys_are_required(place: Path) -> None:
    async with gateway(place) as world, world.browser() as client:
        assert (await client.get("/")).status_code == 401
        await let_in(client, world.optimizer)
        assert "local manage" in Elements((await client.get("/callers")).text).text


HEADERS_OF_OTHER_PAGES = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": ""},
    {"Sec-Fetch-Site": "", "Authorization": "Basic x"},
    {"Sec-Fetch-Site": "", "Origin": "http://localhost:9999"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "null"},
]


@pytest.mark.slow
async def test_no_other_page_uses_the_cookie_of_the_owner(place: Path) -> None:
    async with gateway(place, require_auth=None) as world:
        for headers in HEADERS_OF_OTHER_PAGES:
            async with world.browser() as client:
                await let_in(client, world.optimizer)
                for path in ACTIONS:
                    assert (await client.post(path, headers=headers)).status_code == 403, (path, headers)


async def test_what_only_asks_what_is_there_uses_up_no_ticket(place: Path) -> None:
    async with gateway(place, require_auth=None) as world, world.browser() as client:
        ticket = await ticket_of(world.optimizer)
        assert (await client.head(f"/enter?ticket={ticket}")).status_code == 405
        assert (await client.get(f"/enter?ticket={ticket}")).status_code == 200


async def test_two_origins_or_hosts_are_not_ours(place: Path) -> None:
    async with gateway(place, require_auth=None) as world, world.browser() as client:
        await let_in(client, world.optimizer)
        two = [("Origin", "http://localhost:8765"), ("Origin", "http://evil.example")]
        assert (await client.post("/servers/undo", headers=two)).status_code == 403
        hosts = [("Host", "localhost:8765"), ("Host", "evil.example")]
        assert (await client.get("/", headers=hosts)).status_code == 400


async def test_a_ticket_that_is_none_lets_nobody_in(place: Path) -> None:
    async with gateway(place, require_auth=None) as world:
        for query in ("", "?ticket=", "?ticket=x", "?ticket=" + "x" * 9_000, "?ticket=%00", "?x=1&" * 99):
            async with world.browser() as client:
                answer = await client.get(f"/enter{query}")
            assert answer.status_code == 401, query
            assert "mcp-optimizer dashboard" in answer.text
            assert "set-cookie" not in answer.headers


@pytest.mark.slow
async def test_after_ten_wrong_tokens_no_other_is_compared_and_everything_else_still_opens(place: Path) -> None:
    token = "correct horse battery"
    async with gateway(place, dashboard_token=token) as world, world.browser() as client:
        wrong = await asyncio.gather(*(sign_in(client, f"guess number {number}") for number in range(10)))
        assert {answer.status_code for answer in wrong} == {401}
        for answer in (
            await sign_in(client, token),
            await client.get("/", headers=bearer(token)),
            await sign_in(client, "another guess"),
        ):
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
        assert (await client.get("/", headers=bearer(world.keys[Role.SEE]))).status_code == 200
        await let_in(client, world.optimizer)
        assert (await client.get("/callers")).status_code == 200


async def test_without_a_token_and_on_loopback_it_is_open_unless_keys_are_required(place: Path) -> None:
    async with gateway(place, require_auth=None) as world, world.browser() as client:
        assert "Sign out" not in (await client.get("/")).text
        # A credential that is wrong is refused also where none is needed; that of a proxy is not ours.
        assert (await client.get("/", headers=bearer("wrong"))).status_code == 401
        assert (await client.get("/", headers={"Authorization": "Basic eDp5"})).status_code == 200
        assert "Make the key" not in (await client.get("/callers", headers=bearer(world.keys[Role.SEE]))).text


async def test_beyond_loopback_it_asks_for_a_key(place: Path) -> None:
    outside: dict[str, Any] = {"require_auth": None, "open_to_anyone": True, "allowed_hosts": "gate"}
    async with gateway(place, "192.0.2.1", **outside) as world, world.browser(address="http://gate:80") as client:
        assert (await client.get("/callers")).status_code == 401
        assert (await client.get("/metrics")).headers["www-authenticate"] == "Bearer"
        assert (await sign_in(client, world.keys[Role.SEE])).status_code == 303
        assert (await client.get("/callers")).status_code == 200


async def test_the_token_of_the_dashboard_may_do_everything(place: Path) -> None:
    async with gateway(place, dashboard_token=TOKEN) as world, world.browser() as client:
        assert (await sign_in(client, TOKEN)).status_code == 200
        page = Elements((await client.get("/callers")).text)
        assert "Make the key" in page.text
        assert "dashboard manage" in page.text


async def test_while_keys_cannot_be_verified_nobody_is_let_in(place: Path) -> None:
    options: dict[str, Any] = {"database": str(place.parent), "dashboard_token": "a-token-of-tests"}
    async with gateway(place, **options) as world, world.browser() as client:
        answer = await sign_in(client, world.keys[Role.MANAGE])
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert (await client.get("/metrics", headers=bearer(world.keys[Role.SEE]))).status_code == 503
        assert (await client.get("/metrics", headers=bearer("a-token-of-tests"))).status_code == 200


@pytest.mark.slow
async def test_the_stream_of_events_ends_when_its_viewer_signs_out(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.SEE) as client:
        seen: asyncio.Queue[bytes] = asyncio.Queue()
        cookie = f"mcp-optimizer={client.cookies['mcp-optimizer']}".encode()
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/events",
            "query_string": b"",
            "headers": [(b"host", b"localhost:8765"), (b"cookie", cookie)],
        }

        async def receive() -> dict[str, Any]:
            return await asyncio.Future()

        async def send(message: Any) -> None:
            if message.get("body"):
                seen.put_nowait(message["body"])

        watching = asyncio.create_task(world.app(scope, receive, send))
        assert await seen.get() == b": hello\n\n"
        world.optimizer.recorder.record(Event(1.0, EventKind.CALL, "s", tool="first"))
        assert b"first" in await asyncio.wait_for(seen.get(), 5)
        await client.post("/logout")
        world.optimizer.recorder.record(Event(2.0, EventKind.CALL, "s", tool="second"))
        await asyncio.wait_for(watching, 5)
        assert seen.empty()
