"""Spells servers, tools and parameters as Python names for scripts; each name means exactly one thing.

Pure. Built from the view of a caller, so a tool that the caller may not call has no name. Called wherever a script is
read, checked, described or run.
"""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.domain.json_schema import properties_of, required_of
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.patterns import regex

HELPERS = frozenset({"call", "parallel", "find", "ToolError"})
"""Names that every script has besides the servers."""

MODULES = frozenset(
    "asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal functools hashlib itertools json "
    "math os pathlib posixpath random re sys time tomllib typing unicodedata".split()
)
"""Modules that scripts can import; no server gets such a name."""

OURS = "_mo_"
"""The prefix of names in the code that surrounds a script; no server gets such a name."""

_TAKEN = HELPERS | MODULES | frozenset(dir(builtins))
_NOT_IN_NAMES = regex(r"\W+")


def python_name(text: str) -> str:
    """A text as a Python identifier: `move_card` for `move-card`, `class_` for `class`, `_3d` for `3d`."""
    name = _NOT_IN_NAMES.sub("_", unicodedata.normalize("NFKC", text))
    if not name.isidentifier():
        name = f"_{name}"
    if not name.isidentifier():
        # A few characters count as letters in a regular expression but not in an identifier.
        name = "".join(letter if f"_{letter}".isidentifier() else "_" for letter in name)
    # Python gives names with two leading underscores a meaning of their own.
    name = re.sub("^__+", "_", name)
    return f"{name}_" if keyword.iskeyword(name) else name


@dataclass(frozen=True)
class Parameter:
    """A tool's parameter: its spelling in scripts and its own name."""

    python: str
    own: str
    is_required: bool


def parameters_of(tool: CatalogTool) -> tuple[Parameter, ...]:
    """A tool's parameters in the order of positional arguments: required parameters first."""
    return _parameters(tool.record.definition)


@lru_cache(maxsize=1_024)
def _parameters(definition: Definition) -> tuple[Parameter, ...]:
    """Cached, because a script may call the same tool a hundred times."""
    schema = definition.details.input_schema
    needed = set(required_of(schema))
    own = sorted(properties_of(schema), key=lambda name: name not in needed)
    return tuple(Parameter(python, name, name in needed) for python, name in _spelt(own).items())


def by_any_name(tool: CatalogTool) -> Mapping[str, Parameter]:
    """A tool's parameters, both by their Python names and by their own names."""
    return _by_any_name(tool.record.definition)


@lru_cache(maxsize=64)
def _by_any_name(definition: Definition) -> Mapping[str, Parameter]:
    """Cached, because a tool may have thousands of parameters, and a script as many calls that name some of them."""
    parameters = _parameters(definition)
    return {one.python: one for one in parameters} | {one.own: one for one in parameters}


class Toolbox:
    """The tools that a script may name, by server."""

    def __init__(self, tools: Sequence[CatalogTool]) -> None:
        self._tools = tools

    @lazy
    def servers(self) -> Mapping[str, Mapping[str, CatalogTool]]:
        """The tools of each server; servers and tools are keyed by their Python names."""
        of_server: dict[str, dict[str, CatalogTool]] = {}
        for tool in self._tools:
            of_server.setdefault(tool.server, {})[tool.record.name] = tool
        return {
            python: {name: of_server[server][own] for name, own in _spelt(of_server[server]).items()}
            for python, server in _spelt(of_server, _TAKEN).items()
        }

    @lazy
    def _spellings(self) -> Mapping[tuple[str, str], str]:
        return {tool.key: f"{server}.{name}" for server, tools in self.servers.items() for name, tool in tools.items()}

    @lazy
    def _by_name(self) -> Mapping[str, CatalogTool]:
        return {tool.name: tool for tool in self._tools}

    def tool(self, server: str, tool: str) -> CatalogTool | None:
        """The tool that `server.tool` means in a script."""
        return self.servers.get(server, {}).get(tool)

    def named(self, text: str) -> CatalogTool | None:
        """The tool that a text names, by public name or `server.tool`. The gateway accepts more spellings."""
        server, _, name = text.partition(".")
        return self.tool(server, name) or self._by_name.get(text)

    def spelling(self, tool: CatalogTool) -> str:
        """A tool as scripts write it: `server.tool`."""
        return self._spellings.get(tool.key, tool.name)


class Toolboxes:
    """The toolboxes of the most recent views; many scripts share one view."""

    def __init__(self, most: int = 16) -> None:
        self._most = most
        self._kept: list[tuple[Snapshot, Toolbox]] = []

    def of(self, view: Snapshot, is_ours: Callable[[str], bool] = lambda _server: False) -> Toolbox:
        """The toolbox for a caller's view, without our own servers: no script calls stored scripts."""
        for known, toolbox in self._kept:
            if known is view:
                return toolbox
        toolbox = Toolbox([tool for tool in view.running if not is_ours(tool.server)])
        self._kept = [(view, toolbox), *self._kept[: self._most - 1]]
        return toolbox


def _spelt(names: Iterable[str], taken: frozenset[str] = frozenset()) -> dict[str, str]:
    """Names by their Python spelling, in order. Of two names with the same spelling, the one that equals its spelling
    keeps it; otherwise the alphabetically first does.
    """
    names = list(names)
    given: set[str] = set()
    spelling: dict[str, str] = {}
    last: dict[str, int] = {}
    for name in sorted(names, key=lambda name: (python_name(name) != name, name)):
        plain = python_name(name)
        python = f"{plain}_" if plain in taken else plain
        if taken and python.startswith(OURS):
            python = plain = f"server{plain}"
        # Counts on from the last number, because thousands of names may have the same spelling.
        while python in given:
            last[plain] = last.get(plain, 1) + 1
            python = f"{plain}_{last[plain]}"
        given.add(python)
        spelling[name] = python
    return {spelling[name]: name for name in names}
