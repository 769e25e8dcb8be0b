"""A fixed catalog and a fixed history, for tests of reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.domain.events import Event, EventKind, Outcome
from mcp_optimizer.metrics.report import Report, make_report
from mcp_optimizer.metrics.savings import PLAIN_PRICES, Assumptions, Prices
from mcp_optimizer.metrics.usage import make_usage
from mcp_optimizer.metrics.weights import weights

_TEXT = {"type": "string", "title": "Text", "description": "What it says."}
_NUMBER = {"type": "integer", "minimum": 1, "description": "Which one."}


def _tool(name: str, description: str, **parameters: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)[:1], "$schema": "x"}
    return {"name": name, "description": description, "inputSchema": schema}


DUMPS = {
    "git": [
        _tool("create_issue", "Create an issue in a repository. Says where it is.", title=_TEXT, body=_TEXT),
        _tool("list_issues", "List all issues of a repository.", state=_TEXT),
        _tool("close_issue", "Close an issue.", number=_NUMBER),
        _tool("get_issue", "Get one issue with all of its comments.", number=_NUMBER),
    ],
    "mail": [_tool("send", "Send a mail to somebody.", to=_TEXT, subject=_TEXT, text=_TEXT)],
}

START = 1_700_000_000.0

EVENTS = [
    Event(START, EventKind.LOAD, "a", "claude", tokens=346, full_tokens=346, baseline_tokens=900),
    Event(START + 1, EventKind.FIND, "a", "claude", "", "", 200, 200, 900, 3.25,
          found=(("git", "create_issue"), ("git", "list_issues"))),
    Event(START + 2, EventKind.CALL, "a", "claude", "git", "create_issue", 40, 400, 900, 120.5, truncated=True),
    Event(START + 3, EventKind.CALL, "a", "claude", "git", "create_issue", 12, 12, 900, 80.0,
          outcome=Outcome.BAD_REQUEST),
    Event(START + 90_000, EventKind.CALL, "b", "", "git", "list_issues", 6_000, 6_000, 900, 40.0, cached=True),
    Event(START + 90_001, EventKind.READ, "b", "", "", "", 100, 100, 900, 1.0),
    Event(START + 400_000, EventKind.LIST, "a", "claude", "", "", 77, 77, 900, 2.0),
    Event(START + 400_001, EventKind.CALL, "a", "claude", "git", "list_issues", 30, 30, 900, 41.0,
          outcome=Outcome.TIMEOUT),
]  # fmt: skip

ASSUMPTIONS = Assumptions(requests_per_session=None, own_tokens=346)

PRICES = Prices("some-model", "USD", input=3.0, cache_read=0.3, cache_write=3.75)


def write_dumps(folder: Path) -> Path:
    """The catalog as a folder of tools/list dumps."""
    for name, tools in DUMPS.items():
        (folder / f"{name}.json").write_text(json.dumps(tools))
    return folder


async def report_on_dumps(folder: Path, events: Sequence[Event] | None, prices: Prices = PLAIN_PRICES) -> Report:
    """The report on this catalog, with the usage from `events`; None means no usage."""
    optimizer = Optimizer.from_dumps(write_dumps(folder), load_settings({"encoder": "none"}))
    optimizer.start()
    await optimizer.catalog.caught_up()
    usage = None if events is None else make_usage(events, weights(optimizer.snapshot), ASSUMPTIONS, prices)
    try:
        return make_report(optimizer.snapshot, optimizer.forms, optimizer.lists, 346, usage=usage)
    finally:
        await optimizer.stop()
