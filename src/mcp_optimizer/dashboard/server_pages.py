"""HTML of the pages that manage servers, and of the form that adds one. Pure: knows no request.

Only the command or address of a server is shown: arguments, variables and headers may be secrets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_optimizer.config.packages.draft import checked_name, environment_name, header_name
from mcp_optimizer.config.packages.fetching import checked_address
from mcp_optimizer.dashboard.html import Child, Html, el, number
from mcp_optimizer.dashboard.login_pages import facts
from mcp_optimizer.dashboard.page_parts import (
    ago,
    button,
    frame,
    hidden,
    named,
    section,
    server_href,
    server_page_href,
    state_mark,
    table,
    text_area,
    text_field,
)
from mcp_optimizer.dashboard.page_parts import field as form_field
from mcp_optimizer.dashboard.visitor import Visitor
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.terminal_text import counted

# The form that adds a server, and the server-file entry that it becomes. Values of variables and headers are never
# part of the entry: they are stored as secrets and not shown again.

PAIRS = 4
"""Variables or headers for which the form has room."""

_LONGEST = 4_096
_MOST_ARGUMENTS = 200
_ONE_WAY = "Give either a command or an address."
_NO_VARIABLES = "An address with variables cannot be added here: write it into the server file, or send a header."


@dataclass(frozen=True)
class NewServer:
    """A requested server. `secrets` are the values to store, by the names that the entry refers to."""

    name: str
    entry: Mapping[str, Any] = field(repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_program(self) -> bool:
        """Whether adding it runs a program as the user of the gateway."""
        return "command" in self.entry


def new_server(entered: Mapping[str, str]) -> NewServer:
    """The server that a form describes; raises ConfigurationError."""
    name = checked_name(entered.get("name", "").strip())
    command, url = entered.get("command", "").strip(), entered.get("url", "").strip()
    if bool(command) == bool(url):
        raise ConfigurationError(_ONE_WAY)
    words = [line for line in entered.get("args", "").replace("\r\n", "\n").split("\n") if line]
    if max(map(len, (command, *words))) > _LONGEST or len(words) > _MOST_ARGUMENTS:
        raise ConfigurationError(f"A command has at most {_MOST_ARGUMENTS} arguments of {_LONGEST:,} characters.")
    if any("\0" in word for word in (command, *words)):
        raise ConfigurationError("No program takes a NUL character.")
    secrets = _pairs(entered, is_address=bool(url))
    stored = {f"{name}/{key}": value for key, value in secrets.items()}
    references = {key: f"${{secret:{name}/{key}}}" for key in secrets}
    if url:
        if words:
            raise ConfigurationError("A server at an address takes no arguments.")
        checked_address(url)
        if "${" in url:
            # In an address, a reference would send a variable or secret of the gateway's user to that host.
            raise ConfigurationError(_NO_VARIABLES)
        return NewServer(name, {"url": url, **({"headers": references} if references else {})}, stored)
    arguments = {"args": words} if words else {}
    variables = {"env": references} if references else {}
    return NewServer(name, {"command": command, **arguments, **variables}, stored)


def _pairs(entered: Mapping[str, str], *, is_address: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for at in range(PAIRS):
        name, value = entered.get(f"secret-name-{at}", "").strip(), entered.get(f"secret-value-{at}", "")
        if not name and not value:
            continue
        if not name or not value:
            raise ConfigurationError("Each variable or header has a name and a value.")
        known = header_name(name) if is_address else environment_name(name)
        if known.lower() in {other.lower() for other in found}:
            raise ConfigurationError(f"{known} is there twice.")
        found[known] = value
    return found


def adding_form(entered: Mapping[str, str], action: str, *, keeps_secrets: bool, is_open: bool) -> Html:
    """`entered`: values to correct, without the secrets."""
    pairs = [_pair(at, entered) for at in range(PAIRS)] if keeps_secrets else None
    note = (
        "Variables of a command’s environment, or headers of an address. The values are stored encrypted, and never "
        "shown again. Enter them again if another field was wrong."
        if keeps_secrets
        else "Variables and headers can be added with a database, which keeps their values encrypted."
    )
    form = el(
        "form",
        el("div",
           text_field("Name", "name", entered.get("name", ""), "What people and models call it.",
                      required=True, maxlength=64),
           class_="fields"),
        el("div",
           el("fieldset", el("legend", "A program on this machine"), _program(entered)),
           el("fieldset", el("legend", "Or a server at an address"),
              text_field("Address", "url", entered.get("url", ""), maxlength=_LONGEST,
                         placeholder="https://example.com/mcp")),
           class_="ways"),
        el("fieldset", el("legend", "Secrets"), el("p", note, class_="note"), el("div", pairs, class_="pairs")),
        el("p", el("button", "Add the server", class_="main"), class_="actions"),
        action=action, method="post", class_="adding",
    )  # fmt: skip
    return el("details", el("summary", "Add a server"), form, class_="opens", open=is_open, id="add")


def _program(entered: Mapping[str, str]) -> list[Html]:
    return [
        text_field("Command", "command", entered.get("command", ""), maxlength=_LONGEST, placeholder="uvx"),
        form_field("Arguments", "args",
                   text_area("args", entered.get("args", ""), rows=3, aria_describedby="args-note",
                             placeholder="mcp-server-time"), note="One per line."),
    ]  # fmt: skip


def _pair(at: int, entered: Mapping[str, str]) -> Html:
    name, value = f"secret-name-{at}", f"secret-value-{at}"
    return el(
        "div",
        el("label", f"Name of secret {at + 1}", for_=name, class_="unseen"),
        el("input", id=name, name=name, type="text", value=entered.get(name, ""), placeholder="NAME",
           autocomplete="off", maxlength=200),
        el("label", f"Value of secret {at + 1}", for_=value, class_="unseen"),
        el("input", id=value, name=value, type="password", placeholder="value", autocomplete="new-password"),
    )  # fmt: skip


PATH = "/servers"
MOST_SHOWN = 500
_MOST_TURNED_OFF = 100
_WANTS_LOGIN = ("login needed", "more permissions needed", "expired")


@dataclass(frozen=True)
class ServerShown:
    """One server, as people see it."""

    name: str
    status: str
    target: str
    transport: str
    reason: str = ""
    version: str = ""
    protocol: str = ""
    since_ms: int | None = None
    restarts: int = 0
    tools: int = 0
    tokens: int = 0
    login: str = ""
    """The state of its login; empty if it needs none."""
    is_disabled: bool = False
    can_run: bool = True
    turned_off: Sequence[str] = ()
    """Tools, or patterns of tools, that its entry turns off."""


@dataclass(frozen=True)
class ServerPageContext:
    """Values that all server pages need."""

    version: str
    visitor: Visitor
    now_ms: int
    can_change: bool
    """There is a server file, and the settings allow changes to it on the dashboard."""
    keeps_secrets: bool = False
    broken: str = ""
    """The mistake in the current server file, if there is one."""
    undo: tuple[str, int] | None = None
    """The last change made on the dashboard, and its time."""
    problem: str = ""
    """Why a requested action was not done."""

    @property
    def offers_changes(self) -> bool:
        return self.can_change and self.visitor.can_manage


@dataclass(frozen=True)
class ServersPage:
    """All servers."""

    around: ServerPageContext
    servers: Sequence[ServerShown]
    entered: Mapping[str, str] = field(default_factory=dict)
    """The form's values, if they contain a mistake."""


