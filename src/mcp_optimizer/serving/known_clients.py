"""Known clients, by the name they send, and the form of tools that suits them.

Contains only behaviour that was observed and reported (sources in docs/clients.md); an unknown client gets plain
schemas that any client can read. Pure data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.domain.caller import Caller

_LONGEST_CONVERSATION = 200
"""Characters of an id that a client gives to a conversation."""


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


@dataclass(frozen=True)
class ClientHabits:
    """What a client does with the tools it gets."""

    reads_references: bool = True
    """Whether it understands `$ref` inside a schema, types in lists, and enums without a type."""
    shows_titles: bool = False
    """Whether people see a tool's title and annotations before they agree to a call."""
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
    conversation_key: str = ""
    """The key in a call's `_meta` that tells its conversations apart; "": nothing does. A session with us does not:
    sub-agents share it without what was shown to the others, and it outlives a conversation that was cleared.
    """
    added_arguments: frozenset[str] = frozenset()
    """Keys that it adds to the arguments of every call, whatever the tool's schema says."""


UNKNOWN = ClientHabits()

KNOWN_CLIENTS = {
    "claude-ai": ClientHabits(shows_titles=True),
    "claude-code": ClientHabits(shows_titles=True, asks_again=False, reads=Reads.STRUCTURE, loads_on_demand=True),
    "visual studio code": ClientHabits(shows_titles=True, reads=Reads.STRUCTURE),
    "cursor": ClientHabits(reads_references=False, asks_again=False, reads=Reads.STRUCTURE),
    "codex": ClientHabits(reads=Reads.STRUCTURE, conversation_key="threadId", loads_on_demand=True),
    "opencode": ClientHabits(reads=Reads.TEXT),
    "gemini-cli": ClientHabits(
        reads_references=False,
        reads=Reads.TEXT,
        reads_meta=ReadsMeta.OF_ERRORS,
        added_arguments=frozenset({"wait_for_previous"}),
    ),
    "qwen-cli": ClientHabits(reads=Reads.BOTH, loads_on_demand=True),
    "copilot": ClientHabits(reads_references=False, reads=Reads.BOTH, loads_on_demand=True),
    "github-copilot": ClientHabits(reads_references=False, reads=Reads.BOTH, loads_on_demand=True),
    "continue": ClientHabits(reads=Reads.TEXT),
    "kimi": ClientHabits(reads_references=False, reads=Reads.BOTH, reads_meta=ReadsMeta.ALWAYS),
    "fast-agent": ClientHabits(reads=Reads.STRUCTURE),
    "google-adk": ClientHabits(reads=Reads.BOTH, reads_meta=ReadsMeta.ALWAYS),
}
"""By the start of the name, in lower case, because clients append versions and products. Not here: `mcp`, which is the
name that the Python SDK gives everybody: Mistral Vibe, which reads the structure instead of the text, but also
langchain and openai-agents, which read the text, and programs.
"""


@lru_cache(maxsize=256)
def habits_of(client: str) -> ClientHabits:
    """The habits of the client with this name; the longest matching entry wins."""
    name = client.strip().lower()
    known = max((start for start in KNOWN_CLIENTS if name.startswith(start)), key=len, default="")
    return KNOWN_CLIENTS.get(known, UNKNOWN)


def conversation_of(habits: ClientHabits, caller: Caller) -> str:
    """The conversation that a call is part of, as its client says; "" if nothing tells. Only among those of its own
    connection, so that nobody continues the conversation of another.
    """
    if not habits.conversation_key:
        return ""
    meta = caller.passed_on.get("_meta")
    said = meta.get(habits.conversation_key) if isinstance(meta, dict) else None
    if not isinstance(said, str) or not 0 < len(said) <= _LONGEST_CONVERSATION:
        return ""
    return f"{caller.conversation}\n{said}"


def dialect_for(habits: ClientHabits, wanted: Dialect) -> Dialect:
    """The configured dialect, unless the client cannot read it."""
    return wanted if habits.reads_references else Dialect.INLINED
