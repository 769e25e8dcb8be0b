"""Writes the text of a search reply for a model, with what it should know about the servers, within a token budget.
Called by the gateway.

The best tool, and those close to it, are written with their parameters and rules; the other tools with their required
parameters and those that the request is about; further tools by name only. Tools that the conversation was already
shown are only named; this is remembered only for clients that identify their conversations, and the oldest entries are
dropped. Programs ask for the definitions as JSON instead.
"""

from __future__ import annotations

import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.catalog.tool_forms import ToolForms, skill_note
from mcp_optimizer.compression.brief import (
    asked_for,
    begins_with_parameter,
    brief,
    call_of,
    condensed,
    folded,
    with_what_it_asks_for,
)
from mcp_optimizer.compression.notes import opening
from mcp_optimizer.compression.signature import Notes
from mcp_optimizer.compression.value_spelling import end_of_brackets
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.hidden_text import without_hidden
from mcp_optimizer.domain.json_schema import ANY_OBJECT, properties_of
from mcp_optimizer.gateway.found_tools import FoundPart, FoundTool, FoundTools
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.words import terms
from mcp_optimizer.upstream.state import UpstreamState

# What a model should know about a server before it calls its tools: from the server file and from the server's own
# instructions, shortened.

LISTING_PLACES = ("list_allowed_directories", "list_allowed_paths", "list_allowed_roots", "list_repositories")
"""Names of tools that list the places their server may access."""

_LONGEST = 240
_LONGEST_PATH = 200
_MOST_PATHS = 3
_PROGRAMS = regex(r"\.(?:[cm]?[jt]s|py|pyz|jar|sh|exe|dll|rb|php|wasm|json|toml|ya?ml|env)$", re.I)
_NOT_DATA = frozenset("--directory --project --prefix --config --cache --cwd -C -c -m --from --env-file --log".split())
"""Options whose value locates a program or its setup, not the data it works on."""

_SECRET = regex(r"key|token|secret|cred|cert|pass|auth|/\.", re.I)
"""Matches options and paths that lead to secrets or hidden folders."""


def about_server(state: UpstreamState, listing: str = "") -> str:
    """One line about a server: its purpose, where it works, and the start of its instructions.

    `listing`: the server's tool that lists the places it may use. It is named, not called: the user asked for no call.
    """
    said = [_line(state.spec.description)] if state.spec.description else []
    if paths := places(state.spec):
        said.append(f"paths: {', '.join(paths)}")
    elif listing:
        said.append(f"where it may work: {listing}()")
    if state.instructions and not state.spec.description:
        # Quoted, because the server says it, not the gateway or the user.
        words = _line(opening(state.instructions)).replace('"', "'")
        said.append(f'says "{words}"')
    return "; ".join(said)


def places(spec: ServerSpec) -> tuple[str, ...]:
    """The existing files and folders that a local server was started with, except its own program and its secrets."""
    return _places(tuple(map(spec.without_secrets, spec.args))) if spec.transport is Transport.STDIO else ()


