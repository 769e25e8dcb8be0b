"""Turns the state of a server that does not run into advice for the user.

Called by `doctor` and `add`, and imported with the command line, so it imports nothing heavy. Quotes no arguments and
no values, because these may be secrets.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mcp_optimizer.errors import listed

if TYPE_CHECKING:
    from mcp_optimizer.config.serverfile.spec import ServerSpec
    from mcp_optimizer.upstream.state import UpstreamState

_ADVICE = {
    "variable": 'Set the variable in the environment of mcp-optimizer, or put the value in the server\'s "env".',
    "secret": "Secrets are in the catalog database: set them with the same --database as the gateway's.",
    "entry": "Correct its entry in the server file.",
    "login": "Log in once: mcp-optimizer login {name}",
    "host": "Check the spelling of {target}, and that this machine has a network and can look up names.",
    "fault": "This is a bug in mcp-optimizer. Please report it, with the traceback from the log.",
}
"""Advice by kind of failure, where nothing more specific applies."""

_BROUGHT_BY = {
    "npx": "Node.js",
    "npm": "Node.js",
    "node": "Node.js",
    "uvx": "uv",
    "uv": "uv",
    "docker": "Docker",
    "podman": "Podman",
    "bunx": "Bun",
    "bun": "Bun",
    "deno": "Deno",
    "pipx": "pipx",
    "python": "Python",
    "python3": "Python",
    "dnx": "the .NET SDK",
    "dotnet": "the .NET SDK",
    "java": "a Java runtime",
    "go": "Go",
    "cargo": "Rust",
}
"""The software that provides a command often named in server files."""

_VARIABLE = r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b"
_KNOWN_WORDS = (
    (
        r"E404|404 Not Found|not found in the package registry|No matching distribution",
        "Check the name and version of the package: the registry does not have it.",
    ),
    (
        r"ENOTFOUND|EAI_AGAIN|error sending request|network connectivity",
        "Its package cannot be fetched: check the network and the proxy.",
    ),
    (
        r"Cannot connect to the Docker daemon|error during connect|docker\.sock",
        "Start Docker, and check that this user may use it.",
    ),
    (
        r"not a (?:TTY|terminal)|inappropriate ioctl",
        'It wants a terminal, and a server has none: take "-t" (or "-it") out of its "args"; "-i" stays.',
    ),
    (r"EADDRINUSE|address already in use", "Another process has its port: is the server running already?"),
    (
        r"Cannot find module|MODULE_NOT_FOUND|ModuleNotFoundError|No module named",
        "A part of it is not installed: install it again, with its dependencies.",
    ),
    (
        rf"{_VARIABLE}.*(?:required|missing|not set|must be set|undefined)|KeyError: '[A-Z][A-Z0-9_]+'|"
        rf"(?:[Ss]et|[Pp]rovide|[Mm]issing)\b.*{_VARIABLE}",
        'Put the variable that it asks for into the "env" of its entry: a server gets no other variables.',
    ),
    (r"(?i)API[ _-]?key|access token|credentials", 'Put the key that it asks for into the "env" of its entry.'),
    (
        r"(?i)unrecognized arguments?|No such option|unknown (?:option|flag|argument|command)|unexpected argument",
        'It does not know one of its "args". Run its command with --help.',
    ),
    (
        r"Unsupported engine|requires Node|SyntaxError: Unexpected token|requires.*Python",
        "It needs a newer version of what runs it.",
    ),
    (
        r"(?i)EACCES|permission denied|Operation not permitted",
        "This user may not use a file or folder that it needs.",
    ),
)
"""Messages that many servers print before they end, and what helps."""

_OF_PROGRAMS = (
    (("npx", "npm", "node", "pnpm", "bunx", "bun", "deno"), ("NPM_CONFIG_", "NODE_", "DENO_", "BUN_")),
    (("uvx", "uv", "pip", "python"), ("UV_", "PIP_", "PYTHON")),
    (("docker", "podman"), ("DOCKER_",)),
    (("java",), ("JAVA_",)),
)
"""Beginnings of programs' names, and prefixes of the variables that change how these fetch and run servers."""
_MOST_NAMED = 6
_SILENT = (
    "It starts, but does not speak MCP in time. Run its command in a terminal: it may wait for input or a login. "
    "If it is only slow (a first npx or uvx download), raise --start-timeout."
)
_EXITED = "Run its command in a terminal to see the full message. Usually an argument, a key or a file is missing."
_ENDED_WELL = (
    "It ended without an error before it spoke MCP. Usually a word that starts the server is missing in its "
    '"args", such as "stdio" or "serve".'
)
_NOT_MCP_ON_STDOUT = "It must write only MCP messages to stdout. Look for an option that sends its logs to stderr."
_USUAL_FOLDERS = ("~/.local/bin", "/usr/local/bin", "/opt/homebrew/bin", "~/.cargo/bin", "~/.bun/bin", "~/.deno/bin")
"""Folders that are on a shell's PATH, but not on that of a program started from the desktop."""


def advise(state: UpstreamState, environment: Mapping[str, str] = os.environ) -> str:
    """What a user can do about a server that does not run. `environment` is that of a shell in which it might run."""
    advice = _advised(state)
    return f"{advice} {about}" if advice and (about := _about_withheld(state, environment)) else advice


