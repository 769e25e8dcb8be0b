"""Known clients, by the name they send, and the form of tools that suits them.

Contains only behaviour that was observed and reported (sources in docs/clients.md); an unknown client gets plain
schemas that any client can read. Pure data.
"""

from __future__ import annotations

from dataclasses import dataclass

from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.domain.caller import LOCAL, Caller


@dataclass(frozen=True)
class ClientHabits:
    """What a client does with the tools it gets."""

    reads_references: bool = True
    """Whether it understands `$ref` inside a schema, types in lists, and enums without a type."""
    shows_titles: bool = False
    """Whether people see a tool's title and annotations before they agree to a call."""
    asks_again: bool = True
    """Whether it fetches the list of tools again when notified of a change."""
    prefers_structure: bool = False
    """Whether its model reads `structuredContent` in place of the text made for a model."""
    is_one_conversation: bool = False
    """Whether one session with us is one conversation, so that nothing needs to be shown twice."""


UNKNOWN = ClientHabits()

KNOWN_CLIENTS = {
    "claude-ai": ClientHabits(shows_titles=True),
    "claude-code": ClientHabits(shows_titles=True, asks_again=False, prefers_structure=True, is_one_conversation=True),
    "visual studio code": ClientHabits(shows_titles=True, prefers_structure=True),
    "cursor": ClientHabits(reads_references=False, asks_again=False, prefers_structure=True),
    "codex": ClientHabits(prefers_structure=True, is_one_conversation=True),
    "opencode": ClientHabits(prefers_structure=True),
    "gemini-cli": ClientHabits(reads_references=False, is_one_conversation=True),
    "copilot": ClientHabits(reads_references=False, prefers_structure=True),
    "github-copilot": ClientHabits(reads_references=False, prefers_structure=True),
    "kimi": ClientHabits(reads_references=False),
}
"""By the start of the name, in lower case, because clients append versions and products."""


def habits_of(client: str) -> ClientHabits:
    """The habits of the client with this name; the longest matching entry wins."""
    name = client.strip().lower()
    known = max((start for start in KNOWN_CLIENTS if name.startswith(start)), key=len, default="")
    return KNOWN_CLIENTS.get(known, UNKNOWN)


def is_conversation(habits: ClientHabits, caller: Caller) -> bool:
    """Whether a caller is known to be one conversation. Over HTTP, only a session can be one."""
    has_session = caller.link is None or not caller.link.is_modern or caller.key == LOCAL.key
    return habits.is_one_conversation and has_session


def dialect_for(habits: ClientHabits, wanted: Dialect) -> Dialect:
    """The configured dialect, unless the client cannot read it."""
    return wanted if habits.reads_references else Dialect.INLINED
