"""What a visitor can do now: sentences of the report, and for each command that they name, a button or link. Pure.

A button does what the command would do, and its label says to what, because names in a sentence may be a server's.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from urllib.parse import quote, urlencode

from mcp_optimizer.dashboard.html import Child, Html, el
from mcp_optimizer.dashboard.page_parts import (
    button,
    hidden,
    marked,
    named,
    section,
    server_href,
    server_page_href,
    tool_href,
)
from mcp_optimizer.dashboard.visitor import Visitor

_PROGRAM = "mcp-optimizer"
_SHOWN = 40


def to_do_part(lines: Sequence[str], visitor: Visitor | None) -> Html | None:
    """The section of the overview; None if there is nothing to do."""
    if not lines:
        return None
    can_manage = visitor is not None and visitor.can_manage
    items = [
        el("li", el("p", marked(line)), el("div", actions, class_="actions") if actions else None)
        for line in lines
        for actions in [actions_of(line, can_manage=can_manage)]
    ]
    return section("What to do", el("ul", items, class_="to-do"))


def actions_of(line: str, *, can_manage: bool) -> list[Html]:
    """What a page can do of the commands in a sentence."""
    found: list[Html] = []
    for command in _commands(line):
        for words, make in _ACTIONS.items():
            rest = command[len(words) :]
            if tuple(command[: len(words)]) == words and rest:
                found += make(rest, can_manage)
    return found


def _commands(line: str) -> Iterable[list[str]]:
    """The words of each command after the program's name."""
    for piece in line.split("`")[1::2]:
        try:
            words = shlex.split(piece)
        except ValueError:
            continue
        if words[:1] == [_PROGRAM]:
            yield words[1:]


Make = Callable[[Sequence[str], bool], list[Html]]


def _link(label: str, href: str) -> Html:
    return el("a", label, href=href, class_="button")


def _disable(words: Sequence[str], can_manage: bool) -> list[Html]:
    server, _, tool = words[0].partition("/")
    if not can_manage or tool == "TOOL":
        return []
    only: Child = hidden("tool", tool) if tool else None
    return [button(f"Disable {named(words[0], _SHOWN)}", "", server_page_href(server, "disable"), only)]


def _login(words: Sequence[str], can_manage: bool) -> list[Html]:
    label, server = f"Log in to {named(words[0], _SHOWN)}", quote(words[0], safe="", errors="replace")
    return [button(label, "", f"/logins/{server}", is_main=True) if can_manage else _link(label, "/logins")]


def _trust(words: Sequence[str], _can_manage: bool) -> list[Html]:
    query = urlencode({"server": words[0]}, errors="replace")
    return [_link(f"Review {named(words[0], _SHOWN)}", f"/trust?{query}")]


def _doctor(words: Sequence[str], can_manage: bool) -> list[Html]:
    name = named(words[0], _SHOWN)
    restart = [button(f"Restart {name}", "", server_page_href(words[0], "restart"))] if can_manage else []
    return [*restart, _link(f"Log of {name}", server_page_href(words[0]))]


def _tools(words: Sequence[str], _can_manage: bool) -> list[Html]:
    return [_link(f"Tools of {named(words[0], _SHOWN)}", server_href(words[0]))]


def _audit(words: Sequence[str], _can_manage: bool) -> list[Html]:
    tool = _option(words, "--tool")
    query = urlencode({"tool": tool, "since": "30d"}, errors="replace")
    return [_link(f"Calls of {named(tool, _SHOWN)}", f"/audit?{query}")] if tool else []


def _policy_test(words: Sequence[str], _can_manage: bool) -> list[Html]:
    asked = {"tool": words[0], "server": _option(words, "--server")}
    query = urlencode({name: value for name, value in asked.items() if value}, errors="replace")
    return [_link(f"Rules for {named(words[0], _SHOWN)}", f"/rules?{query}")]


def _show(words: Sequence[str], _can_manage: bool) -> list[Html]:
    server, _, tool = words[0].partition("/")
    return [_link(f"What models see of {named(tool, _SHOWN)}", tool_href(server, tool))] if tool else []


def _option(words: Sequence[str], name: str) -> str:
    """The value of an option in a command; "" without."""
    return next((value for option, value in pairwise(words) if option == name), "")


_ACTIONS: dict[tuple[str, ...], Make] = {
    ("disable",): _disable,
    ("login",): _login,
    ("trust", "diff"): _trust,
    ("doctor",): _doctor,
    ("tools",): _tools,
    ("audit",): _audit,
    ("policy", "test"): _policy_test,
    ("show",): _show,
}
