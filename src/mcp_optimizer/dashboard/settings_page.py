"""The settings that this gateway runs with, to read: what each is, and which differ from their defaults.

Shows no value that may contain a secret, and changes nothing: settings come from flags, the environment and a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic_core import PydanticUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mcp_optimizer.config.settings import PREFIX, Settings
from mcp_optimizer.dashboard.guard import Guard
from mcp_optimizer.dashboard.html import Child, el
from mcp_optimizer.dashboard.page_parts import frame, section, table
from mcp_optimizer.dashboard.visitor import Visitor, visitor_of

PATH = "/settings"
_HIDDEN = "not shown"


@dataclass(frozen=True)
class SettingRow:
    """One setting and its value in words."""

    name: str
    value: str
    default: str
    meaning: str

    @property
    def is_changed(self) -> bool:
        return self.value != self.default


def rows_of(settings: Settings) -> list[SettingRow]:
    """All settings, without the values that may be secrets."""
    return [
        SettingRow(
            name,
            _told(getattr(settings, name)) if info.repr else _HIDDEN if getattr(settings, name) else "",
            "" if info.default is PydanticUndefined else _told(info.default),
            info.description or "",
        )
        for name, info in Settings.model_fields.items()
    ]


def _told(value: object) -> str:
    if value is None or value in ("", (), [], {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float | Path) else "set"


def settings_page(rows: Sequence[SettingRow], version: str, visitor: Visitor) -> str:
    changed = [row for row in rows if row.is_changed]
    lead = (
        "What this gateway runs with. A setting is changed with a flag of the command, a variable that begins with ",
        el("code", PREFIX),
        ", or in the settings file; some apply at once, others when the gateway starts again.",
    )
    return frame(
        "Settings",
        el("h1", "Settings"),
        el("p", lead, class_="lead"),
        section("Changed", _table(changed, "Settings that differ from their defaults"))
        if changed
        else section("Changed", el("p", "Every setting has its default.", class_="empty")),
        section("All", _table(rows, "All settings")),
        current=PATH,
        version=version,
        visitor=visitor,
    )


def _table(rows: Sequence[SettingRow], caption: str) -> Child:
    cells = [(el("code", row.name), el("code", row.value), el("code", row.default), row.meaning) for row in rows]
    return table(("setting", "value", "default", "meaning"), cells, caption, "stack settings")


class SettingsRoute:
    """The endpoint of the page."""

    def __init__(self, settings: Settings, version: str, guard: Guard) -> None:
        self._settings = settings
        self._version = version
        self._guard = guard

    def routes(self) -> list[Route]:
        return [Route(PATH, self._guard.private(self._page))]

    async def _page(self, request: Request) -> Response:
        return HTMLResponse(settings_page(rows_of(self._settings), self._version, visitor_of(request)))