@dataclass(frozen=True)
class ServerPage:
    """One server, and the end of its log."""

    around: ServerPageContext
    server: ServerShown
    log: Sequence[str]


def servers_page(values: ServersPage) -> str:
    around = values.around
    lead = "Every server behind the gateway, with its state and the possible actions."
    form = adding_form(values.entered, PATH, keeps_secrets=around.keeps_secrets,
                       is_open=bool(values.entered) or not values.servers)  # fmt: skip
    body = [
        el("h1", "Servers"),
        el("p", lead, class_="lead"),
        notices(around),
        form if around.offers_changes else None,
        _all(values),
    ]
    return _framed("Servers", body, around)


def _framed(title: str, body: Child, around: ServerPageContext) -> str:
    return frame(title, body, current=PATH, version=around.version, visitor=around.visitor)


def notices(around: ServerPageContext) -> list[Html | None]:
    """The failed action, the mistake in the server file, and the change that can be undone."""
    broken = [
        el("strong", "The file was edited and cannot be used"),
        "; what runs is the version before. ",
        el("span", named(around.broken, 600)),
    ]
    undo = None
    if around.undo is not None and around.offers_changes:
        told, at_ms = around.undo
        undo = el(
            "div",
            el("span", f"{told[:1].upper()}{told[1:]} ", ago(at_ms, around.now_ms), "."),
            button("Undo", told, f"{PATH}/undo", hidden("at", str(at_ms))),
            class_="notice undo",
            role="status",
        )
    return [
        el("p", named(around.problem, 600), class_="notice bad", role="alert") if around.problem else None,
        el("p", broken, class_="notice bad", role="alert") if around.broken else None,
        undo,
    ]


def _all(values: ServersPage) -> Html:
    if not values.servers:
        return el("p", "There are no servers yet. Add one here, or with `mcp-optimizer add`.", class_="empty")
    around = values.around
    rows = [
        (
            [el("a", el("strong", named(server.name)), href=server_page_href(server.name)), _reason(server)],
            [_state(server), _login(server)],
            el("code", named(server.target, 160)),
            ago(server.since_ms, around.now_ms, "–"),
            number(server.restarts),
            number(server.tools),
            number(server.tokens),
            *([el("div", _buttons(server, around, is_short=True), class_="actions")] if _has_buttons(around) else []),
        )
        for server in values.servers[:MOST_SHOWN]
    ]
    titles = ("server", "state", "command, URL", "since", "#restarts", "#tools", "#tokens")
    more = len(values.servers) - MOST_SHOWN
    note = f"and {more:,} more: mcp-optimizer servers" if more > 0 else None
    shown = table((*titles, *([""] if _has_buttons(around) else [])), rows, "Servers", "stack tended")
    return section("All", shown, note=note) if note else shown


