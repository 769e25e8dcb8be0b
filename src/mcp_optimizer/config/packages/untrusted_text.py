"""Checks texts of registries and bundles before any of them becomes a command. Pure; called by the readers of both.

A `${...}` or `$NAME` in such a text is refused: in a server file, it would be replaced by a value of the user's
environment, or a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mcp_optimizer.errors import ConfigurationError, quoted
from mcp_optimizer.runtime.patterns import regex

LONGEST_TEXT = 4_000
MOST_ITEMS = 100
"""Maximum arguments, variables, headers or packages of one server."""

_LONGEST_DESCRIPTION = 300
VARIABLE = regex(r"\$[{A-Za-z_]")
"""Also `$NAME`, which is a variable in the files of some programs."""
_ENVIRONMENT_NAME = regex(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_HEADER_NAME = regex(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_OF_THE_CONNECTION = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"}
)
_DANGEROUS = regex(
    r"(PATH|HOME|SHELL|ENV|BASH_ENV|IFS|LD_.*|DYLD_.*|GCONV_PATH|NODE_OPTIONS|NODE_PATH|NODE_EXTRA_CA_CERTS|"
    r"NODE_TLS_REJECT_UNAUTHORIZED|NPM_CONFIG_.*|PYTHON(PATH|STARTUP|HOME|INSPECT|BREAKPOINT|USERBASE)|PIP_.*|UV_.*|"
    r"PERL5(LIB|OPT)|RUBY(LIB|OPT)|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|DOTNET_STARTUP_HOOKS|GIT_SSH.*|GIT_EXEC_PATH|"
    r"DOCKER_HOST|CONTAINER_HOST|SSL_CERT_.*|(HTTPS?|ALL)_PROXY|MCP_OPTIMIZER_.*)",
    re.IGNORECASE,
)


def clean(text: Any, what: str, longest: int = LONGEST_TEXT) -> str:
    """Checks and returns an untrusted text that may go into an entry. `what` names it in messages."""
    if not isinstance(text, str):
        raise ConfigurationError(f"{what} must be a text, not {type(text).__name__}.")
    if len(text) > longest:
        raise ConfigurationError(f"{what} has {len(text):,} characters; at most {longest:,} are allowed.")
    if not text.isprintable():
        raise ConfigurationError(f"{what} contains characters that cannot be shown: {quoted(text)}.")
    if VARIABLE.search(text):
        raise ConfigurationError(
            f"{what} contains a variable, {quoted(text)}, which would be replaced by a value of yours. Only you may "
            "write such a variable."
        )
    return text


def environment_name(name: Any) -> str:
    if not isinstance(name, str) or not _ENVIRONMENT_NAME.fullmatch(name):
        raise ConfigurationError(f"{_shown(name)} is not the name of an environment variable.")
    return name


def header_name(name: Any) -> str:
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name) or name.lower() in _OF_THE_CONNECTION:
        raise ConfigurationError(f"{_shown(name)} is not a header that an entry can set.")
    return name


def is_dangerous(name: str) -> bool:
    """Whether an environment variable changes what runs, is trusted or is reached."""
    return _DANGEROUS.fullmatch(name) is not None


def warnings_of(names: Iterable[str]) -> tuple[str, ...]:
    """A note for each dangerous variable."""
    return tuple(f"It sets {name}, which changes what runs or whom it trusts." for name in names if is_dangerous(name))


def items(given: Mapping[str, Any], key: str, what: str) -> list[Mapping[str, Any]]:
    """The objects in an untrusted list; an absent list is empty."""
    found = given.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ConfigurationError(f'"{key}" of {what} must be a list of objects.')
    if len(found) > MOST_ITEMS:
        raise ConfigurationError(f'"{key}" of {what} has {len(found):,} items; at most {MOST_ITEMS} are allowed.')
    return found


def described(text: Any) -> str:
    """A description in one line, shortened; empty if it is not a string. Print it through `terminal_text`."""
    return " ".join(text.split())[:_LONGEST_DESCRIPTION] if isinstance(text, str) else ""


def _shown(name: Any) -> str:
    return quoted(name) if isinstance(name, str) else type(name).__name__
