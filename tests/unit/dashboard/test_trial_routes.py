"""Trying a tool on the dashboard: through the gateway, by the rules that hold for whoever tries it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.db.audit import AuditQuery, StoredAudit
from mcp_optimizer.db.database import open_database
from mcp_optimizer.domain.caller import Role
from tests.conftest import plain_server
from tests.servers.plain import HOSTILE
from tests.unit.dashboard.tending import tended
from tests.unit.dashboard.test_dashboard import assert_harmless

pytestmark = pytest.mark.process

KANBAN = {"kanban": {"command": sys.executable, "args": ["-m", "mcp_optimizer_demo.kanban"]}}
PLAIN = {"plain": plain_server("plain")}
RAW = {"as": "json"}


def raw(**arguments: Any) -> dict[str, str]:
    return {**RAW, "arguments": json.dumps(arguments)}


def results_in(page: str) -> list[str]:
    """The texts of the result on a page."""
    part = page.partition('id="result"')[2].partition('id="try"')[0]
    return [unescape(text) for text in re.findall(r"<pre[^>]*>(.*?)</pre>", part, re.DOTALL)]


async def test_a_tool_is_called_with_what_was_entered_and_its_cost_is_shown(tmp_path: Path) -> None:
    async with tended(tmp_path, PLAIN) as world:
        assert 'name="p0"' in await world.page("/tools/plain/echo")
        answer = await world.post("/tools/plain/echo", {"p0": "hello\r\n<b>"})
        assert answer.status_code == 200
        [text] = results_in(answer.text)
        assert json.loads(text)["arguments"] == {"value": "hello\n<b>"}
        assert "Tokens" in answer.text
        assert " ms" in answer.text
        # The form keeps what was entered.
        assert "hello\n&lt;b&gt;</textarea>" in answer.text
        assert_harmless(answer.text)


async def test_a_trial_is_in_the_audit_and_not_in_the_history(tmp_path: Path) -> None:
    async with tended(tmp_path, PLAIN, Role.MANAGE) as world:
        await world.post("/tools/plain/echo", {"p0": "hello"})
        assert "No client has asked yet" in await world.page("/")
    database = await open_database(tmp_path / "catalog.db")
    try:
        found = await StoredAudit(database).read(AuditQuery(limit=100))
    finally:
        await database.close()
    calls = [(entry.caller, entry.server, entry.tool) for entry in found if entry.method == "tools/call"]
    assert calls == [("key:somebody", "plain", "echo")]


@pytest.mark.parametrize(
    ("path", "fields", "status", "told"),
    [
        ("/tools/plain/sleep", {"p0": "soon"}, 400, "This is not a number."),
        ("/tools/plain/echo", {**RAW, "arguments": "{"}, 400, "This is not JSON"),
        ("/tools/plain/echo", raw(value=[1]), 400, "do not fit"),
        ("/tools/plain/fail", {}, 200, "The tool reported an error"),
        ("/tools/plain/refuse", {}, 502, "It did not work."),
        ("/tools/plain/die", {}, 502, "It did not work."),
        ("/tools/plain/nothing", {}, 404, "No running server"),
        ("/tools/plain/echo", {"p0": "x" * 3_000_000}, 413, "larger than"),
    ],
)
async def test_what_goes_wrong_is_told(
    tmp_path: Path, path: str, fields: Mapping[str, str], status: int, told: str
) -> None:
    async with tended(tmp_path, PLAIN) as world:
        answer = await world.post(path, fields)
        assert answer.status_code == status
        assert told in unescape(answer.text)
        assert_harmless(answer.text)


async def test_a_tool_that_may_destroy_something_is_called_at_the_second_click(tmp_path: Path) -> None:
    async with tended(tmp_path, KANBAN) as world:
        wanted = {"card_id": 987_654_321, "confirm_title": "gone"}
        answer = await world.post("/tools/kanban/delete_card", raw(**wanted))
        assert "may change or delete data permanently" in answer.text
        assert results_in(answer.text) == []
        shown = re.search(r'name="arguments" value="([^"]*)"', answer.text)
        assert shown is not None
        sent = {**RAW, "arguments": unescape(shown.group(1)), "sure": "yes"}
        assert json.loads(sent["arguments"]) == wanted
        answer = await world.post("/tools/kanban/delete_card", sent)
        assert "may change or delete" not in answer.text
        assert "987654321" in results_in(answer.text)[0]


async def test_rules_hold_for_whoever_tries_a_tool(tmp_path: Path) -> None:
    rules = [{"effect": "deny", "tool": "echo", "caller": "local", "reason": "not today"}]
    async with tended(tmp_path, PLAIN, rules=rules) as world:
        answer = await world.post("/tools/plain/echo", {"p0": "x"})
        assert answer.status_code == 502
        assert "not today" in answer.text
        assert results_in(answer.text) == []


async def test_the_rest_of_a_result_that_was_cut_is_read_by_its_caller_alone(tmp_path: Path) -> None:
    async with tended(tmp_path, PLAIN, max_tokens=300) as world:
        text = "\n".join(f"line number {number}" for number in range(2_000))
        answer = await world.post("/tools/plain/echo", raw(value=text))
        more = re.search(r'href="(/results/[^"]*)"', answer.text)
        assert more is not None
        address = unescape(more.group(1))
        page = await world.client.get(address)
        assert page.status_code == 200
        assert "line number" in page.text
        assert_harmless(page.text)
        result = address.partition("?")[0].rpartition("/")[2]
        assert (await world.client.get(f"/results/{result}x")).status_code == 404
        assert (await world.client.get(f"/results/{result}?offset=-1%27")).status_code == 200


async def test_a_hostile_tool_is_tried_without_harm(tmp_path: Path) -> None:
    async with tended(tmp_path, {"hostile": plain_server("hostile", "--mode", "hostile")}) as world:
        page = (await world.client.get("/tools/hostile/innocent")).text
        assert_harmless(page)
        assert HOSTILE[:20] in unescape(page)
        for fields in (raw(value=HOSTILE), {"p0": HOSTILE}):
            assert_harmless((await world.post("/tools/hostile/innocent", fields)).text)


async def test_a_picture_is_told_not_shown(tmp_path: Path) -> None:
    async with tended(tmp_path, PLAIN) as world:
        answer = await world.post("/tools/plain/picture", {})
        assert "image/png, about" in answer.text


async def test_the_search_shows_what_a_model_reads(tmp_path: Path) -> None:
    async with tended(tmp_path, PLAIN) as world:
        page = await world.page("/search?q=say+something+back")
        assert "What the model reads" in page
        assert "echo" in page.partition("What the model reads")[2].partition("</pre>")[0]
