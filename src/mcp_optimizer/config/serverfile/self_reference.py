"""Detects the gateway among its own servers, where it would start or call itself forever.

Looks only at entries; a script that starts the gateway is detected by its depth (`upstream.transports.processes`).
Called where server files are read; starts and reads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from urllib.parse import urlsplit

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.config.settings import PREFIX, default_server_file
from mcp_optimizer.runtime.outgoing import is_this_machine
from mcp_optimizer.runtime.patterns import regex

SAME_FILE = (
    "it is this gateway with this same file and would start itself forever; remove the entry, or give it another "
    "--config"
)
SAME_ADDRESS = "it is the address of this gateway itself; remove the entry"

_NAMES = frozenset({"mcp-optimizer", "mcp-optimizer-gateway", "mcp_optimizer", "mcp_optimizer_gateway"})
_ENDING = regex(r"\.(exe|cmd|bat)$|[\[@=<>~!].*$")
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
    return _ENDING.sub("", PurePath(word.replace("\\", "/")).name.lower()) in _NAMES


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
