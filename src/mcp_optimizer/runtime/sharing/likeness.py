"""What two clients must have in common to share a gateway: everything that its settings and its servers depend on.

Compared as a whole and never interpreted, so no settings have to be read: the program, the folder, the arguments, the
variables that reach the settings or a server, and the files that settings are read from. A server file may change,
because the gateway follows it. If it then names variables for which clients have different values, they part.
"""

from __future__ import annotations

import binascii
import contextlib
import json
import os
import socket
import sys
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path

from platformdirs import user_config_path, user_data_path

from mcp_optimizer import __version__
from mcp_optimizer.runtime.passed_variables import is_passed
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.runtime.sharing.places import APP_NAME

PREFIX = "MCP_OPTIMIZER_"
LINK_VARIABLE = f"{PREFIX}LINK"
"""The file descriptor on which a gateway that was started for clients hears of the first of them. Not an option."""

SHARED, UNSHARED, ALONE = "--shared", "--no-shared", "--alone"
SHARED_VARIABLE = f"{PREFIX}SHARED"

_LARGEST = 2_000_000
_WORD = regex(rb"[A-Za-z_][A-Za-z0-9_]*")
_BY_TERMINAL = frozenset({"TERM", "SHELL"})
"""Variables that differ between a terminal and a desktop, and change nothing for a server."""
_DECIDING = frozenset({b"shared", b"http", b"workers"})
_CONFINING = ("CapBnd", "CapEff", "CapPrm", "Gid", "NoNewPrivs", "Seccomp:", "Uid")
_PATH = "PATH"
_LAUNCHERS = frozenset("bash bun bunx deno docker git node npm npx pnpm podman python python3 sh uv uvx yarn".split())
"""Programs that start servers, or that servers often start."""
_READ_BY_US = ("XDG_", "OTEL_", PREFIX)


def likeness(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> str:
    """The same text for the same gateway. May contain secrets: it is only ever sent to a process of the same user."""
    settings, servers = _files(arguments, environment, folder)
    facts = {
        "program": [__version__, str(Path(__file__).parent), sys.executable],
        "folder": str(folder),
        "confinement": _confinement(),
        "arguments": [one for one in arguments if one != SHARED],
        "variables": _variables(arguments, environment, folder),
        "settings": {str(path): _state(path) for path in settings},
        "servers": [str(path) for path in servers if path.exists()],
    }
    return json.dumps(facts, sort_keys=True)


def digests(environment: Mapping[str, str]) -> dict[str, str]:
    """What tells the values of all variables apart: a file that changes later may name each of them. No cryptographic
    digests, because their module would take a third of the memory of a client's process.
    """
    return {
        name: f"{len(value)} {binascii.crc32(os.fsencode(value)):x}"
        for name, value in environment.items()
        if name != LINK_VARIABLE
    }


def named_now(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> set[str]:
    """The variables of this environment, or another one, that the server files may name as they are now."""
    _, servers = _files(arguments, environment, folder)
    return {word.decode() for path in servers for word in _words(path)}


def like_now(like: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> str:
    """What clients that come now must be like, to share a gateway whose first client was like this: its settings are
    those of its start, its variables those that its files name now.
    """
    return json.dumps({**json.loads(like), "variables": _variables(arguments, environment, folder)}, sort_keys=True)


def _variables(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    settings, servers = _files(arguments, environment, folder)
    words = {word.decode() for path in [*settings, *servers] for word in _words(path)}
    ours = " ".join([*arguments, *(value for name, value in environment.items() if name.startswith(PREFIX))])
    words |= {word.decode() for word in _WORD.findall(os.fsencode(ours))}
    found = {name: value for name, value in sorted(environment.items()) if _matters(name) or name in words}
    if _PATH in found and _PATH not in words:
        found[_PATH] = json.dumps(_programs(found[_PATH], words | _LAUNCHERS, folder), sort_keys=True)
    return found


def _programs(search_path: str, words: Collection[str], folder: Path) -> dict[str, str]:
    """Where the programs are found whose names are in the files. Some clients put folders of their own before the
    user's, with other names each time.
    """
    found: dict[str, str] = {}
    for place in filter(None, search_path.split(os.pathsep)):
        with contextlib.suppress(OSError, ValueError):
            for name in os.listdir(folder / place):
                # Nearly every name is a word by itself: there are thousands, and each client reads them.
                if name not in found and (name in words if name.isidentifier() else _is_of(name, words)):
                    found[name] = place
    return found


def _is_of(name: str, words: Collection[str]) -> bool:
    parts = _WORD.findall(os.fsencode(name))
    return bool(parts) and all(part.decode() in words for part in parts)


def _matters(name: str) -> bool:
    if name in (LINK_VARIABLE, SHARED_VARIABLE) or name in _BY_TERMINAL:
        return False
    return is_passed(name) or name.startswith(_READ_BY_US)


def _files(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> tuple[list[Path], list[Path]]:
    """The files that may hold settings or trust, and those that may hold servers."""
    named = [part for one in arguments for part in (one, one.partition("=")[2])]
    named += [value for name, value in environment.items() if name.startswith(PREFIX)]
    others = [path for path in map(folder.__truediv__, filter(None, named)) if _is_file(path)]
    own = user_config_path(APP_NAME)
    settings = [own / "settings.toml", user_data_path(APP_NAME) / "trusted-files.json", folder / "mcp-optimizer.toml"]
    settings += [path for path in others if path.suffix == ".toml"]
    servers = [own / "mcp.json", folder / "mcp.json", *(path for path in others if path.suffix != ".toml")]
    return settings, servers


def may_be_said_in_files(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> bool:
    """Whether a file that may hold settings may say that nothing is shared, or that clients are served over HTTP."""
    settings, _ = _files(arguments, environment, folder)
    return any(not _DECIDING.isdisjoint(_words(path)) for path in settings)


def _confinement() -> dict[str, object]:
    """What this process may do. A client in a container or a sandbox must neither get servers that run outside of it,
    nor start servers for clients that are outside.
    """
    found: dict[str, object] = {"mask": _mask()}
    if sys.platform != "win32":
        found["groups"] = sorted(os.getgroups())
    for kind in ("cgroup", "ipc", "mnt", "net", "pid", "user"):
        with contextlib.suppress(OSError):
            found[kind] = os.readlink(f"/proc/self/ns/{kind}")
    with contextlib.suppress(OSError):
        found["label"] = Path("/proc/self/attr/current").read_text(errors="replace")
    with contextlib.suppress(OSError):
        found["root"] = os.readlink("/proc/self/root")
        status = Path("/proc/self/status").read_text().splitlines()
        found["status"] = [line for line in status if line.startswith(_CONFINING)]
    return found


def _mask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _is_file(path: Path) -> bool:
    # A value may be no path at all: too long, or with a null character.
    with contextlib.suppress(OSError, ValueError):
        return path.is_file()
    return False


def _words(path: Path) -> Iterable[bytes]:
    """Everything in a file that may be the name of a variable."""
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        return set(_WORD.findall(file.read(_LARGEST)))
    return ()


def _state(path: Path) -> list[int]:
    with contextlib.suppress(OSError):
        found = path.stat()
        return [found.st_mtime_ns, found.st_size, found.st_ino]
    return []


def shared_link(environment: MutableMapping[str, str]) -> socket.socket | None:
    """The connection with the process that started this gateway for its client; None if it was not started for that.
    Servers that this process starts do not inherit it.
    """
    descriptor = environment.pop(LINK_VARIABLE, "")
    if not descriptor.isdecimal():
        return None
    os.set_inheritable(int(descriptor), False)
    return socket.socket(fileno=int(descriptor))
