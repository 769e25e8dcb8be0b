"""What is broken now, and what to do about it: servers that do not run, logins, tools that wait. Pure.

Stands before all other advice, in reports and on pages: nothing is saved on a server that does not run.
"""

from __future__ import annotations

import shlex
from collections import Counter

from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.runtime.terminal_text import counted, in_a_line

_MOST_NAMED = 5
_LONGEST_REASON = 200


def troubles(snapshot: Snapshot) -> tuple[str, ...]:
    """A sentence for each server that needs somebody, the first few of each kind."""
    states = sorted(snapshot.states.values(), key=lambda state: state.name)
    failed = [
        f"`{state.name}` does not run{_because(state.reason)}. Look at it with `mcp-optimizer doctor`."
        for state in states
        if state.status is ServerStatus.FAILED
    ]
    logins = [
        f"`{state.name}` wants a login: `mcp-optimizer login {shlex.quote(state.name)}`."
        for state in states
        if state.status is ServerStatus.LOGIN_NEEDED
    ]
    waiting = Counter(tool.server for tool in snapshot.held.values())
    held = [
        f"{counted(number, 'tool')} of `{server}` {'waits' if number == 1 else 'wait'} for your approval: "
        f"`mcp-optimizer trust diff {shlex.quote(server)}` shows what changed."
        for server, number in sorted(waiting.items())
    ]
    held += [
        f"The instructions of `{server}` wait for your approval: `mcp-optimizer trust diff {shlex.quote(server)}` "
        "shows what changed."
        for server in sorted(snapshot.unapproved.instructions)
        if server not in waiting and not snapshot.states[server].instructions
    ]
    return tuple(
        line
        for told, kind in ((failed, "that do not run"), (logins, "that want a login"), (held, "with changes that wait"))
        for line in _first(told, kind)
    )


def _because(reason: str) -> str:
    """A server's own words, in one line and not many."""
    said = in_a_line(reason).replace("`", "'").strip().rstrip(".")
    return f": {said if len(said) <= _LONGEST_REASON else said[:_LONGEST_REASON] + '…'}" if said else ""


def _first(told: list[str], kind: str) -> list[str]:
    more = len(told) - _MOST_NAMED
    return [*told[:_MOST_NAMED], f"And {counted(more, 'more server')} {kind}."] if more > 0 else told
