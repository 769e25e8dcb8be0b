"""The page that asks for a key. Pure: it is never given one."""

from __future__ import annotations

from mcp_optimizer.dashboard.html import el
from mcp_optimizer.dashboard.parts import frame


def sign_in_page(problem: str = "") -> str:
    lead = [
        "A key made with ",
        el("code", "mcp-optimizer key create --name NAME --role see"),
        " (or ",
        el("code", "manage"),
        "), or the dashboard token.",
    ]
    form = el(
        "form",
        el("label", "Key or token", for_="token"),
        el("input", id="token", name="token", type="password", autocomplete="current-password", required=True,
           maxlength="1000"),
        el("button", "Sign in", type="submit", class_="main"),
        action="/login", method="post", class_="filter",
    )  # fmt: skip
    told = el("p", problem, class_="bad", role="alert") if problem else None
    return frame("Sign in", el("h1", "Sign in"), el("p", lead, class_="lead"), told, form, is_closed=True)
