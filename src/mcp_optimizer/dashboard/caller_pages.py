"""The pages of callers, from values to HTML. Pure: knows no request.

The text of a key is on one page only, that of a new key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from mcp_optimizer.callers.keys import LONGEST_NAME as LONGEST_KEY_NAME
from mcp_optimizer.dashboard.fields import ago, choice, confirmed, hidden, named, text_field, word
from mcp_optimizer.dashboard.html import Child, Html, el, number
from mcp_optimizer.dashboard.parts import frame, section, state_mark, table
from mcp_optimizer.dashboard.visitor import Visitor
from mcp_optimizer.domain.api_key import ApiKey
from mcp_optimizer.domain.principal import Risk, Role
from mcp_optimizer.domain.token_issuers import TokenIssuer
from mcp_optimizer.errors import listed

if TYPE_CHECKING:
    from mcp_optimizer.db.audit import ActiveCaller

PATH = "/callers"
MOST_SHOWN = 500
_MOST_NAMES = 8
_RISKS = (
    (Risk.READ.value, "tools that only read"),
    (Risk.WRITE.value, "tools that read or write"),
    (Risk.DESTRUCTIVE.value, "every tool"),
)
_ROLES = (
    (Role.NONE.value, "nothing"),
    (Role.SEE.value, "see everything"),
    (Role.MANAGE.value, "see and manage everything"),
)
_EXPIRIES = (("1d", "a day"), ("30d", "30 days"), ("90d", "90 days"), ("52w", "a year"), ("never", "for ever"))


@dataclass(frozen=True)
class CallersPage:
    """Everybody who may call, and who did."""

    version: str
    visitor: Visitor
    now_ms: int
    keys: Sequence[ApiKey] | None
    """None: there is no database to keep them."""
    issuers: Sequence[TokenIssuer] = ()
    active: Sequence[ActiveCaller] = ()
    servers: Sequence[str] = ()
    entered: Mapping[str, str] = field(default_factory=dict)
    """What was entered in the form, if there is something wrong with it."""
    problem: str = ""


def callers_page(values: CallersPage) -> str:
    lead = "Who may call over HTTP, and who did. A key is shown once, when it is made; only a hash of it is kept."
    return frame(
        "Callers",
        el("h1", "Callers"),
        el("p", lead, class_="lead"),
        el("p", values.problem, class_="bad", role="alert") if values.problem else None,
        _keys(values),
        _new_key(values) if values.keys is not None and values.visitor.can_manage else None,
        _issuers(values.issuers),
        _active(values),
        current=PATH,
        version=values.version,
        visitor=values.visitor,
    )


def _keys(values: CallersPage) -> Html:
    if values.keys is None:
        told = "Keys are kept in the catalog database, and there is none (--database none), or it cannot be opened now."
        return section("Keys", el("p", told, class_="empty"))
    if not values.keys:
        return section("Keys", el("p", "There are no keys yet.", class_="empty"))
    can_manage = values.visitor.can_manage
    titles = ("name", "state", "servers", "risk", "role", "expires", "last used", *([""] if can_manage else []))
    rows = [_key(key, values) for key in values.keys[:MOST_SHOWN]]
    more = "There are more: mcp-optimizer key list shows all." if len(values.keys) > MOST_SHOWN else None
    return section("Keys", table(titles, rows, "Keys", "stack"), note=more)


def _key(key: ApiKey, values: CallersPage) -> tuple[Child, ...]:
    state = key.state(values.now_ms)
    servers = "all" if key.servers is None else listed([named(one, 40) for one in sorted(key.servers)], _MOST_NAMES)
    expires = ago(key.expires_at_ms, values.now_ms)
    cells = (
        el("strong", named(key.name)),
        state_mark(state),
        servers,
        word(key.risk.value),
        word(key.role.value),
        expires,
        ago(key.used_at_ms, values.now_ms),
    )
    if not values.visitor.can_manage:
        return cells
    question = "Requests with it are refused within two seconds. This cannot be undone."
    revoke = confirmed("Revoke", named(key.name), question, f"{PATH}/revoke", hidden("id", key.id))
    return (*cells, revoke if state == "living" else None)


def _new_key(values: CallersPage) -> Html:
    entered = values.entered
    known = f"With commas; empty: all. {listed([named(one, 40) for one in values.servers], _MOST_NAMES)}"
    form = el(
        "form",
        text_field("Name", "name", entered.get("name", ""), "What people and rules call its holder.",
                   required=True, maxlength=LONGEST_KEY_NAME),
        text_field("Servers", "servers", entered.get("servers", ""), known, maxlength=20_000),
        choice("May call", "risk", _RISKS, entered.get("risk", Risk.READ.value)),
        choice("On this dashboard", "role", _ROLES, entered.get("role", Role.NONE.value)),
        choice("Lasts", "expires", _EXPIRIES, entered.get("expires", "90d")),
        el("p", el("button", "Make the key", class_="main")),
        action=f"{PATH}/new", method="post", class_="fields",
    )  # fmt: skip
    return section("Make a key", form)


def _issuers(issuers: Sequence[TokenIssuer]) -> Html | None:
    if not issuers:
        return None
    rows = [
        (el("strong", issuer.name), named(issuer.issuer, 200), [_scopes(issuer.required_scopes), _by_risk(issuer)])
        for issuer in issuers
    ]
    return section("Token issuers", table(("name", "issuer", "scopes"), rows, "Issuers of tokens", "stack"))


def _by_risk(issuer: TokenIssuer) -> list[Html]:
    return [
        el("div", f"{risk.value}: ", _scopes(scopes)) for risk in Risk if (scopes := issuer.risk_scopes.get(risk, ()))
    ]


def _scopes(scopes: Sequence[str]) -> Child:
    return [[" " if at else None, el("code", named(scope, 60))] for at, scope in enumerate(scopes)]


def _active(values: CallersPage) -> Html:
    title = "Callers in the last 24 hours"
    if not values.active:
        return section(title, el("p", "The audit has no callers.", class_="empty"))
    rows = [
        (
            [el("a", named(one.caller) or "no caller", href=audit_href(caller=one.caller)) if one.caller
             else "no caller",
             el("span", f" of {named(one.tenant)}", class_="note") if one.tenant else None],
            number(one.acts),
            number(one.refused),
            ago(one.last_at_ms, values.now_ms),
        )
        for one in values.active
    ]  # fmt: skip
    return section(title, table(("caller", "#acts", "#refused", "last"), rows, title, "stack"))


def audit_href(caller: str = "", tool: str = "", server: str = "") -> str:
    """The audit of exactly this caller or tool, whatever its name contains."""
    asked = {"caller": escape(caller), "tool": escape(tool), "server": server}
    return "/audit?" + urlencode({key: value for key, value in asked.items() if value}, errors="replace")


def new_key_page(key: ApiKey, text: str, address: str, note: str, version: str, visitor: Visitor) -> str:
    """The only page that ever shows a key."""
    return frame(
        "A new key",
        el("h1", named(key.name)),
        el("p", "This is the only time that the key is shown. Copy it now.", class_="lead"),
        el("pre", el("code", text), tabindex="0", id="key"),
        el("p", note, class_="bad") if note else None,
        section("How clients send it", el("pre", el("code", f"Authorization: Bearer {text}"), tabindex="0"),
                el("p", "to ", el("code", address), class_="note")),
        el("p", el("a", "I have copied it", href=PATH, class_="button main"), class_="actions"),
        current=PATH,
        version=version,
        visitor=visitor,
    )  # fmt: skip
