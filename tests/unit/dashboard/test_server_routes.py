"""Looking after servers on the dashboard: what it shows, what it changes in the server file, and for whom."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from mcp_optimizer.db.audit import AuditQuery, StoredAudit
from mcp_optimizer.db.database import open_database
from mcp_optimizer.domain.caller import Role
from mcp_optimizer.identity.secrets import opened_secrets
from tests.conftest import PLAIN_SERVER, plain_server
from tests.unit.dashboard.tending import Tended, tended
from tests.unit.dashboard.test_dashboard import assert_harmless
from tests.waiting import until

pytestmark = pytest.mark.process

SECRET = "a value that nobody may read"
SERVERS = {
    "time": plain_server("time"),
    "off": {**plain_server("off"), "env": {"KEY": "${secret:other/KEY}"}, "disabled": True},
}
ADDED = {"name": "new", "command": sys.executable, "args": f"{PLAIN_SERVER}\r\nnew"}


async def test_the_page_of_a_server_tells_how_it_is_without_its_arguments(tmp_path: Path) -> None:
    entry = plain_server("time", "--pid-file", tmp_path / "a secret place")
    async with tended(tmp_path, {"time": entry}) as world:
        page = await world.page("/servers/time")
        for part in ("running", sys.executable, "time 1", "2025-11-25", "9 tools", "runs; started in"):
            assert part in page
        assert "a secret place" not in page
        assert "a secret place" not in await world.page("/servers")
        assert_harmless((await world.client.get("/servers/time")).text)


async def test_a_server_is_disabled_and_enabled_and_the_file_keeps_its_comment(tmp_path: Path) -> None:
    async with tended(tmp_path, SERVERS) as world:
        before = world.text
        answer = await world.post("/servers/time/disable")
        assert (answer.status_code, answer.headers["location"]) == (303, "/servers/time")
        assert world.entries["time"]["disabled"] is True
        assert "// Kept by hand." in world.text
        await world.until_state("time", "stopped")
        assert "Disabled time" in await world.page("/servers")
        await world.post("/servers/time/enable")
        assert world.text == before
        await world.until_state("time", "running")


async def test_the_last_change_is_undone_byte_for_byte(tmp_path: Path) -> None:
    async with tended(tmp_path, SERVERS) as world:
        before = world.file.read_bytes()
        await world.post("/servers/time/remove")
        assert "time" not in world.entries
        await world.until_state("time", "gone")
        answer = await world.post("/servers/undo")
        assert (answer.status_code, answer.headers["location"]) == (303, "/servers")
        assert world.file.read_bytes() == before
        await world.until_state("time", "running")
        assert (await world.post("/servers/undo")).status_code == 409


async def test_what_somebody_else_wrote_since_is_not_undone(tmp_path: Path) -> None:
    async with tended(tmp_path, SERVERS) as world:
        await world.post("/servers/time/disable")
        theirs = world.text + "\n// somebody else\n"
        world.file.write_text(theirs)
        answer = await world.post("/servers/undo")
        assert answer.status_code == 409
        assert "changed since" in answer.text
        assert world.text == theirs


async def test_undo_is_about_the_change_that_its_page_shows(tmp_path: Path) -> None:
    async with tended(tmp_path, SERVERS) as world:
        await world.post("/servers/time/disable")
        [seen] = re.findall(r'name="at" value="(\d+)"', await world.page("/servers"))
        # Another visitor.
        await world.post("/servers/off/remove")
        theirs = world.text
        answer = await world.post("/servers/undo", {"at": seen})
        assert answer.status_code == 409
        assert "another one now: removed off" in answer.text
        assert world.text == theirs
        [seen] = re.findall(r'name="at" value="(\d+)"', await world.page("/servers"))
        assert (await world.post("/servers/undo", {"at": seen})).status_code == 303
        assert "off" in world.entries


async def test_a_server_is_restarted(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with tended(tmp_path, {"time": plain_server("time", "--pid-file", pid)}) as world:
        before = pid.read_text()
        assert (await world.post("/servers/time/restart")).status_code == 303
        await until(lambda: pid.read_text() not in ("", before), "another process", timeout=30)
        await world.until_state("time", "running")
        assert "is restarted on request" in await world.page("/servers/time/now")


async def test_removing_asks_on_a_page_of_its_own(tmp_path: Path) -> None:
    async with tended(tmp_path, SERVERS) as world:
        page = await world.page("/servers/time/remove")
        assert 'action="/servers/time/remove" method="post"' in page
        assert "Keep it" in page
        assert "time" in world.entries


async def test_a_server_is_added_by_its_command_and_its_secret_is_never_seen_again(tmp_path: Path) -> None:
    async with tended(tmp_path, SERVERS, Role.MANAGE) as world:
        fields = {**ADDED, "secret-name-0": "API_KEY", "secret-value-0": SECRET}
        answer = await world.post("/servers", fields)
        assert (answer.status_code, answer.headers["location"]) == (303, "/servers/new")
        assert world.entries["new"] == {
            "command": sys.executable,
            "args": [str(PLAIN_SERVER), "new"],
            "env": {"API_KEY": "${secret:new/API_KEY}"},
        }
        await world.until_state("new", "running")
        async with opened_secrets(tmp_path / "catalog.db", os.environ) as secrets:
            assert (await secrets.values(["new/API_KEY"])).values == {"new/API_KEY": SECRET}
        for path in ("/servers", "/servers/new", "/audit"):
            assert SECRET not in await world.page(path)
        assert SECRET not in world.text


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": ""}, "1 to 64 characters"),
        ({"name": "a/b"}, "cannot be the name of a server"),
        ({"name": "time"}, "already a server"),
        ({"url": "https://example.test/mcp"}, "either a command or an address"),
        ({"command": ""}, "either a command or an address"),
        ({"command": "", "args": "", "url": "http://example.test/mcp"}, "must use https"),
        ({"command": "", "args": "", "url": "file:///etc/passwd"}, "not an address"),
        ({"command": "", "args": "", "url": "https://example.test/${secret:other/KEY}"}, "address with variables"),
        ({"name": "other", "secret-name-0": "KEY", "secret-value-0": SECRET}, "Another server uses the secret"),
        ({"secret-name-0": "A B", "secret-value-0": SECRET}, "not the name of an environment variable"),
        ({"secret-name-0": "A"}, "a name and a value"),
        ({"args": "x" * 5_000}, "at most"),
        ({"command": "x\0y"}, "NUL"),
        ({"command": "mcp-optimizer", "args": "serve\n--config\nFILE"}, "would start itself forever"),
    ],
)
async def test_what_cannot_be_added_is_told_and_changes_nothing(
    tmp_path: Path, fields: dict[str, str], problem: str
) -> None:
    async with tended(tmp_path, SERVERS, Role.MANAGE) as world:
        before = world.text
        sent = {name: text.replace("FILE", str(world.file)) for name, text in {**ADDED, **fields}.items()}
        answer = await world.post("/servers", sent)
        assert answer.status_code == 400
        assert problem in answer.text
        assert SECRET not in answer.text
        assert world.text == before


async def test_an_edit_that_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    async with tended(tmp_path, SERVERS) as world:
        world.file.write_text(world.text.replace('"off"', "off"))
        await world.optimizer.reload()
        page = await world.page("/servers")
        assert "what runs is the version before" in page
        assert "at line" in page
        assert world.state("time") == "running"
        answer = await world.post("/servers/time/disable")
        assert answer.status_code == 400
        assert "not valid JSON" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": ""},
        {"Sec-Fetch-Site": "", "Origin": "http://localhost:9999"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "same-origin", "Host": "evil.example"},
    ],
)
async def test_a_forged_request_changes_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    async with tended(tmp_path, SERVERS) as world:
        before = world.text
        for path in ("/servers", "/servers/time/disable", "/servers/time/remove", "/servers/time/restart"):
            answer = await world.post(path, ADDED, headers=headers)
            assert answer.status_code in (403, 421), path
        assert (await world.post("/tools/time/echo", headers=headers)).status_code in (403, 421)
        assert world.text == before


async def test_opening_the_address_of_an_action_does_nothing(tmp_path: Path) -> None:
    async with tended(tmp_path, SERVERS) as world:
        before = world.text
        for action in ("disable", "enable", "restart"):
            answer = await world.client.get(f"/servers/time/{action}")
            assert (answer.status_code, answer.headers["location"]) == (303, "/servers/time")
        assert (await world.client.get("/servers/undo")).status_code == 404
        assert world.text == before


async def test_who_may_only_see_changes_nothing_and_is_offered_nothing(tmp_path: Path) -> None:
    async with tended(tmp_path, SERVERS, Role.SEE) as world:
        before = world.text
        for path in ("/servers", "/servers/time/disable", "/servers/undo", "/tools/time/echo"):
            assert (await world.post(path, ADDED)).status_code == 403, path
        assert world.text == before
        for path in ("/servers", "/servers/time", "/tools/time/echo"):
            page = (await world.client.get(path)).text
            assert page.count('method="post"') == page.count('action="/logout"') == 1
        assert (await world.client.get("/servers/time/remove")).status_code == 303


async def test_without_dashboard_changes_a_server_is_only_restarted(tmp_path: Path) -> None:
    async with tended(tmp_path, SERVERS, dashboard_changes=False) as world:
        before = world.text
        for path in ("/servers", "/servers/time/disable", "/servers/undo"):
            assert (await world.post(path, ADDED)).status_code == 400
        assert world.text == before
        assert (await world.post("/servers/time/restart")).status_code == 303
        assert "Add a server" not in await world.page("/servers")


async def test_a_tool_is_turned_off_and_on_again(tmp_path: Path) -> None:
    async with tended(tmp_path, SERVERS) as world:
        assert "Turn this tool off" in await world.page("/tools/time/echo")
        await world.post("/servers/time/disable", {"tool": "echo"})
        assert world.entries["time"]["disabledTools"] == ["echo"]
        await until(lambda: _has_no(world, "echo"), "the tool is off", timeout=30)
        assert "Tools that are turned off" in await world.page("/servers/time")
        await world.post("/servers/time/enable", {"tool": "echo"})
        assert "disabledTools" not in world.entries["time"]


def _has_no(world: Tended, tool: str) -> bool:
    return tool not in [one.record.name for one in world.optimizer.snapshot.running]


async def test_every_change_is_in_the_audit(tmp_path: Path) -> None:
    async with tended(tmp_path, SERVERS, Role.MANAGE) as world:
        for action in ("disable", "enable", "restart", "remove"):
            await world.post(f"/servers/time/{action}")
        await world.post("/servers/undo")
        await world.post("/servers", ADDED)
    database = await open_database(tmp_path / "catalog.db")
    try:
        found = await StoredAudit(database).read(AuditQuery(limit=100))
    finally:
        await database.close()
    acts = {entry.method for entry in found if entry.caller == "key:somebody"}
    assert acts >= {f"server/{act}" for act in ("disable", "enable", "restart", "remove", "undo", "add")}


async def test_names_that_are_markup_or_paths_stay_names(tmp_path: Path) -> None:
    name = '<b>"../x\u202e'
    async with tended(tmp_path, {name: plain_server("x"), "a/b": plain_server("y")}) as world:
        for path in ("/servers", "/servers/%3Cb%3E%22..%2Fx%E2%80%AE", "/servers/a%2Fb", "/servers/%2e%2e%2fx"):
            assert_harmless((await world.client.get(path)).text)
        assert (await world.post("/servers/a%2Fb/disable")).status_code == 303
        assert world.entries["a/b"]["disabled"] is True
