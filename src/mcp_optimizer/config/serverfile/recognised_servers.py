"""Recognises servers by how they are started: the gateway itself, and servers that hold something in memory. Starts and
reads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import urlsplit

from mcp_optimizer.config.serverfile.spec import ServerSpec, Start
from mcp_optimizer.config.settings import PREFIX, default_server_file
from mcp_optimizer.runtime.outgoing import is_this_machine
from mcp_optimizer.runtime.patterns import regex

# Detects the gateway among its own servers, where it would start or call itself forever. Looks only at entries; a
# script that starts the gateway is detected by its depth (`upstream.transports.processes`).

SAME_FILE = (
    "it is this gateway with this same file and would start itself forever; remove the entry, or give it another "
    "--config"
)
SAME_ADDRESS = "it is the address of this gateway itself; remove the entry"

_NAMES = frozenset({"mcp-optimizer", "mcp-optimizer-gateway", "mcp_optimizer", "mcp_optimizer_gateway"})
_OWN_ENDING = regex(r"\.(exe|cmd|bat)$|[\[@=<>~!].*$")
"""What may follow the name of a program or package: an extension, extras, a version."""


def starts_itself(spec: ServerSpec, path: Path) -> bool:
    """Whether an entry of the server file at `path` starts a gateway that reads the same file and entry."""
    words = _words_after_us([spec.command, *spec.args])
    if "serve" not in words or "--demo" in words:
        return False
    servers = _value(words, "--servers") or spec.env.get(f"{PREFIX}SERVERS")
    if servers and spec.name not in [name.strip() for name in servers.split(",")]:
        return False
    named = _value(words, "--config") or spec.env.get(f"{PREFIX}CONFIG")
    if named is None and (_value(words, "--settings") or spec.env.get(f"{PREFIX}SETTINGS")):
        # The settings may name another server file.
        return False
    folder = Path(spec.cwd or ".")
    read = folder / Path(named).expanduser() if named else default_server_file(folder)
    return read.resolve() == path.resolve()


def is_gateway(spec: ServerSpec) -> bool:
    """Whether an entry is a gateway, with any servers: by its command, or by its name if it has only a URL."""
    if spec.url:
        return spec.name.lower() in _NAMES
    return "serve" in _words_after_us([spec.command, *spec.args])


def _words_after_us(words: Sequence[str]) -> Sequence[str]:
    """The arguments of the gateway, if the command runs it: by its name, by `python -m`, by uvx or similar."""
    for at, word in enumerate(words):
        if _is_our_name(word):
            return words[at + 1 :]
    return ()


def _is_our_name(word: str) -> bool:
    return _OWN_ENDING.sub("", PurePath(word.replace("\\", "/")).name.lower()) in _NAMES


def _value(words: Sequence[str], option: str) -> str | None:
    for at, word in enumerate(words):
        if word == option and at + 1 < len(words):
            return words[at + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def is_own_address(url: str, host: str, port: int) -> bool:
    """Whether a URL is our own address."""
    try:
        parts = urlsplit(url)
        asked, asked_port = parts.hostname or "", parts.port
    except ValueError:
        return False
    if (asked_port or {"http": 80, "https": 443}.get(parts.scheme)) != port or port == 0:
        return False
    return asked == host.lower() or (is_this_machine(asked) and is_this_machine(host))


# Servers that hold something in memory, which a stop would lose and another client would see: they keep running, and
# clients do not share them, unless their entry says otherwise. Known by the package or program that starts them.

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
