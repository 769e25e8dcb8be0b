"""What clients do with tools, by the names that they send. To add what was observed of a client, add a line here.

Apart from what is known of their files, which takes a dozen modules: the first answer to a client waits for this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from mcp_optimizer.domain.client_habits import UNKNOWN, ClientHabits, LoadMarks, Reads, ReadsMeta, ResultRoom

_COPILOT = ClientHabits(reads_references=False, asks_by_tool=True, reads=Reads.BOTH, loads_on_demand=True)

HABITS: Mapping[str, ClientHabits] = {
    "claude-ai": ClientHabits(shows_titles=True, asks_by_tool=True),
    "claude-code": ClientHabits(
        shows_titles=True,
        asks_by_tool=True,
        asks_again=False,
        reads=Reads.STRUCTURE,
        loads_on_demand=True,
        load_marks=LoadMarks("anthropic/alwaysLoad", "anthropic/searchHint"),
    ),
    "cursor": ClientHabits(reads_references=False, asks_by_tool=True, asks_again=False, reads=Reads.STRUCTURE),
    "visual studio code": ClientHabits(shows_titles=True, asks_by_tool=True, reads=Reads.STRUCTURE),
    "copilot": _COPILOT,
    "github-copilot": _COPILOT,
    "cline": ClientHabits(asks_by_tool=True),
    "roo": ClientHabits(asks_by_tool=True),
    "codex": ClientHabits(asks_by_tool=True, reads=Reads.STRUCTURE, conversation_key="threadId", loads_on_demand=True),
    "gemini-cli": ClientHabits(
        reads_references=False,
        asks_by_tool=True,
        reads=Reads.TEXT,
        reads_meta=ReadsMeta.OF_ERRORS,
        added_arguments=frozenset({"wait_for_previous"}),
        sends_definitions=True,
        own_prompt=11_000,
        runs_for_a_conversation=True,
    ),
    "qwen-cli": ClientHabits(asks_by_tool=True, reads=Reads.BOTH, loads_on_demand=True, runs_for_a_conversation=True),
    "kimi": ClientHabits(
        reads_references=False,
        asks_by_tool=True,
        reads=Reads.BOTH,
        reads_meta=ReadsMeta.ALWAYS,
        sends_definitions=True,
        own_prompt=20_000,
        # It cuts each line at 2,000 characters, and JSON is one line.
        room=ResultRoom(whole=500, cut=500),
        runs_for_a_conversation=True,
    ),
    "opencode": ClientHabits(
        asks_by_tool=True,
        reads=Reads.TEXT,
        sends_definitions=True,
        own_prompt=7_300,
        # It writes a result of 50 kB to a file; of one long line, the model gets only the file's name.
        room=ResultRoom(whole=10_000, cut=100),
        runs_for_a_conversation=True,
    ),
    "continue": ClientHabits(
        asks_by_tool=True, reads=Reads.TEXT, sends_definitions=True, own_prompt=2_300, runs_for_a_conversation=True
    ),
    "claude": ClientHabits(asks_by_tool=True),
    "fast-agent": ClientHabits(reads=Reads.STRUCTURE),
    "google-adk": ClientHabits(reads=Reads.BOTH, reads_meta=ReadsMeta.ALWAYS),
}
"""By prefix of the name that a client sends, in lower case; clients append versions and products. VS Code Insiders
sends a name that starts like that of VS Code. Not here: `mcp`, the name that the Python SDK gives every program:
Mistral Vibe, which reads the structure instead of the text, but also langchain and openai-agents, which read the text.
"""


@lru_cache(maxsize=256)
def habits_of(client: str) -> ClientHabits:
    """The habits of the client with this name; the longest matching start wins."""
    name = client.strip().lower()
    known = max((start for start in HABITS if name.startswith(start)), key=len, default="")
    return HABITS.get(known, UNKNOWN)