@lru_cache(maxsize=1_024)
def _places(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Cached, because a path on another machine may take long to check."""
    found, before = [], ""
    for argument in arguments:
        value = argument.partition("=")[2] if argument.startswith("-") and "=" in argument else argument
        option, before = (argument.partition("=")[0] if value is not argument else before), argument
        if option in _NOT_DATA or _SECRET.search(option) or not _is_place(value):
            continue
        found.append(os.path.expanduser(value))
    more = ("…",) if len(found) > _MOST_PATHS else ()
    return (*found[:_MOST_PATHS], *more)


def _is_place(value: str) -> bool:
    is_path = value.startswith(("/", "~/")) or value[1:3] == ":\\"
    if not is_path or len(value) > _LONGEST_PATH or _PROGRAMS.search(value) or _SECRET.search(value):
        return False
    path = os.path.expanduser(value)
    if not path.isprintable() or "node_modules" in path or not os.path.exists(path):
        return False
    return os.path.isdir(path) or not os.access(path, os.X_OK)


def _line(text: str) -> str:
    text = " ".join(without_hidden(text).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rsplit(" ", 1)[0] + "…"


_MOST_CONVERSATIONS = 1_000
_MOST_SHOWN = 100
"""Items remembered as shown in one conversation. A model that reads on loses what is further back."""

_SECONDS = 900.0
"""Seconds after which a model may have lost what it was shown."""


class ShownInConversation:
    """What one conversation was shown: tools and servers, by any key."""

    def __init__(self) -> None:
        self._at: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, key: object) -> bool:
        at = self._at.get(key) if isinstance(key, str) else None
        return at is not None and time.monotonic() - at < _SECONDS

    def add(self, key: str) -> None:
        self._at.pop(key, None)
        self._at[key] = time.monotonic()
        while len(self._at) > _MOST_SHOWN:
            self._at.popitem(last=False)


class ShownByConversation:
    """What each of the latest conversations was shown."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, ShownInConversation] = OrderedDict()

    def of(self, key: str) -> ShownInConversation:
        seen = self._seen.pop(key, None) or ShownInConversation()
        self._seen[key] = seen
        while len(self._seen) > _MOST_CONVERSATIONS:
            self._seen.popitem(last=False)
        return seen


_CLOSE = 0.6
"""A tool at least this likely, relative to the best, is shown as fully as the best."""

_FIRST = 1.5
"""The best tool may cost this multiple of the budget before its optional parameters are only named."""

_MOST_MORE = 6
"""Maximum number of tools that a reply names beyond those requested."""

_LEAST_MORE = 3
"""Number of them that are named by name alone if there is no room."""

_MOST_COUNTERPARTS = 4
"""Maximum number of tools of other servers that are named because the request may mean them as well."""

_MOST_OTHERS = 3
"""Maximum number of alternative tools that are named for each of several actions."""

_NAMED_IN_FULL = 250
"""Tokens up to which a tool that the request names is shown with all notes."""

_OPTIONAL_NAMED = 10
"""Number of optional parameters that the short form of the best tool names."""

_LEAST_PART = 70
"""Minimum token budget for the tool of each of several actions, however many actions there are."""

_LONGEST_PART = 60
_WITH_SHAPES = 2
"""Number of tools in a reply that state what they return."""

_LONGEST_SHAPE_OF_A_CALL = 45
"""Characters up to which what a tool returns is stated after its call."""

_SAYS_LITTLE = regex(r"\{\w+\??\}|\[?\w+\]?")
"""A shape not worth showing: a single key around a text, or a single value."""

_WORTH_A_REFERENCE = 40
"""Characters of a parameter's line from which on a second tool refers to it."""

_AROUND = 3
"""Tokens between two tools of a reply."""


@dataclass(frozen=True)
class TextSources:
    """The functions and limits that provide a reply's texts."""

    forms: ToolForms
    count: Callable[[str], int]
    room: int
    """Maximum tokens of any reply."""
    shape: Callable[[CatalogTool], str]
    """What a tool returns, if known."""
    about: Callable[[str], str]
    """What is known about a server: its purpose, where it works, its instructions."""
    usual: Callable[[CatalogTool], Sequence[str]] = lambda _tool: ()
    """The optional parameters that earlier calls of a tool had, the most frequent first."""


def reply_text(
    found: FoundTools,
    sources: TextSources,
    budget: int,
    wanted: Collection[str] = (),
    seen: ShownInConversation | None = None,
) -> str:
    """The text of a search reply for a model. `wanted`: the terms of the request."""
    seen = seen if seen is not None else ShownInConversation()
    writer = _Writer(sources, budget, with_what_it_asks_for(wanted), seen)
    if found.parts:
        for waiting, part in zip(range(len(found.parts), 0, -1), found.parts, strict=True):
            writer.one_action(part, max(writer.left // waiting, _LEAST_PART))
    else:
        writer.hits(found.tools, mark=found.mark)
    writer.more(found.counterparts, found.further)
    if found.remarks:
        writer.lines.append(found.remarks)
    return "\n".join(writer.lines)


@dataclass(frozen=True)
class _Form:
    """A tool as written: whether it is complete, and whether it should state what it returns."""

    text: str
    is_whole: bool = False
    has_shape: bool = False


@dataclass
class _Writer:
    """Writes one reply line by line and keeps track of its budget."""

    sources: TextSources
    left: int
    wanted: frozenset[str]
    seen: ShownInConversation
    lines: list[str] = field(default_factory=list)
    _servers: list[str] = field(default_factory=list)
    _named: list[CatalogTool] = field(default_factory=list)
    _repeated: list[CatalogTool] = field(default_factory=list)
    _written: set[tuple[str, str]] = field(default_factory=set)
    _shapes: int = 0
    _parameters: set[str] = field(default_factory=set)

    def hits(self, hits: Sequence[FoundTool], *, mark: str) -> None:
        """Writes the tools of a request for one action; with a mark that they are only the nearest, in short."""
        if mark:
            self.lines.append(mark)
        most = int(_FIRST * self.left)
        for place, hit in enumerate(hits):
            if hit.is_named:
                self._write(hit.tool, self._complete(hit))
            elif _key(hit.tool) in self.seen:
                self._repeated.append(hit.tool)
                self._written.add(hit.tool.key)
            elif place == 0 and not mark:
                self._write(hit.tool, self._first(hit, most))
            else:
                is_close = not mark and hit.score >= _CLOSE * hits[0].score
                self._write_if_room(hit.tool, self._forms_of(hit.tool, is_close=is_close))

    def one_action(self, part: FoundPart, budget: int) -> None:
        """Writes the tool for one of several actions, and names the next ones."""
        asked = part.request if len(part.request) <= _LONGEST_PART else f"{part.request[:_LONGEST_PART].rstrip()}…"
        self.lines.append(f'For "{" ".join(asked.split())}":')
        if not part.tools:
            self.lines.append("No room: search for this alone." if part.has_more else "No tool fits.")
            return
        best, *others = part.tools
        if not part.fits:
            self.lines.append("No tool fits well; the nearest:")
        elif best.is_general:
            self.lines.append("No special tool fits well; general-purpose:")
        if best.is_named:
            self._write(best.tool, self._complete(best))
        elif _key(best.tool) in self.seen:
            self.lines.append(f"{_call(best.tool)} (shown earlier)")
        else:
            self._write(best.tool, self._best_that_fits(best, budget))
        if others:
            wanted = with_what_it_asks_for(terms(part.request))
            alternatives = [hit.tool for hit in others[:_MOST_OTHERS]]
            called = _by_server(alternatives, best.tool.server, lambda tool: self._useful_call(tool, wanted))
            self.lines.append(f"or: {called}")
            self._written |= {tool.key for tool in alternatives}

    def _useful_call(self, tool: CatalogTool, wanted: Collection[str]) -> str:
        """The call of a tool that is not described: with the optional parameters that the action, or use, speaks for,
        and what it returns.
        """
        useful = dict.fromkeys([*asked_for(tool.record.details, wanted), *self.sources.usual(tool)])
        call = _printable(f"{tool.name}{call_of(tool.record.details, useful)}")
        shape = _printable(self.sources.shape(tool))
        return f"{call} -> {shape}" if shape and len(shape) <= _LONGEST_SHAPE_OF_A_CALL else call

    def more(self, counterparts: Iterable[CatalogTool], further: Iterable[CatalogTool]) -> None:
        """Writes the servers, and the tools that are only named: first those of other servers that may be meant."""
        told = [_printable(f"[{server}] {about}") for server in self._servers if (about := self._about(server))]
        self.lines += told
        self.left -= sum(map(self.sources.count, told))
        if self._repeated:
            called = ", ".join(map(_call, self._repeated))
            self.lines.append(f"shown earlier (a search for its name shows it again): {called}")
        meant = [tool for tool in counterparts if tool.key not in self._written][:_MOST_COUNTERPARTS]
        named = {tool.key: tool for tool in (*meant, *self._named, *further) if tool.key not in self._written}
        needed = len({tool.key for tool in (*meant, *self._named)})
        shown = list(named.values())[: max(_MOST_MORE, needed)]
        if shown:
            # Includes required parameters where there is room, so that the next request can be the call itself.
            known = self._servers[-1] if self._servers else ""
            called = _by_server(shown, known, _call)
            fits = len(shown) <= _MOST_MORE and self.sources.count(called) <= self.left
            # Without room, only what was found, and what may be meant as well, are named.
            found = shown[: max(_LEAST_MORE, needed)]
            self.lines.append(f"more: {called if fits else _by_server(found, known, _name)}")

    def _without_repetition(self, text: str) -> str:
        """The text of a tool, in which a parameter that another tool of this reply has word for word says so."""
        said = []
        for line in text.split("\n"):
            is_again = len(line) >= _WORTH_A_REFERENCE and line.startswith(" ") and line in self._parameters
            said.append(f"{line.partition(':')[0]}: as above" if is_again else line)
            self._parameters.add(line)
        return "\n".join(said)

    def _about(self, server: str) -> str:
        key = f"server {server}"
        if key in self.seen:
            return ""
        self.seen.add(key)
        return self.sources.about(server)

    def _complete(self, hit: FoundTool) -> _Form:
        """All parameters; if that is long, those without important rules by name and type only."""
        whole = self.sources.forms.text(hit.tool, Notes.SENTENCE)
        is_long = self.sources.count(whole) > _NAMED_IN_FULL
        text = condensed(whole, hit.tool.record.details) if is_long else whole
        return self._within(hit, text, is_whole=text == whole)

    def _first(self, hit: FoundTool, most: int) -> _Form:
        """The complete best tool; if that is long, with its optional parameters by name only."""
        whole = self.sources.forms.text(hit.tool, Notes.SENTENCE)
        text = folded(whole, hit.tool.record.details, self.wanted) if self.sources.count(whole) > most else whole
        return self._within(hit, text, is_whole=text == whole)

    def _best_that_fits(self, hit: FoundTool, most: int) -> _Form:
        """Like `_first`; if that is still too long, the short form with its required parameters."""
        form = self._first(hit, most)
        short = brief(hit.tool.record.details, self.wanted, _OPTIONAL_NAMED)
        if self.sources.count(form.text) <= most or short is None:
            return form
        least = _Form(_headed(hit.tool, short))
        return least if len(least.text) < len(form.text) else form

    def _within(self, hit: FoundTool, text: str, *, is_whole: bool) -> _Form:
        """The text; if a reply has no room for it, as much of the tool as its form holds."""
        if self.sources.count(text) <= min(self.sources.room, self.sources.room + self.left):
            return _Form(_headed(hit.tool, text), is_whole, has_shape=True)
        has_signature = hit.form.definition.input_schema == ANY_OBJECT
        return _Form(_headed(hit.tool, (hit.form.definition.description or "") if has_signature else "(…)"))

    def _forms_of(self, tool: CatalogTool, *, is_close: bool) -> Iterable[_Form]:
        """The forms of a tool, from the longest to the shortest."""
        if is_close:
            yield _Form(_headed(tool, self.sources.forms.text(tool, Notes.SENTENCE)), is_whole=True, has_shape=True)
        short = brief(tool.record.details, self.wanted)
        yield _Form(_headed(tool, self.sources.forms.text(tool, Notes.NONE) if short is None else short))

    def _write_if_room(self, tool: CatalogTool, forms: Iterable[_Form]) -> None:
        for form in forms:
            if self.sources.count(form.text) + _AROUND <= self.left:
                self._write(tool, form)
                return
        self._named.append(tool)

    def _write(self, tool: CatalogTool, form: _Form) -> None:
        text = form.text
        shape = self.sources.shape(tool) if form.has_shape and self._shapes < _WITH_SHAPES else ""
        if shape and not _SAYS_LITTLE.fullmatch(shape):
            self._shapes += 1
            text = f"{text}\n -> {shape}"
        text = self._without_repetition(text)
        self.lines.append(text)
        self._written.add(tool.key)
        self.left -= self.sources.count(text) + _AROUND
        if form.is_whole:
            # A tool that was shown in part may be needed in full.
            self.seen.add(_key(tool))
        if tool.server not in self._servers:
            self._servers.append(tool.server)


def _key(tool: CatalogTool) -> str:
    return f"tool {tool.record.definition_hash} {tool.name}"


def _headed(tool: CatalogTool, text: str) -> str:
    """`name(parameters) [server]: description`, or the parameters on the lines below."""
    if text.startswith("(") and (end := end_of_brackets(text)):
        said = text[end:].strip()
        return _block(f"{_name(tool)}{text[:end]} [{_origin(tool)}]" + (f": {said}" if said else ""))
    between = "\n" if begins_with_parameter(text, properties_of(tool.record.details.input_schema)) else " "
    head = f"{_name(tool)} [{_origin(tool)}]:{between}"
    return _block(head + text.replace("\n", "\n "))


def _origin(tool: CatalogTool) -> str:
    """The server; for a skill also that it is one, and what reading it costs."""
    note = skill_note(tool)
    return f"{tool.server}; {note}" if note else tool.server


def _block(text: str) -> str:
    """One tool's lines, all but the first indented: a server's text must not pass for another line of the reply."""
    first, *rest = text.splitlines() or [""]
    lines = [first, *(line if line.startswith(" ") else f" {line}" for line in rest)]
    return "\n".join(_printable(line) for line in lines)


def _printable(line: str) -> str:
    return line if line.isprintable() else "".join(letter if letter.isprintable() else " " for letter in line)


def _name(tool: CatalogTool) -> str:
    return _printable(tool.name)


def _call(tool: CatalogTool) -> str:
    return _printable(f"{tool.name}{call_of(tool.record.details)}")


def _by_server(tools: Sequence[CatalogTool], known: str, written: Callable[[CatalogTool], str]) -> str:
    """The tools, each prefixed with its server where that differs from the previous tool's."""
    said, server = [], known
    for tool in sorted(tools, key=lambda tool: tool.server != known):
        said.append(written(tool) if tool.server == server else f"[{tool.server}] {written(tool)}")
        server = tool.server
    return ", ".join(said)
