"""Callers, rules and the audit on the dashboard: what they show, what forms do, and that names are only text."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.access.callers.keys import Wanted, make_key, new_key, opened_keys, rotate_key
from mcp_optimizer.dashboard.caller_pages import CallersPage, callers_page
from mcp_optimizer.dashboard.visitor import Visitor
from mcp_optimizer.db.audit import ActiveCaller, StoredAudit
from mcp_optimizer.db.database import open_database
from mcp_optimizer.domain.audit import AuditEntry
from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL, Role
from mcp_optimizer.domain.credentials import TokenIssuer
from tests.unit.dashboard.pinning import EVIL, QUOTED, pinned
from tests.unit.dashboard.test_dashboard import HOSTILE, Elements, assert_harmless
from tests.unit.dashboard.visiting import Gateway, gateway, sign_in
from tests.waiting import until


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


async def happened(place: Path, *entries: AuditEntry) -> None:
    database = await open_database(place)
    await StoredAudit(database).write(entries)
    await database.close()


def act(number: int = 0, **given: Any) -> AuditEntry:
    at_ms = time.time_ns() // 1_000_000 - 60_000 - number * 1_000
    return AuditEntry(at_ms, method="tools/call", server="git", tool=f"tool_{number}", **given)


# Hostile text


@pytest.mark.slow
async def test_hostile_names_are_text_on_every_page(place: Path) -> None:
    name = '<img src=x onerror=alert(1)>"'
    await pinned(place)
    everywhere: dict[str, Any] = dict.fromkeys(
        ("caller", "tenant", "client", "server", "tool", "rule", "outcome", "method"), HOSTILE
    )
    await happened(place, act()._replace(**everywhere), act()._replace(tool="x" * 300, server=EVIL))
    async with opened_keys(place) as keys:
        await make_key(keys, Wanted(name, [name, "\u202egit"], role=Role.SEE))
    rules = [{"effect": "deny", "server": name, "caller": name, "reason": HOSTILE}]
    async with gateway(place, rules=rules) as world, world.browser(Role.MANAGE) as client:
        asked = f"?caller={name}&tool={EVIL}&server={EVIL}&since=%00&page=%C2%B2"
        for path in ("/callers", "/rules", "/trust", "/audit", f"/trust?server={QUOTED}"):
            for query in ("", asked) if "?" not in path else ("",):
                answer = await client.get(path + query)
                assert answer.status_code == 200, path + query
                assert_harmless(answer.text)
                elements = Elements(answer.text)
                assert not [tag for tag, _ in elements.tags if tag in ("img", "b")]
                assert "\u200b" not in answer.text
                if not query and path != "/rules":
                    assert "onerror" in elements.text


# Callers


async def test_a_key_that_is_made_on_the_page_is_shown_once_and_opens_what_it_says(place: Path) -> None:
    form = {"name": "ci", "servers": "git, mail", "risk": "write", "role": "see", "expires": "30d"}
    async with gateway(place) as world:
        async with world.browser(Role.MANAGE) as client:
            made = await client.post("/callers/new", data=form)
            assert made.status_code == 200
            assert made.headers["cache-control"] == "no-store"
            text = re.search(r"mcpo_[a-z0-9]{12}_[\w-]{43}", made.text)
            assert text is not None
            assert "No server is called git, mail yet." in made.text
            assert f"Authorization: Bearer {text.group()}" in Elements(made.text).text
            shown = Elements((await client.get("/callers")).text).text
            assert text.group()[-43:] not in shown
            again = await client.post("/callers/new", data=form)
            assert (again.status_code, "There is a key" in again.text) == (400, True)
            assert 'value="git, mail"' in again.text
        async with world.browser() as client:
            given = {"X-API-Key": text.group()}

            async def is_known() -> bool:
                return (await client.get("/metrics", headers=given)).status_code == 200

            await until(is_known, "the gateway has looked for new keys")
    entries = [entry for entry in await world.audited() if entry.method != "http/refused"]
    assert [(entry.caller, entry.client, entry.method, entry.tool) for entry in entries] == [
        ("key:manage-key", "dashboard", "key/create", "ci")
    ]
    assert text.group()[-43:] not in str(entries)


WRONG_FORMS: list[tuple[dict[str, str], int]] = [
    ({"name": ""}, 400),
    ({"name": "a\r\nSet-Cookie: x"}, 400),
    ({"name": "x" * 65}, 400),
    ({"name": "a", "risk": "all"}, 400),
    ({"name": "a", "role": "god"}, 400),
    ({"name": "a", "expires": "1"}, 400),
    ({"name": "a", "servers": "x" * 100_000}, 413),
    ({str(number): "x" for number in range(300)}, 413),
]


@pytest.mark.slow
async def test_a_form_that_makes_no_sense_makes_no_key(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.MANAGE) as client, opened_keys(place) as keys:
        for form, status in WRONG_FORMS:
            answer = await client.post("/callers/new", data=form)
            assert answer.status_code == status, form
            assert_harmless(answer.text)
            assert len(await keys.all()) == len(Role), form


async def test_only_the_owner_s_command_makes_a_key_for_a_person(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.MANAGE) as client, opened_keys(place) as keys:
        made = await client.post("/callers/new", data={"name": "mine", "holder": "ada@example.com"})
        assert made.status_code == 200
        [key] = [key for key in await keys.all() if key.name == "mine"]
        assert (key.holder, key.principal.id) == ("", f"key:{key.id}")
        assert (await client.post("/callers/rotate", data={"name": "mine"})).status_code in (404, 405)


async def test_the_page_shows_whose_a_key_is_and_which_was_replaced(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.SEE) as client, opened_keys(place) as keys:
        key, _ = new_key(Wanted("laptop", holder="ada@example.com"), datetime.now(UTC))
        assert await keys.add(key, 100) == ""
        await rotate_key(keys, "laptop", timedelta(hours=1))
        text = Elements((await client.get("/callers")).text).text
    assert text.count("ada@example.com") == 2
    assert text.count("in use replaced") == 1


async def test_a_key_is_revoked_by_its_id_whatever_has_its_name_now(place: Path) -> None:
    async with gateway(place) as world, world.browser(Role.MANAGE) as client:
        key_id = world.keys[Role.SEE][5:17]
        assert f'value="{key_id}"' in (await client.get("/callers")).text
        assert (await client.post("/callers/revoke", data={"id": key_id})).status_code == 303
        assert (await client.post("/callers/revoke", data={"id": key_id})).status_code == 404
        assert (await client.post("/callers/revoke", data={"id": "' or 1=1"})).status_code == 404
        async with opened_keys(place) as keys:
            assert {key.name for key in await keys.living(0)} == {"none-key", "manage-key"}
    assert [(entry.method, entry.tool) for entry in await world.audited()] == [("key/revoke", "see-key")]


@pytest.mark.slow
async def test_issuers_are_shown_without_their_secrets_and_callers_with_what_they_did(place: Path) -> None:
    await happened(place, act(caller="key:a"), act(1, caller="key:a", decision="deny"), act(2, caller=""))
    issuer = {"name": "corp", "issuer": "https://id.example", "client_secret": "s3cret", "required_scopes": ["mcp:use"]}
    async with gateway(place, token_issuers=[issuer]) as world, world.browser(Role.SEE) as client:
        page = (await client.get("/callers")).text
    text = Elements(page).text
    assert "https://id.example" in text
    assert "mcp:use" in text
    assert "s3cret" not in page
    assert "key:a21" in text
    assert "no caller10" in text


def test_callers_are_shown_with_the_groups_of_their_latest_token() -> None:
    said = {"corp:ada": frozenset({"staff", "<b>bold</b>"}), "corp:bob": frozenset(map(str, range(1_000)))}
    active = [ActiveCaller(caller, "", 1, 0, 0) for caller in ("corp:ada", "corp:bob", "key:ci")]
    visitor = Visitor(LOCAL_PRINCIPAL)
    issuer = TokenIssuer(name="corp", issuer="https://id.example", groups_claim="realm_access.roles")
    values = CallersPage("1", visitor, 0, [], [issuer], active, lambda name: said.get(name, frozenset()))
    page = callers_page(values)
    assert "groups: <b>bold</b>, staff" in Elements(page).text
    assert "<b>" not in page
    assert "realm_access.roles" in page
    assert page.count("groups:") == 2
    assert len(page) < 20_000


# Rules


async def test_the_page_of_rules_counts_and_explains(place: Path) -> None:
    rules = [{"effect": "deny", "caller": "key:*", "reason": "Not for keys."}, {"effect": "ask", "risk": "destructive"}]
    async with gateway(place, rules=rules) as world, world.browser(Role.SEE) as client:
        page = Elements((await client.get("/rules?caller=key:see-key&tool=no_such_tool")).text)
    assert "Not for keys." in page.text
    assert "no_such_tool" in page.text
    assert "counted for key:see-key" in page.text


# Audit


@pytest.mark.slow
async def test_the_audit_is_filtered_and_paged_newest_first(place: Path) -> None:
    entries = [act(number, caller="key:a" if number % 2 else "key:[b]") for number in range(250)]
    await happened(place, *entries, act(500, caller="key:a", decision="deny", arguments=json.dumps({"a": 1})))
    async with gateway(place) as world, world.browser(Role.SEE) as client:
        first = (await client.get("/audit")).text
        assert re.findall(r"/tools/git/(tool_\d+)", first) == [f"tool_{number}" for number in range(100)]
        follow = next(given["href"] or "" for _, given in Elements(first).tags if "page=2" in (given.get("href") or ""))
        assert re.findall(r"/tools/git/(tool_\d+)", (await client.get(follow)).text)[0] == "tool_100"
        for query, count in (
            ("decision=deny", 1),
            ("caller=key:[[]b]&page=2", 25),
            ("caller=key:*&tool=tool_24?", 10),
            ("server=mail", 0),
            ("since=1h&until=1", 0),
            ("page=50", 0),
        ):
            page = (await client.get(f"/audit?{query}")).text
            assert page.count("/tools/git/") == count, query
        assert "{&quot;a&quot;: 1}" in (await client.get("/audit?decision=deny")).text


@pytest.mark.slow
async def test_pages_say_what_is_not_kept(tmp_path: Path, place: Path) -> None:
    async with gateway(place, database="none", dashboard_token="a-token-of-tests") as world:
        await _without_database(world)
    async with gateway(tmp_path / "other.db", audit=False) as world, world.browser(Role.SEE) as client:
        assert "audit = false" in (await client.get("/audit")).text


async def _without_database(world: Gateway) -> None:
    async with world.browser() as client:
        await sign_in(client, "a-token-of-tests")
        for path, told in (
            ("/callers", "there is none"),
            ("/audit", "there is none"),
            ("/trust", "No server has listed"),
        ):
            assert told in (await client.get(path)).text
        assert (await client.post("/callers/new", data={"name": "a"})).status_code == 400
