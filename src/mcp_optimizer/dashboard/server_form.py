"""The form that adds a server, and the server-file entry that it becomes. Pure.

Values of variables and headers are never part of the entry: they are stored as secrets and not shown again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_optimizer.config.packages.fetching import checked_address
from mcp_optimizer.config.packages.sources import checked_name
from mcp_optimizer.config.packages.untrusted_text import environment_name, header_name
from mcp_optimizer.dashboard.html import Html, el
from mcp_optimizer.dashboard.page_parts import field as form_field
from mcp_optimizer.dashboard.page_parts import text_area, text_field
from mcp_optimizer.errors import ConfigurationError

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