def _prefixes(command: str) -> tuple[str, ...]:
    """Prefixes of variables that matter to a command: all of them, if it is none of the known programs."""
    program = PurePath(command).name.lower()
    of_it = next((prefixes for names, prefixes in _OF_PROGRAMS if program.startswith(names)), None)
    return of_it or tuple(prefix for _, prefixes in _OF_PROGRAMS for prefix in prefixes)


def _about_withheld(state: UpstreamState, environment: Mapping[str, str]) -> str:
    """Names variables, never values, that this shell has and the server does not get from us."""
    spec = state.spec
    if not spec.command or state.failure not in ("exited", "silent"):
        return ""
    # Loaded only here: most servers run.
    from mcp_optimizer.runtime.passed_variables import DEPTH_VARIABLE
    from mcp_optimizer.upstream.transports.processes import child_environment

    mentioned = set(re.findall(_VARIABLE, state.reason))
    missing = set(environment) - set(child_environment(spec.env, environment)) - {DEPTH_VARIABLE}
    prefixes = _prefixes(spec.command)
    withheld = sorted(name for name in missing if name in mentioned or name.upper().startswith(prefixes))
    if not withheld:
        return ""
    names = listed(withheld, _MOST_NAMED)
    return f'Your shell has {names}, which it does not get: if it needs that, put it into the "env" of its entry.'


def _advised(state: UpstreamState) -> str:
    kind, spec = state.failure, state.spec
    if kind is None:
        return ""
    if advice := _ADVICE.get(kind):
        return advice.format(target=spec.target, name=shlex.quote(state.name))
    if kind == "command":
        return _about_command(spec)
    if not spec.command:
        return _about_url(state)
    if kind == "exited":
        return _about_exit(state)
    if kind == "not_mcp":
        return _NOT_MCP_ON_STDOUT
    return _SILENT if kind == "silent" else "Run its command in a terminal, and check its entry."


def _about_command(spec: ServerSpec) -> str:
    name = PurePath(spec.command).name.removesuffix(".exe").lower()
    for folder in _USUAL_FOLDERS:
        if (Path(folder).expanduser() / spec.command).is_file():
            found = Path(folder).expanduser() / spec.command
            return f'It is installed, but not in the PATH of mcp-optimizer: set "command" to {found}.'
    if brought := _BROUGHT_BY.get(name):
        return f'Install {brought}, which brings {spec.command!r}, or set the server\'s "command" to its full path.'
    return f'Install {spec.target!r}, or set the server\'s "command" to its full path.'


def _about_exit(state: UpstreamState) -> str:
    if missing := missing_paths(state.spec):
        which = ", ".join(str(number) for number in missing[:5])
        word = "Argument" if len(missing) == 1 else "Arguments"
        verb = "is a path that does" if len(missing) == 1 else "are paths that do"
        return f'{word} {which} of its "args" {verb} not exist on this machine.'
    if "exited with code 0" in state.reason:
        return _ENDED_WELL
    return next((advice for words, advice in _KNOWN_WORDS if re.search(words, state.reason)), _EXITED)


def missing_paths(spec: ServerSpec) -> list[int]:
    """Positions, from 1, of arguments that look like paths of this machine and do not exist."""
    if PurePath(spec.command).name in ("docker", "podman"):
        # Most of their paths are inside a container.
        return []
    return [number for number, argument in enumerate(spec.args, 1) if _is_missing(argument)]


def _is_missing(argument: str) -> bool:
    if not argument.startswith(("/", "~/")) or "\n" in argument or "://" in argument:
        return False
    path = Path(argument)
    try:
        # A path to be created at least has its folder; only shells expand "~", so no server sees one.
        return argument.startswith("~/") or not (path.exists() or (bool(path.suffix) and path.parent.exists()))
    except (OSError, ValueError):
        return False


def _about_url(state: UpstreamState) -> str:
    spec, kind, name = state.spec, str(state.failure), shlex.quote(state.name)
    if kind == "unauthorised":
        if any(header.lower() == "authorization" for header in spec.headers):
            return 'It does not accept the credentials in its "headers": they are wrong, or have expired.'
        return f'It wants credentials: set them in the server\'s "headers", or try `mcp-optimizer login {name}`.'
    if kind == "forbidden":
        return (
            "It knows who calls and does not allow it: its key or login lacks a right (a scope), or it only serves "
            f"other addresses. Use another key, or log in again: mcp-optimizer login {name}"
        )
    if kind == "not_found":
        if urlsplit(spec.url).path in ("", "/"):
            return f"Its url has no path. Most servers answer at /mcp or /sse: try {spec.target.rstrip('/')}/mcp."
        return f"Check the path of {spec.target}; most servers answer at /mcp or /sse."
    if kind == "transport":
        other = "http" if spec.transport == "sse" else "sse"
        return f'Check the path of {spec.target}. If it is right, set "type": "{other}": it may speak that transport.'
    if kind == "not_mcp":
        return f"{spec.target} is a page for browsers. Its documentation names the address for MCP, often /mcp."
    if kind == "tls":
        return _about_tls(state)
    return f"Check that {spec.target} is correct and that its server is running."


def _about_tls(state: UpstreamState) -> str:
    if "does not speak TLS" in state.reason:
        return "Check its port, or write http:// if it has no TLS."
    if "expired" in state.reason:
        return "Its certificate has to be renewed where the server runs; check the clock of this machine, too."
    return (
        "If the certificate is your organisation's own, name the file of its authority in the variable SSL_CERT_FILE "
        "for mcp-optimizer; if not, do not trust this address."
    )
