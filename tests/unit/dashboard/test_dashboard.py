"""The dashboard: what it shows and to whom, and that text from servers is never more than text."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.app.optimizer import Optimizer, dumped_servers
from mcp_optimizer.config.settings import Settings, load_settings
from mcp_optimizer.dashboard.charts import Period, Tile, bars_over_time, treemap
from mcp_optimizer.dashboard.guard import HEADERS
from mcp_optimizer.dashboard.html import el, visible
from mcp_optimizer.dashboard.overview_routes import event_values
from mcp_optimizer.dashboard.report_page import report_page
from mcp_optimizer.domain.events import Event, EventKind, Outcome
from mcp_optimizer.metrics.report import make_report
from tests.unit.dashboard.visiting import OWN_PAGE
from tests.waiting import until

TOKEN = "tök en of the tests"
HOSTILE = (
    '<script>alert("x")</script><img src=x onerror=alert(1)> "quoted" \' & &lt; '
    "\u202eelttil\u202c \u0007\u001b[31m \U000e0041 \u2028 {{7*7}}"
)
TOOLS: dict[str, list[dict[str, Any]]] = {
    "git": [
        {"name": "create_issue", "description": "Create an issue", "inputSchema": {"type": "object", "properties": {}}},
        {"name": "list_issues", "description": "List all issues", "inputSchema": {"type": "object"}},
    ],
    "<b>evil": [
        {"name": 'x"><script>', "description": HOSTILE, "inputSchema": {"type": "object", "title": "</code></pre>"}}
    ],
}


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    folder = tmp_path / "dumps"
    folder.mkdir()
    for name, tools in TOOLS.items():
        (folder / f"{name}.json").write_text(json.dumps(tools))
    return folder


@asynccontextmanager
async def started(dumps: Path, **options: Any) -> AsyncIterator[Optimizer]:
    settings = load_settings({"encoder": "none", "database": "none", **options})
    optimizer = Optimizer([], settings, dumps=dumped_servers(dumps))
    optimizer.start()
    await optimizer.catalog.caught_up()
    try:
        yield optimizer
    finally:
        await optimizer.stop()


@asynccontextmanager
async def browser(
    dumps: Path, host: str = "127.0.0.1", address: str = "http://localhost:8765", **options: Any
) -> AsyncIterator[tuple[httpx2.AsyncClient, Optimizer]]:
    async with started(dumps, **options) as optimizer:
        transport = httpx2.ASGITransport(app=optimizer.http_app(host))
        async with httpx2.AsyncClient(transport=transport, base_url=address) as client:
            yield client, optimizer


class Elements(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_harmless(page: str) -> None:
    """Check that a page has nothing that its content security policy would block: foreign scripts, handlers, styles."""
    elements = Elements(page)
    for tag, attributes in elements.tags:
        assert tag != "script" or attributes.get("src") in ("/static/dashboard.js", "/static/theme.js")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        assert not (attributes.get("href") or "").lower().startswith(("javascript:", "data:", "http"))
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069\u0007\u001b\u2028\U000e0041]", page)


PAGES = [
    "/",
    "/?days=1",
    "/catalog",
    "/search?q=alert+quoted+elttil",
    "/catalog?word=%3Cscript%3E",
    "/search?q=%3Cscript%3E",
]
EVIL_PAGE = f"/tools/{quote('<b>evil', safe='')}/{quote(TOOLS['<b>evil'][0]['name'], safe='')}"


@pytest.mark.slow
@pytest.mark.parametrize("path", [*PAGES, EVIL_PAGE, "/tools/no%3Cb%3E/%E2%80%AEsuch"])
async def test_a_hostile_tool_is_text_on_every_page(dumps: Path, path: str) -> None:
    async with browser(dumps) as (client, _):
        answer = await client.get(path)
    assert answer.status_code == (404 if "such" in path else 200)
    assert_harmless(answer.text)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert "'unsafe" not in answer.headers["Content-Security-Policy"]


async def test_a_hostile_description_can_be_read_with_what_was_hidden_in_it(dumps: Path) -> None:
    async with browser(dumps) as (client, _):
        text = Elements((await client.get(EVIL_PAGE)).text).text
    assert '<script>alert("x")</script><img src=x onerror=alert(1)>' in text
    assert "‹U+202E›elttil‹U+202C›" in text
    assert "‹U+0007›‹U+001B›[31m ‹U+E0041›" in text


async def test_the_overview_says_what_there_is_and_what_it_costs(dumps: Path) -> None:
    async with browser(dumps) as (client, optimizer):
        text = Elements((await client.get("/")).text).text
        sent = optimizer.snapshot.sent_tokens
    assert f"{sent:,} tokens of definitions from 3 tools of 2 servers" in text
    assert "No client has asked yet" in text


async def test_what_clients_do_appears_with_what_it_saved(dumps: Path) -> None:
    async with browser(dumps) as (client, optimizer):
        await client.get("/")
        await optimizer.find("create an issue")
        await optimizer.accounts.settled()
        optimizer._dashboard._summaries.clear()  # type: ignore[union-attr] # it was calculated a moment ago
        text = Elements((await client.get("/figures")).text).text
        page = Elements((await client.get("/")).text).text
    # Of a program without a name it is not known what it would have sent, so a search alone compares nothing.
    assert "Nothing to compare yet" in text
    assert "only results count" in text
    assert "create_issue" in page
    assert "Over time" in page


async def test_what_is_written_down_already_is_shown_once(tmp_path: Path) -> None:
    settings = load_settings({"encoder": "none", "database": str(tmp_path / "catalog.db")})
    async with Optimizer([], settings) as optimizer:
        transport = httpx2.ASGITransport(app=optimizer.http_app("127.0.0.1"))
        # The database stores milliseconds, so it returns a slightly earlier time than this.
        at = math.floor(time.time()) + 0.0004
        optimizer.recorder.record(Event(at, EventKind.CALL, "s", tool="only_once", server="github"))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost:8765") as client:
            await until(lambda: optimizer.recorder.written)
            live = (await client.get("/")).text.partition('id="live"')[2]
    assert Elements(live).text.count("only_once") == 1


async def test_a_search_explains_its_scores(dumps: Path) -> None:
    async with browser(dumps) as (client, optimizer):
        text = Elements((await client.get("/search?q=create+an+issue")).text).text
        index = optimizer.snapshot.index
        ranking = index.ranking("create an issue", None, 3)
        parts = index.contributions("create an issue", [int(at) for at in ranking.positions])
    assert "create_issue" in text
    assert "likely to answer; ranked by" in text
    assert "The reply costs" in text
    assert np.allclose([sum(one.values()) for one in parts], ranking.scores, atol=1e-5)


async def test_an_empty_search_asks_for_one_and_a_vain_one_says_so(dumps: Path) -> None:
    async with browser(dumps) as (client, _):
        assert "Search for an action" in (await client.get("/search")).text
        assert "nothing is returned" in (await client.get("/search?q=zzzz")).text


async def test_a_search_counts_as_a_call_of_whoever_looks(dumps: Path) -> None:
    async with browser(dumps, calls_per_minute=1) as (client, _):
        assert "create_issue" in (await client.get("/search?q=create+an+issue")).text
        refused = Elements((await client.get("/search?q=create+an+issue")).text).text
    assert "Too many calls: this caller may make 1 a minute" in refused
    assert "create_issue" not in refused


async def test_a_tool_is_shown_before_and_after(dumps: Path) -> None:
    async with browser(dumps) as (client, optimizer):
        text = Elements((await client.get("/tools/git/create_issue")).text).text
        tokens = optimizer.snapshot.by_name["create_issue"].tokens
    assert "As its server sent it" in text
    assert "Signature" in text
    assert f"{tokens:,} tokens" in text


async def test_the_catalog_is_filtered_and_paged(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    tools = [{"name": f"tool_{n:03}", "inputSchema": {"type": "object"}} for n in range(250)]
    (folder / "many.json").write_text(json.dumps(tools))
    async with browser(folder) as (client, _):
        first, last = await client.get("/catalog"), await client.get("/catalog?page=3")
        beyond, odd = await client.get("/catalog?page=99"), await client.get("/catalog?page=%C2%B2")
        some = await client.get("/catalog?word=TOOL_24")
    assert first.text.count("/tools/many/tool_") == 100
    assert last.text.count("/tools/many/tool_") == 50
    assert beyond.text == last.text
    assert odd.text == first.text
    assert some.text.count("/tools/many/tool_") == 10


# Who may see the dashboard


@pytest.mark.promise("host-and-origin-checked")
async def test_another_host_or_origin_is_refused(dumps: Path) -> None:
    async with browser(dumps) as (client, _):
        for path in ("/", "/metrics", "/events", "/figures"):
            assert (await client.get(path, headers={"Host": "evil.example"})).status_code == 421
            assert (await client.get(path, headers={"Origin": "http://evil.example"})).status_code == 403


async def test_beyond_loopback_nothing_is_shown_without_a_token(dumps: Path) -> None:
    outside = {"host": "0.0.0.0", "address": "http://gate:80", "allowed_hosts": "gate"}  # noqa: S104
    async with browser(dumps, **outside) as (client, _):
        for path in ("/", "/metrics", "/search?q=x", "/events"):
            answer = await client.get(path)
            assert answer.status_code == 401
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104
async def test_a_token_that_is_set_is_asked_for(dumps: Path, host: str) -> None:
    options = {"dashboard_token": TOKEN, "allowed_hosts": "gate"}
    async with browser(dumps, host, "http://gate:80", **options) as (client, _):
        asked = await client.get("/")
        assert asked.status_code == 401
        assert_harmless(asked.text)
        assert "create_issue" not in asked.text
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.post("/login", data={"token": "wrong"}, headers=OWN_PAGE)).status_code == 401
        assert (await client.get("/")).status_code == 401
        bearer = {b"Authorization": f"Bearer {TOKEN}".encode()}
        assert (await client.get("/metrics", headers=bearer)).status_code == 200
        admitted = await client.post("/login", data={"token": TOKEN}, headers=OWN_PAGE)
        assert (admitted.status_code, admitted.headers["location"]) == (303, "/")
        assert "tök" not in admitted.headers["set-cookie"]
        assert (await client.get("/")).status_code == 200


async def test_a_token_that_never_ends_is_refused(dumps: Path) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 100_000_000:
            sent += 100_000
            yield b"x" * 100_000

    async with started(dumps, dashboard_token=TOKEN) as optimizer:
        chunks = endless()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": await anext(chunks), "more_body": True}

        statuses = []

        async def send(answered: Any) -> None:
            statuses.append(answered.get("status"))

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/login",
            "query_string": b"",
            "headers": [(b"host", b"localhost:8765"), (b"sec-fetch-site", b"same-origin")],
        }
        await optimizer.http_app("127.0.0.1")(scope, receive, send)
    assert statuses[0] == 413
    assert sent <= 200_000


async def test_whoever_stops_watching_leaves_nothing_behind(dumps: Path) -> None:
    async with started(dumps) as optimizer:
        app = optimizer.http_app("127.0.0.1")
        before = len(asyncio.all_tasks())
        for _ in range(5):
            await watch_and_leave(app)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == before


async def watch_and_leave(app: Any) -> None:
    """Open the stream of events, receive its first line, and disconnect."""
    seen = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await seen.wait()
        return {"type": "http.disconnect"}

    async def send(answered: Any) -> None:
        if answered.get("body"):
            seen.set()

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/events",
        "query_string": b"",
        "headers": [(b"host", b"localhost:8765")],
    }
    await asyncio.wait_for(app(scope, receive, send), 20)
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_dashboard_can_be_turned_off(dumps: Path) -> None:
    async with browser(dumps, dashboard=False) as (client, _):
        for path in ("/", "/metrics", "/static/style.css"):
            assert (await client.get(path)).status_code == 404


def test_a_token_is_not_shown_with_the_settings() -> None:
    assert TOKEN not in repr(Settings(dashboard_token=TOKEN))


# What pages are made of


@given(st.text())
def test_any_text_is_shown_as_that_text_and_makes_no_element(text: str) -> None:
    elements = Elements(el("p", text, title=text))
    assert [tag for tag, _ in elements.tags] == ["p"]
    assert elements.text == visible(text).replace("\r", "")
    assert elements.tags[0][1]["title"] == visible(text)


def test_what_cannot_be_seen_is_written_out_and_the_rest_left_alone() -> None:
    assert visible("a\u202eb\u200bc\u0000\ufeff\ud800") == "a‹U+202E›b‹U+200B›c‹U+0000›‹U+FEFF›‹U+D800›"
    for plain in ("Größe, naïve, 日本語", "👨\u200d👩\u200d👧 ✓", "می\u200cخواهم", "tab\tline\nend"):
        assert visible(plain) == plain


def test_the_areas_of_a_map_are_as_large_as_the_weights() -> None:
    parts = tuple(Tile(f"t{n}", weight) for n, weight in enumerate((50, 25, 15, 10)))
    drawn = treemap([Tile("a", 100, None, parts), Tile("b", 300)], "map", 400, 300)
    boxes = [attributes for tag, attributes in Elements(drawn).tags if tag == "rect"]
    area = dict.fromkeys(("server", "tool"), 0.0)
    for box in boxes:
        x, y, width, height = (float(box[name] or 0) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + width <= 400
        assert y + height <= 300
        area[str(box["class"])] += (width + 1) * (height + 1)
    assert area["server"] == pytest.approx(400 * 300, rel=0.02)
    assert treemap([], "nothing", 10, 10).startswith("<svg")
    assert treemap([Tile("zero", 0)], "nothing", 10, 10).count("<rect") == 0


def test_a_chart_has_a_bar_for_each_period_and_words_for_it() -> None:
    drawn = bars_over_time([Period("1 May", "05-01", 1_000, 10), Period("2 May", "05-02", 0, 0)])
    assert "1 May: 10 tokens read, 1,000 without mcp-optimizer" in drawn
    assert drawn.count('class="without"') == 2
    assert bars_over_time([]).startswith("<svg")


def test_an_event_for_the_script_has_its_names_made_visible() -> None:
    event = Event(1.0, EventKind.CALL, "s", "cl\u202eient", "ser ver", "to/ol\u202e", outcome=Outcome.TIMEOUT)
    values = event_values(event)
    assert values["which"] == "to/ol‹U+202E›"
    assert values["client"] == "cl‹U+202E›ient"
    assert values["href"] == "/tools/ser%20ver/to%2Fol%E2%80%AE"
    assert values["outcome"] == "timeout"


async def test_the_report_is_one_page_without_script_or_address(dumps: Path) -> None:
    async with started(dumps) as optimizer:
        await optimizer.find("create an issue")
        found = make_report(optimizer.snapshot, optimizer.forms, optimizer.lists, optimizer.own_tokens)
        events = [Event(1.0, EventKind.CALL, "s", "c", "<b>evil", HOSTILE, 5, 50, 100)]
        page = report_page(replace(found, usage=optimizer.usage(events)))
    elements = Elements(page)
    assert not [tag for tag, _ in elements.tags if tag in ("script", "img", "link", "iframe", "a")]
    assert not re.search(r"[\u202e\u0007]", page)
    assert "<script>" in elements.text
    assert "What tools cost" in elements.text
    without = report_page(found)
    assert "Never called" not in without
