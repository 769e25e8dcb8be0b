"""The pages of logins to servers, from values to HTML. Pure: knows no request, and is never given a token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from mcp_optimizer.dashboard.html import Child, Html, el
from mcp_optimizer.dashboard.parts import frame, moment, state_mark
from mcp_optimizer.dashboard.visitor import Visitor
from mcp_optimizer.identity.login import LoginStatus
from mcp_optimizer.runtime.terminal_text import span

PATH = "/logins"
_WAITING = ("login needed", "more permissions needed")
_CLOSE = "You can close this page. The dashboard is where you left it."
_ANY = "the server's default"


@dataclass(frozen=True)
class LoginRow:
    """A server that may want a login."""

    login: LoginStatus
    is_asked: bool = False
    """The server waits for a login."""
    is_account: bool = False
    """The gateway has an account of its own there; nobody logs in or out."""


@dataclass(frozen=True)
class BegunLogin:
    """A login that has begun, for the person who is about to leave for the authorization server."""

    server: str
    issuer: str
    address: str
    scopes: Sequence[str]
    returns_to: str
    leads_by: str = ""
    """Where the browser passes on its way, if it comes back under another name than it set out from."""


def logins_page(rows: Sequence[LoginRow], now: float, version: str, visitor: Visitor | None = None) -> str:
    lead = "Servers that may want a login. The gateway keeps each login sealed, and refreshes it by itself."
    nothing = el("p", "No server of the server file can want a login.", class_="empty")
    can_manage = visitor is None or visitor.can_manage
    shown = el("ul", [_row(row, now, can_manage) for row in rows], class_="logins") if rows else nothing
    body = el("h1", "Logins"), el("p", lead, class_="lead"), shown
    return frame("Logins", *body, current=PATH, version=version, visitor=visitor)


def _row(row: LoginRow, now: float, can_manage: bool) -> Html:
    login = row.login
    return el(
        "li",
        el("div", el("h2", login.server), state_mark(_state(row)), class_="title"),
        facts(_facts(row, now)),
        None if row.is_account or not can_manage else el("div", _buttons(row), class_="actions"),
    )


def _state(row: LoginRow) -> str:
    if row.login.state != "none":
        return row.login.state
    return "login needed" if row.is_asked else "not logged in"


def _facts(row: LoginRow, now: float) -> list[tuple[str, Child]]:
    login = row.login
    found: list[tuple[str, Child]] = []
    if row.is_account:
        found.append(("Account", "the gateway's own account; no login needed"))
    if login.issuer:
        found += [("Issuer", login.issuer), ("Permissions", permissions(login.scopes))]
    if login.wanted:
        found.append(("Missing", [permissions(login.wanted), " (a call needed more; log in again to give them)"]))
    if login.expires_at is not None:
        left = login.expires_at - now
        when = f"in {span(left)}" if left > 0 else f"{span(-left)} ago"
        found.append(("Expires" if left > 0 else "Expired", [_time(login.expires_at, when), f"; {_renewal(row)}"]))
    if login.refreshed_at is not None:
        found.append(("Last refresh", _time(login.refreshed_at, f"{span(max(0.0, now - login.refreshed_at))} ago")))
    if login.error:
        found.append(("Last error", el("span", login.error, class_="bad")))
    return found


def _renewal(row: LoginRow) -> str:
    if row.login.state == "login needed":
        return "only a new login helps"
    return "refreshed by itself" if row.login.can_refresh or row.is_account else "cannot be refreshed"


def facts(found: Sequence[tuple[str, Child]]) -> Html | None:
    return el("dl", [[el("dt", name), el("dd", value)] for name, value in found], class_="facts") if found else None


def permissions(scopes: Sequence[str]) -> Child:
    return [[", " if at else None, el("code", scope)] for at, scope in enumerate(scopes)] or _ANY


def _time(at: float, text: str) -> Html:
    return el("time", text, datetime=moment(at), title=f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC")


def _buttons(row: LoginRow) -> list[Html]:
    server, is_in = row.login.server, row.login.state != "none"
    log_in = _button("Log in again" if is_in else "Log in", server, "", is_main=_state(row) in _WAITING)
    return [log_in, _button("Log out", server, "/out")] if is_in else [log_in]


def _button(label: str, server: str, action: str, *, is_main: bool = False) -> Html:
    # Several buttons of a page have this label; who cannot see the page needs the server, too.
    button = el("button", label, el("span", f" – {server}", class_="unseen"), class_="main" if is_main else None)
    return el("form", button, action=f"{PATH}/{quote(server, safe='')}{action}", method="post")


def question_page(asked: BegunLogin, version: str) -> str:
    """Where the login goes on, as a link: the form that began it may lead to no other site."""
    host, title = urlsplit(asked.address).netloc, f"Log in to {asked.server}"
    told: list[tuple[str, Child]] = [
        ("Server", asked.server),
        ("Permissions", permissions(asked.scopes)),
        ("Opens", host),
        ("Returns to", asked.returns_to),
    ]
    go_on = el("a", f"Continue to {asked.issuer}", href=asked.leads_by or asked.address, rel="noreferrer",
               target="_blank" if asked.leads_by else None, class_="button main")  # fmt: skip
    cancel = el("a", "All logins" if asked.leads_by else "Cancel", href=PATH)
    return frame(
        title,
        el("h1", title),
        el("p", "You log in at the issuer, which sends your browser back here. The gateway never sees your password.",
           class_="lead"),
        facts(told),
        el("p", go_on, " ", cancel, class_="actions"),
        current=PATH,
        version=version,
    )  # fmt: skip


def outcome_page(title: str, text: str, version: str, *, is_elsewhere: bool = False) -> str:
    """`is_elsewhere`: the browser is signed in under another name, where the page that it came from still is."""
    told = el("p", text, class_="lead")
    if is_elsewhere:
        return frame(title, el("h1", title), told, el("p", _CLOSE), is_closed=True)
    link = el("a", "All logins", href=PATH)
    return frame(title, el("h1", title), told, el("p", link), current=PATH, version=version)
