"""How a client handles the tools and results that it gets. Values; each client's are in its own module.

Contains only behaviour that was observed and reported (sources in docs/clients.md). The defaults describe an unknown
client: it gets plain schemas that any client can read.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Reads(Enum):
    """The parts of a tool's result that a client gives to its model."""

    TEXT = "text"
    STRUCTURE = "structure instead of text"
    BOTH = "text and structure"
    UNKNOWN = "any of these"


class ReadsMeta(Enum):
    """When a client gives `_meta` to its model too."""

    NEVER = "never"
    OF_ERRORS = "of errors"
    ALWAYS = "always"


class LoadMarks(NamedTuple):
    """The `_meta` keys of a tool that a client which loads tools on demand uses to keep the tool loaded."""

    always: str
    """True: the tool is loaded from the start."""
    hint: str
    """Further text by which the client's search finds the tool."""


LONGEST_RESULT = 25_000
"""Tokens of one result that clients give their model at most, as Claude Code does by default; others give it less."""


class ResultRoom(NamedTuple):
    """How much of one result a client gives its model, in tokens."""

    whole: int = LONGEST_RESULT
    """A result of at most so many tokens reaches the model whole."""
    cut: int = LONGEST_RESULT
    """What the model gets of a longer one at least; the client keeps the rest in a file, or drops it."""

    def shown(self, tokens: int) -> int:
        """The tokens that a model gets of a result."""
        return tokens if tokens <= self.whole else min(tokens, self.cut)


class ClientHabits(NamedTuple):
    """How a client handles the tools that it gets."""

    reads_references: bool = True
    """Whether it understands `$ref` inside a schema, types in lists, and enums without a type."""
    shows_titles: bool = False
    """Whether people see a tool's title and annotations before they agree to a call."""
    asks_by_tool: bool = False
    """Whether it asks or refuses by tool. Without annotations, `codex exec` and Claude Code's plan mode call nothing,
    and "do not ask again" applies to every tool of every server.
    """
    asks_again: bool = True
    """Whether it fetches the list of tools again after a notification of changes."""
    reads: Reads = Reads.UNKNOWN
    """The parts of a result that its model reads. Each part that we send is complete; this shows which would be read
    twice.
    """
    reads_meta: ReadsMeta = ReadsMeta.NEVER
    """Whether its model pays for `_meta`. Not assumed for an unknown client, because programs read costs there."""
    loads_on_demand: bool = False
    """Whether it keeps tools out of its prompts until a search of its own finds them, at least with some models or many
    tools. The gateway cannot know when, so it cannot tell what definitions would have cost.
    """
    sends_definitions: bool = False
    """Whether it was seen to send the definitions of all tools with every request."""
    own_prompt: int = 0
    """Tokens that it puts into every request without any server, as measured: each search of ours reads them again."""
    room: ResultRoom = ResultRoom()
    """How much of a server's result it gives its model: what it would have cut itself, we did not save."""
    runs_for_a_conversation: bool = False
    """Whether it is a command, started for one conversation, so that its session is that conversation."""
    load_marks: LoadMarks | None = None
    """The marks by which a tool asks to stay loaded."""
    conversation_key: str = ""
    """The key in a call's `_meta` that distinguishes its conversations; "": none does. A session does not: sub-agents
    share it without seeing each other's results, and it outlives a conversation that was cleared.
    """
    added_arguments: frozenset[str] = frozenset()
    """Keys that it adds to the arguments of every call, whatever the tool's schema says."""


UNKNOWN = ClientHabits()
