"""Takes the screenshots in docs/images: the report in a terminal and as a page, and the dashboard after real use.

`python scripts/make_pictures.py DUMPS`, where DUMPS is a folder of tools/list dumps. Needs chromium and the dev
dependencies.
"""

from __future__ import annotations

import asyncio
import io
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client
from playwright.async_api import Browser, async_playwright
from rich.console import Console

from mcp_optimizer.cli.report_tables import show_report
from mcp_optimizer.cli.reports import report_on
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.dashboard.report_page import report_page
from mcp_optimizer.metrics.report import Report

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COMMAND = [sys.executable, "-m", "mcp_optimizer"]
PORT = 8799

CONVERSATIONS: list[list[tuple[str, str, list[dict[str, Any]]]]] = [
    [("move a card to another column", "move_card", [{"card_id": 1, "column_id": 2}, {"card_id": 2, "column_id": 2}])],
    [("get a card with its details", "get_card", [{"card_id": 3}, {"card_id": 4}])],
    [("comment on a card", "add_comment", [{"card_id": 1, "text": "Looks good."}])],
    [("which tables does the database have", "listTables", [{}])],
    [("search the web", "web_search", [{"query": "kanban"}]), ("list all boards", "list_boards", [{}])],
    [("list the cards that are blocked", "list_blockers", [{}]), ("unblock a card", "unblock_card", [{"card_id": 5}])],
]
"""What the user wants, the tool that does it, and the arguments of each call."""


def terminal(report: Report, columns: int) -> str:
    """The report as a terminal of this width shows it, as SVG that loads no fonts."""
    console = Console(record=True, width=columns, file=io.StringIO(), highlight=False)
    show_report(console, report)
    drawn = console.export_svg(title=f"mcp-optimizer report, {columns} columns")
    drawn = re.sub(r"@font-face\s*{.*?}", "", drawn, flags=re.DOTALL)
    return f"<!doctype html><style>body{{margin:0}}svg{{width:100%;height:auto}}</style>{drawn}"


async def take(browser: Browser, address: str, name: str, width: int, height: int, scheme: Any = "light") -> None:
    page = await browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    await page.goto(address)
    await page.wait_for_timeout(2_000)
    path = IMAGES / f"{name}.png"
    shown = page.locator("svg").first if name.startswith("report-") and "html" not in name else page
    await shown.screenshot(path=path)
    await page.close()
    if quantizer := shutil.which("pngquant"):
        await (await asyncio.create_subprocess_exec(quantizer, "--force", "--ext", ".png", "48", str(path))).wait()


async def use(address: str) -> None:
    """Hold the conversations as a model would: search, then call."""
    for wishes in CONVERSATIONS:
        async with Client(address, mode="legacy") as client:
            await client.list_tools()
            for wish, tool, calls in wishes:
                await client.call_tool("find_tool", {"tool_description": wish})
                for arguments in calls:
                    await client.call_tool("call_tool", {"tool_name": tool, "parameters": arguments})


async def main(dumps: Path) -> None:
    IMAGES.mkdir(exist_ok=True)
    chromium = shutil.which("chromium")
    report = await report_on(load_settings({}), dumps)
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            for columns, width, height in ((80, 700, 1_120), (160, 1_240, 860)):
                (place / "terminal.html").write_text(terminal(report, columns), encoding="utf-8")
                await take(browser, f"file://{place}/terminal.html", f"report-{columns}", width, height)
            (place / "report.html").write_text(report_page(report), encoding="utf-8")
            await take(browser, f"file://{place}/report.html", "report-html", 1_100, 1_250)
            await dashboard(browser, place)
        await browser.close()


async def dashboard(browser: Browser, place: Path) -> None:
    options = ["--demo", "--database", str(place / "demo.db"), "--http", f"127.0.0.1:{PORT}"]
    options += ["--price-model", "claude-sonnet-4-5"]
    process = await asyncio.create_subprocess_exec(*COMMAND, "serve", *options)
    home = f"http://127.0.0.1:{PORT}/"
    try:
        await asyncio.sleep(15)
        await use(f"{home}mcp")
        await asyncio.sleep(3)
        await take(browser, home, "dashboard-light", 1_180, 1_250)
        await take(browser, home, "dashboard-dark", 1_180, 1_250, "dark")
        await take(browser, home, "dashboard-phone", 390, 1_250, "dark")
        await take(browser, f"{home}search?q=move+a+card+to+another+column", "dashboard-search", 1_180, 820)
    finally:
        process.terminate()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