def _has_buttons(around: ServerPageContext) -> bool:
    return around.visitor.can_manage


def _reason(server: ServerShown) -> Html | None:
    return el("div", named(server.reason, 300), class_="note") if server.reason else None


def _state(server: ServerShown) -> Html:
    if server.is_disabled:
        return state_mark("disabled")
    return state_mark(server.status, "/logins" if server.status == "login needed" else None)


def _login(server: ServerShown) -> Html | None:
    if not server.login or server.login in ("none", server.status):
        return None
    return el("div", state_mark(server.login, "/logins" if server.login in _WANTS_LOGIN else None), class_="note")


def _buttons(server: ServerShown, around: ServerPageContext, *, is_short: bool = False) -> list[Html | None]:
    name = named(server.name)
    can_restart = server.can_run and not server.is_disabled
    restart = button("Restart", name, server_page_href(server.name, "restart")) if can_restart else None
    if not around.can_change:
        return [restart]
    switch = (
        button("Enable", name, server_page_href(server.name, "enable"), is_main=True)
        if server.is_disabled
        else button("Disable", name, server_page_href(server.name, "disable"))
    )
    remove = el("a", "Remove …", el("span", f" – {name}", class_="unseen"),
                href=server_page_href(server.name, "remove"), class_="button")  # fmt: skip
    return [restart, switch] if is_short else [restart, switch, remove]


def server_page(values: ServerPage) -> str:
    server, around = values.server, values.around
    fixed = None if around.can_change else el(
        "p", "Its entry cannot be changed here: it is not from a server file, or dashboard_changes is off.",
        class_="note")  # fmt: skip
    body = [
        el("h1", named(server.name)),
        el("p", el("a", "All servers", href=PATH), class_="lead"),
        notices(around),
        now_part(values),
        el("div", _buttons(server, around), class_="actions after") if around.visitor.can_manage else None,
        fixed if around.visitor.can_manage else None,
        _turned_off(server, around),
        log_part(values),
    ]
    return _framed(server.name, body, around)


def now_part(values: ServerPage) -> Html:
    """The part that the page's script fetches again."""
    server, around = values.server, values.around
    uptime = "Running since" if server.status == "running" else "So since"
    told: list[tuple[str, Child]] = [
        ("State", _state(server)),
        *([("Reason", named(server.reason, 600))] if server.reason else []),
        ("Command" if server.transport == "stdio" else "Address", el("code", named(server.target, 300))),
        ("Version", named(server.version) or "it does not say"),
        ("Protocol", named(server.protocol) or "–"),
        (uptime, ago(server.since_ms, around.now_ms, "–")),
        ("Restarts", number(server.restarts)),
        ("Tools", el("a", f"{counted(server.tools, 'tool')}, {server.tokens:,} tokens", href=server_href(server.name))),
    ]
    if server.login:
        told.append(("Login", _login_link(server)))
    return el("div", facts(told), id="now", data_live=server_page_href(server.name, "now"))


def _login_link(server: ServerShown) -> Child:
    state = "not logged in" if server.login == "none" else server.login
    if server.status == "login needed":
        state = "login needed"
    return [state_mark(state), " ", el("a", "Log in or out", href="/logins")]


def _turned_off(server: ServerShown, around: ServerPageContext) -> Html | None:
    if not server.turned_off:
        return None
    rows = [
        (
            el("code", named(tool)),
            *([button("Enable", named(tool), server_page_href(server.name, "enable"), hidden("tool", tool))]
              if around.offers_changes else []),
        )
        for tool in server.turned_off[:_MOST_TURNED_OFF]
    ]  # fmt: skip
    titles = ("tool", *([""] if around.offers_changes else []))
    return section("Tools that are turned off", table(titles, rows, "Tools that are turned off", "off"))


def log_part(values: ServerPage) -> Html:
    note = "Its stderr and what happened to it, without its secrets; the newest last. UTC."
    text = "\n".join(values.log)
    shown = el("pre", text or "Nothing yet.", id="log", tabindex="0", role="log", aria_label="The server's log",
               aria_live="off")  # fmt: skip
    return section("Log", shown, note=note)


def removal_page(server: ServerShown, around: ServerPageContext) -> str:
    """A confirmation page for the removal of a server, which works without a script."""
    name = named(server.name)
    body = [
        el("h1", f"Remove {name}?"),
        el("p", "Its entry leaves the server file, its process ends, and its tools are gone. This can be undone here "
                "until the file changes again.", class_="lead"),
        el("p", "Kept: secrets that it uses, a login to it, its history, and the approved state of its tools.",
           class_="note"),
        el("div",
           button("Remove", name, server_page_href(server.name, "remove"), is_main=True),
           el("a", "Keep it", href=server_page_href(server.name), class_="button"),
           class_="actions"),
    ]  # fmt: skip
    return _framed(f"Remove {name}", body, around)
