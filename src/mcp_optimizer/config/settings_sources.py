"""Reads options from a TOML file and the environment, and says which option of which source is wrong.

Called by `settings`; knows no option but `rules`, whose errors are numbered from 1.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mcp_optimizer.config.settings_groups import place_in_rules
from mcp_optimizer.errors import ConfigurationError


def is_elsewhere(servers: str | Path | None) -> bool:
    """Whether a server file is named that is not below the current folder.

    A client starts the gateway in whatever folder is open, with a server file of the user: that folder's settings are
    about other servers.
    """
    if not servers:
        return False
    try:
        return not Path(os.path.abspath(Path(servers).expanduser())).is_relative_to(Path.cwd())
    except OSError:
        # The folder was deleted.
        return True


def from_file(path: Path, said: str | bytes | None = None) -> dict[str, Any]:
    """`said`: the content of the file, if already read."""
    try:
        found = path.read_bytes() if said is None else said
        return tomllib.loads(found.decode() if isinstance(found, bytes) else found)
    except FileNotFoundError:
        raise ConfigurationError(f"No settings file at {path}.") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"Cannot read the settings file {path}: {error}.") from error
    except RecursionError:
        raise ConfigurationError(f"Cannot read the settings file {path}: it is nested too deeply.") from None


def from_environment(environment: Mapping[str, str], prefix: str, no_options: Collection[str]) -> dict[str, str]:
    found = {name.removeprefix(prefix).lower(): value for name, value in environment.items() if name.startswith(prefix)}
    # An empty value means "not set", as in a shell script.
    return {name: value for name, value in found.items() if value != "" and name not in no_options}


def refuse_unknown(values: Mapping[str, Any], origin: str, known: Collection[str]) -> None:
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(known)}."
            raise ConfigurationError(f"Unknown option {name!r} {origin}.{hint}")


def explained(problem: Any, origins: Mapping[str, str], hidden: Collection[str]) -> str:
    """A problem that pydantic found, with the option, its source and, unless hidden, its value."""
    name = str(problem["loc"][0]) if problem["loc"] else ""
    message = problem["msg"].removeprefix("Value error, ")
    if not name:
        return f"{message[:1].upper()}{message[1:]}."
    shown = f" {problem['input']!r}" if name not in hidden else ""
    if name == "rules" and (place := place_in_rules(problem["loc"][1:])):
        return f"Bad value{shown} for 'rules' {origins.get(name, 'by default')}: {place}: {message}."
    place = ".".join(map(str, problem["loc"]))
    return f"Bad value{shown} for {place!r} {origins.get(name, 'by default')}: {message}."
