"""The pages that ask who somebody is. Pure: they are never given a key."""

from __future__ import annotations

from mcp_optimizer.dashboard.html import Child, el
from mcp_optimizer.dashboard.parts import frame


def sign_in_page(problem: str = "", *, takes_a_key: bool = True) -> str:
    own = [
        "On the machine of the gateway, ",
        el("code", "mcp-optimizer dashboard"),
        " opens this page signed in as its owner.",
    ]
    with_key = [
        "Elsewhere, give a key made with ",
        el("code", "mcp-optimizer key create --name NAME --role see"),
        " (or ",
        el("code", "manage"),
        "), or the dashboard token.",
    ]
    told = el("p", problem, class_="bad", role="alert") if problem else None
    lead: list[Child] = [el("p", own, class_="lead"), el("p", with_key, class_="lead") if takes_a_key else None]
    return frame("Sign in", el("h1", "Sign in"), told, lead, _form() if takes_a_key else None, is_closed=True)


def _form() -> Child:
    return el(
        "form",
        el("label", "Key or token", for_="token"),
        el("input", id="token", name="token", type="password", autocomplete="current-password", required=True,
           maxlength="1000"),
        el("button", "Sign in", type="submit", class_="main"),
        action="/login", method="post", class_="filter",
    )  # fmt: skip


def led_page(address: str) -> str:
    """Goes on by itself to where the sign-in is kept: a form may lead to no other name."""
    return frame(
        "Signed in",
        el("h1", "Signing you in"),
        el("p", el("a", "Go on", href=address, rel="noreferrer"), " under a name that no other program knows.",
           class_="lead"),
        el("meta", http_equiv="refresh", content=f"0;url={address}"),
        is_closed=True,
    )  # fmt: skip


def entered_page() -> str:
    """Goes on by itself: a browser sends its new cookie only from a page of ours."""
    return frame(
        "Signed in",
        el("h1", "You are signed in"),
        el("p", el("a", "Go on to the dashboard", href="/"), class_="lead"),
        el("meta", http_equiv="refresh", content="0;url=/"),
        is_closed=True,
    )
