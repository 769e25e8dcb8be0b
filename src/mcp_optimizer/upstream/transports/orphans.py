"""Ends a gateway's servers if the gateway was killed and cannot do so itself.

`processes` starts it as `python -I -S orphans.py MARK`, once for all servers of a gateway, in a session of its own. It
uses only the standard library, so it starts in milliseconds and stays small. It knows no MCP and imports nothing
of this package. Its stdin is a pipe that only the gateway holds:

    +PID        a server was started, as the leader of the process group PID
    -PID CHILD  it was ended; end every process that carries its mark CHILD now
    !           the gateway stops: end everything without delay

The pipe closes when the gateway ends, for any reason. Processes that a server started in sessions of their own are not
in its group; they are found by the mark in their environment (Linux only).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

VARIABLE = "MCP_OPTIMIZER_CHILD"
"""The variable with the mark: the gateway's own mark, a dot, and the server's number."""

_GRACE = 0.5
"""Seconds for servers to end after the gateway's end closed their stdin, and again after SIGTERM."""

_TOGETHER = 0.2
"""Seconds to collect ended servers: many may end at once, and scanning for marks takes a while."""

_POLL = 0.02


def main() -> None:
    """Wait until the gateway ends, then end its remaining processes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    gateway, groups = sys.argv[1], set[int]()
    at_once = _watch(groups)
    steps = [(None, _GRACE), (signal.SIGTERM, _GRACE)]
    for step, seconds in [*([] if at_once else steps), *[(signal.SIGKILL, _GRACE)] * 4]:
        groups = {group for group in groups if _is_alive(group)}
        strays = marked(f"{gateway}.")
        if not groups and not strays:
            return
        if step is not None:
            _send(step, groups, strays)
        _wait(groups, strays, seconds)


def _watch(groups: set[int]) -> bool:
    """Track the servers until the pipe closes; returns whether to end them without delay."""
    at_once, rest, ended = False, b"", list[str]()
    scan_at = 0.0
    while True:
        timeout = max(0.0, scan_at - time.monotonic()) if ended else None
        if not select.select([0], [], [], timeout)[0]:
            started = time.monotonic()
            _send(signal.SIGKILL, set(), marked(*(f"{child}\0" for child in ended)))
            ended = []
            # With thousands of processes, scanning must not take all the time.
            scan_at = time.monotonic() + 10 * (time.monotonic() - started)
            continue
        chunk = os.read(0, 65_536)
        if not chunk:
            return at_once
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            sign, (group, _, child) = line[:1], line[1:].decode().partition(" ")
            if sign == b"+":
                groups.add(int(group))
            elif sign == b"-":
                groups.discard(int(group))
                scan_at = scan_at if ended else max(scan_at, time.monotonic() + _TOGETHER)
                ended.append(child)
            else:
                at_once = True


def marked(*beginnings: str) -> set[int]:
    """The processes whose mark has one of these prefixes. Text elsewhere in an environment does not count."""
    wanted = tuple(f"\0{VARIABLE}={beginning}".encode() for beginning in beginnings)
    found = set()
    try:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        # This system has no /proc.
        return set()
    for number in numbers:
        environment = _environment(number)
        if any(mark in environment for mark in wanted):
            found.add(number)
    return found


def _environment(number: int) -> bytes:
    """The environment of a process; empty if it is gone, a zombie, or belongs to another user."""
    try:
        with open(f"/proc/{number}/environ", "rb") as file:
            return b"\0" + file.read() + b"\0"
    except OSError:
        return b""


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _send(number: int, groups: set[int], processes: set[int]) -> None:
    for send, targets in ((os.killpg, groups), (os.kill, processes)):
        for target in targets:
            try:
                send(target, number)
            except (ProcessLookupError, PermissionError):
                continue


def _wait(groups: set[int], processes: set[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(map(_is_alive, groups)) and not any(len(_environment(number)) > 2 for number in processes):
            return
        time.sleep(_POLL)


if __name__ == "__main__":
    main()
