"""Writes what a model reads of a search for scripts: one stub per tool, within a token budget. Called by the gateway.

The description of run_script explains how to read the stubs. Tools that the conversation was already shown, and those
that do not fit the budget, are only named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.catalog.tool_forms import Detail, Form, ToolForms
from mcp_optimizer.domain.json_schema import ANY_OBJECT
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.gateway.found_tools import FoundPart, FoundTool, FoundTools
from mcp_optimizer.gateway.reply_text import ShownInConversation

_AROUND = 2
"""Tokens between two lines."""

_CLOSE = 0.6
"""A tool at least this likely, relative to the best, is always shown."""

_MOST_MORE = 3
_LONGEST_ASKED = 60


@dataclass(frozen=True)
class Stubs:
    """How scripts spell the tools of a view, and their stubs. Built by the composition root."""

    spelling: Callable[[Snapshot, CatalogTool], str]
    stub: Callable[[Snapshot, CatalogTool, str], str]
    """`(view, tool, shape)`: one line; `shape` is what is known about the tool's results."""

    def but_not_of(self, is_ours: Callable[[str], bool]) -> Stubs:
        """The same, except that skills and the tools of some servers are marked as not callable from scripts."""

        def is_outside(tool: CatalogTool) -> bool:
            return tool.record.skill is not None or is_ours(tool.server)

        def spelling(view: Snapshot, tool: CatalogTool) -> str:
            return tool.name if is_outside(tool) else self.spelling(view, tool)

        def stub(view: Snapshot, tool: CatalogTool, shape: str) -> str:
            return f"# {tool.name}: only with call_tool" if is_outside(tool) else self.stub(view, tool, shape)

        return Stubs(spelling, stub)


@dataclass(frozen=True)
class PythonSources:
    """The functions that provide a reply's texts."""

    name: Callable[[CatalogTool], str]
    stub: Callable[[CatalogTool], str]
    count: Callable[[str], int]


def stub_forms(
    tools: Sequence[tuple[CatalogTool, str]], forms: ToolForms, count: Callable[[str], int], most: int
) -> list[Form]:
    """The tools that fit the token limit, in order: as stubs for programs, or as their servers wrote them where that is
    smaller.
    """
    made: list[Form] = []
    for tool, text in tools:
        definition = McpTool(name=tool.name, description=text, inputSchema=ANY_OBJECT)
        form = Form(definition, count(definition.model_dump_json()))
        made.append(form if form.tokens < tool.tokens else forms.form(tool, Detail.FULL))
        if sum(form.cost for form in made) > most and len(made) > 1:
            return made[:-1]
    return made


def python_text(found: FoundTools, sources: PythonSources, budget: int, seen: ShownInConversation | None = None) -> str:
    """The text of a search reply for a model."""
    writer = _Writer(sources, budget, seen if seen is not None else ShownInConversation())
    if found.parts:
        for part in found.parts:
            if not part.tools:
                writer.lines.append(f'No tool fits "{_asked(part)}".')
            elif not part.fits:
                writer.lines.append(f'No tool fits "{_asked(part)}" well; the nearest:')
            writer.hits(part.tools, alone=False)
    else:
        writer.hits(found.tools)
    writer.end((*found.counterparts, *found.further), len(found.parts))
    return "\n".join(filter(None, (found.mark, *writer.lines, found.remarks)))


def _asked(part: FoundPart) -> str:
    return " ".join(part.request.split())[:_LONGEST_ASKED]


@dataclass
class _Writer:
    """Writes one reply line by line and keeps track of its budget."""

    sources: PythonSources
    left: int
    seen: ShownInConversation
    lines: list[str] = field(default_factory=list)
    _written: set[tuple[str, str]] = field(default_factory=set)
    _named: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    """The tools that are only named: at which place of an action they stand, and their names in Python."""
    _repeated: dict[str, None] = field(default_factory=dict)

    def hits(self, hits: Sequence[FoundTool], *, alone: bool = True) -> None:
        """Writes the tools for one action: always the best one; if there are several actions, only that one."""
        for place, hit in enumerate(hits):
            name = self.sources.name(hit.tool)
            is_wanted = place == 0 or (alone and hit.score >= _CLOSE * hits[0].score)
            if hit.tool.key in self._written:
                continue
            if _key(hit.tool) in self.seen and not hit.is_named:
                self._repeated[name] = None
            elif not (is_wanted or (alone and self.left > 0)) or not self._write(hit.tool, is_first=place == 0):
                self._named.setdefault(hit.tool.key, (place, name))

    def _write(self, tool: CatalogTool, *, is_first: bool) -> bool:
        """Whether there is room for it."""
        text = self.sources.stub(tool)
        cost = self.sources.count(text) + _AROUND
        if cost > self.left and not is_first:
            return False
        self.lines.append(text)
        self.left -= cost
        self._written.add(tool.key)
        self.seen.add(_key(tool))
        return True

    def end(self, further: Iterable[CatalogTool], actions: int) -> None:
        """Names the remaining tools: of several actions the second tool of each, then the others."""
        if self._repeated:
            self.lines.append(f"shown earlier (a search for its name shows it again): {', '.join(self._repeated)}")
        for place, tool in enumerate(further, _MOST_MORE):
            self._named.setdefault(tool.key, (place, self.sources.name(tool)))
        # One that an action only names may be shown for a later one.
        named = [one for key, one in self._named.items() if key not in self._written and one[1] not in self._repeated]
        if more := [name for _, name in sorted(named, key=itemgetter(0))]:
            self.lines.append(f"more: {', '.join(more[: max(_MOST_MORE, actions)])}")


def _key(tool: CatalogTool) -> str:
    return f"stub {tool.record.definition_hash} {tool.name}"
