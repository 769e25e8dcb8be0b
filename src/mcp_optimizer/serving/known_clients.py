"""What is known of the clients that connect, by the name they give themselves, and how tools are put to them.

Only what somebody has seen and reported is here (docs/clients.md says where); a client that is not known gets
plain schemas that any can read. Pure data.
"""

from __future__ import annotations

from dataclasses import dataclass

from mcp_optimizer.compression.compress import Dialect


@dataclass(frozen=True)
class ClientHabits:
    """What a client does with the tools it is given."""

    reads_references: bool = True
    """Whether it understands `$ref` inside a schema, types in lists, and enums without a type."""
    shows_titles: bool = False
    """Whether people see a tool's title and annotations before they agree to a call."""
    asks_again: bool = True
    """Whether it lists the tools anew when it is told that they changed."""


UNKNOWN = ClientHabits()

KNOWN_CLIENTS = {
    "claude-ai": ClientHabits(shows_titles=True),
    "claude-code": ClientHabits(shows_titles=True, asks_again=False),
    "visual studio code": ClientHabits(shows_titles=True),
    "cursor": ClientHabits(reads_references=False, asks_again=False),
    "gemini-cli": ClientHabits(reads_references=False),
    "copilot": ClientHabits(reads_references=False),
    "github-copilot": ClientHabits(reads_references=False),
    "kimi": ClientHabits(reads_references=False),
}
"""By the beginning of the name, in lower case: clients add versions and products to it."""


def habits_of(client: str) -> ClientHabits:
    """The habits of the client that calls itself this; the longest name that fits is meant."""
    name = client.strip().lower()
    known = max((start for start in KNOWN_CLIENTS if name.startswith(start)), key=len, default="")
    return KNOWN_CLIENTS.get(known, UNKNOWN)


def dialect_for(habits: ClientHabits, wanted: Dialect) -> Dialect:
    """The dialect that the settings want, unless the client could not read it."""
    return wanted if habits.reads_references else Dialect.INLINED
