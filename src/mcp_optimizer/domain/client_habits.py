"""What a client does with the tools and results that it gets. Values; each client's are in its own module.

Contains only behaviour that was observed and reported (sources in docs/clients.md). The defaults are those of a client
that is not known: it gets plain schemas that any client can read.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Reads(Enum):
    """What of a tool's result a client gives to its model."""

    TEXT = "text"
    STRUCTURE = "structure instead of text"
    BOTH = "text and structure"
    UNKNOWN = "any of these"


class ReadsMeta(Enum):
    """When a client gives `_meta` to its model, too."""

    NEVER = "never"
    OF_ERRORS = "of errors"
    ALWAYS = "always"


class LoadMarks(NamedTuple):
    """The keys of a tool's `_meta` by which a client that loads tools on demand keeps one in view."""

    always: str
    """True: the tool is loaded from the start."""
    hint: str
    """What else its search finds the tool by."""


class ClientHabits(NamedTuple):
    """What a client does with the tools it gets."""

    reads_references: bool = True
    """Whether it understands `$ref` inside a schema, types in lists, and enums without a type."""
    shows_titles: bool = False
    """Whether people see a tool's title and annotations before they agree to a call."""
    asks_by_tool: bool = False
    """Whether it asks or refuses by tool. Without annotations, `codex exec` and Claude Code's plan mode call nothing,
    and "do not ask again" is about every tool of every server.
    """
    asks_again: bool = True
    """Whether it fetches the list of tools again when notified of a change."""
    reads: Reads = Reads.UNKNOWN
    """What its model reads of a result. Every part that we send is complete; this says what would be read twice."""
    reads_meta: ReadsMeta = ReadsMeta.NEVER
    """Whether its model pays for `_meta`. Of an unknown client that is not assumed: programs read costs there."""
    loads_on_demand: bool = False
    """Whether it keeps tools out of its prompts until a search of its own finds them, at least with some models or many
    tools, which we cannot know: then nobody can say what definitions would have cost.
    """
    load_marks: LoadMarks | None = None
    """How a tool asks to be loaded all the same."""
    conversation_key: str = ""
    """The key in a call's `_meta` that tells its conversations apart; "": nothing does. A session with us does not:
    sub-agents share it without what was shown to the others, and it outlives a conversation that was cleared.
    """
    added_arguments: frozenset[str] = frozenset()
    """Keys that it adds to the arguments of every call, whatever the tool's schema says."""


UNKNOWN = ClientHabits()
