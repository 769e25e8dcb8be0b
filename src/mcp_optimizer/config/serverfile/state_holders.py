"""Servers that hold something in memory, which a stop would lose and another client would see: they keep running, and
clients do not share them, unless their entry says otherwise.

Known by the package or program that starts them. Read by the parser of the server file; `import` and `add` write
`"idle_timeout": "never"` into the entry, so that the user sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mcp_optimizer.config.serverfile.spec import Start
from mcp_optimizer.runtime.patterns import regex

NEVER: Final = "never"

_BROWSER = "an open browser"
_THOUGHTS = "a train of thought"
_TERMINALS = "open terminals and searches"
_KERNEL = "the notebook in use and its kernel"
_PROJECT = "the active project and its language servers"
_IN_CONTAINER = "a knowledge graph inside the container"
_DATABASE = "a database in memory"

_LOST_BY: Final[Mapping[str, str]] = {
    "@playwright/mcp": _BROWSER,
    "playwright-mcp": _BROWSER,
    "mcp-server-playwright": _BROWSER,
    "@executeautomation/playwright-mcp-server": _BROWSER,
    "mcp/playwright": _BROWSER,
    "mcr.microsoft.com/playwright/mcp": _BROWSER,
    "@modelcontextprotocol/server-puppeteer": _BROWSER,
    "mcp-server-puppeteer": _BROWSER,
    "mcp/puppeteer": _BROWSER,
    "chrome-devtools-mcp": _BROWSER,
    "@browsermcp/mcp": _BROWSER,
    "mcp-server-browsermcp": _BROWSER,
    "@modelcontextprotocol/server-sequential-thinking": _THOUGHTS,
    "mcp-server-sequential-thinking": _THOUGHTS,
    "mcp/sequentialthinking": _THOUGHTS,
    "@wonderwhy-er/desktop-commander": _TERMINALS,
    "desktop-commander": _TERMINALS,
    "jupyter-mcp-server": _KERNEL,
    "datalayer/jupyter-mcp-server": _KERNEL,
    "mcp-jupyter": _KERNEL,
    "serena-agent": _PROJECT,
    "git+https://github.com/oraios/serena": _PROJECT,
    "mcp/memory": _IN_CONTAINER,
    ":memory:": _DATABASE,
}
"""What a stop would lose, by the name of a package, image or program, or by an argument that says so."""

_MOUNTS = regex(r"-v|--volume|--mount|(?:-v|--volume=|--mount=).+")
_VERSION = regex(r"(?<=.)[@:=][^/]*$")
_ENDING = regex(r"\.(?:cmd|exe|[cm]?js|py)$", re.IGNORECASE)


def lost_by_a_stop(command: str, args: Sequence[str]) -> str:
    """What a server that is started with these words holds in memory; empty if nothing is known."""
    for name in (_program(command), *(name for text in (command, *args) for name in _packages(text))):
        lost = _LOST_BY.get(name, "")
        if lost and not (lost == _IN_CONTAINER and any(map(_MOUNTS.fullmatch, args))):
            return lost
    return ""


def kept_running(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a server; one that is known to hold something in memory says that it never stops when idle."""
    return dict(entry) | ({"idle_timeout": NEVER} if why_kept_running(entry) else {})


def why_kept_running(entry: Mapping[str, Any]) -> str:
    """The reason to write that a server never stops, for people; empty if there is none, or its entry says when."""
    command, args = entry.get("command"), entry.get("args", [])
    is_said = entry.get("idle_timeout") not in (None, NEVER) or entry.get("start") == Start.WITH_THE_GATEWAY
    if is_said or not isinstance(command, str) or not isinstance(args, list):
        return ""
    lost = lost_by_a_stop(command, [one for one in args if isinstance(one, str)])
    return f"never stops when idle, because it holds {lost}" if lost else ""


def _program(path: str) -> str:
    return _ENDING.sub("", path.replace("\\", "/").rpartition("/")[2])


def _packages(text: str) -> Iterator[str]:
    """What a word of a command may name: a package with or without its version, or one by its path."""
    yield text
    yield _VERSION.sub("", text)
    _, is_path, installed = text.replace("\\", "/").rpartition("node_modules/")
    if is_path:
        first, _, rest = installed.partition("/")
        yield f"{first}/{rest.partition('/')[0]}" if first.startswith("@") else first
        if first == ".bin":
            yield _program(rest)
