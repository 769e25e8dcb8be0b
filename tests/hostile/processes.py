"""A table of hostile child processes, which misbehave in how they start, end, write and read, or send bad bytes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.hostile.deeds import (
    BEGIN,
    HELLO,
    STDIO,
    STDIO_MODERN,
    Asked,
    CloseOutput,
    Deed,
    Exit,
    Input,
    Pause,
    Say,
    Stderr,
    StopReading,
    Wire,
    after,
    honest,
    only,
    wire,
)

LISTS = "tools/list"
CALLS = "tools/call"
CHILD = (STDIO, STDIO_MODERN)


def _ping(asked: Asked, count: int) -> Iterator[Deed]:
    yield StopReading()
    yield from honest(asked)
    for number in range(count * asked.scale):
        yield Say(f'{{"jsonrpc":"2.0","id":{number},"method":"ping"}}')


PROCESSES = (
    Input("exits at once", BEGIN, only(Stderr(b"no key\n"), Exit(3)), CHILD),
    Input("exits at the handshake", HELLO, only(Exit(4)), CHILD),
    Input("exits with each call", CALLS, only(Exit(5)), CHILD),
    Input("exits after each answer", CALLS, after(Pause(0.01), Exit(0)), CHILD),
    Input("closes its stdout and lives on", LISTS, only(CloseOutput()), CHILD),
    Input("closes its stdout in a call and lives on", CALLS, only(CloseOutput()), CHILD),
    Input("stops reading its stdin", LISTS, lambda asked: [StopReading(), *honest(asked)], CHILD),
    Input(
        "a flood of pings by a server that does not read", LISTS, lambda asked: _ping(asked, 20_000), CHILD, heavy=True
    ),
    Input("never says anything", BEGIN, only(StopReading()), CHILD),
    Input("a line without an end", CALLS, wire(b"x" * 65_536, times=48), CHILD),
    Input("a line without an end at the start", BEGIN, wire(b"x" * 65_536, times=48), CHILD),
    Input(
        "a line of megabytes of spaces",
        CALLS,
        lambda a: [Wire(b" " * 65_536, 48 * a.scale), Wire(b"\n"), *honest(a)],
        CHILD,
    ),
    Input("a hundred thousand empty lines", CALLS, lambda a: [Wire(b"\n", 100_000 * a.scale), *honest(a)], CHILD),
    Input("text that is no MCP, line by line", BEGIN, wire(b"Welcome! Loading.\n", times=5_000), CHILD),
    Input("stderr without newlines", CALLS, lambda a: [Stderr(b"e" * 65_536, 48 * a.scale), *honest(a)], CHILD),
    Input(
        "progress bars on stderr",
        CALLS,
        lambda a: [Stderr(b"\r 42 % [####    ]" * 4_000, 48 * a.scale), *honest(a)],
        CHILD,
    ),
    Input(
        "stderr with control characters",
        CALLS,
        lambda a: [Stderr(b"\x1b[2J\x1b]0;owned\x07\x00\xff\n" * 100), *honest(a)],
        CHILD,
    ),
    Input("invalid UTF-8", CALLS, lambda a: [Wire(b'{"jsonrpc":"2.0","method":"\xff\xfe\x80"}\n'), *honest(a)], CHILD),
    Input("NUL bytes", CALLS, lambda a: [Wire(b"\x00" * 1_000 + b"\n"), *honest(a)], CHILD),
    Input("a byte order mark", CALLS, lambda a: [Say(b"\xef\xbb\xbf" + a.answer.encode())], CHILD),
    Input("a byte order mark of UTF-16", CALLS, lambda a: [Say(a.answer.encode("utf-16"))], CHILD),
    Input("half a message, then another", CALLS, lambda a: [Wire(a.answer.encode()[:20]), *honest(a)], CHILD),
    Input("two messages on one line", CALLS, lambda a: [Say(a.answer * 2), *honest(a)], CHILD),
    Input(
        "bare carriage returns",
        CALLS,
        lambda a: [Wire(a.answer.encode() + b"\r" + a.answer.encode() + b"\r\n"), *honest(a)],
        CHILD,
    ),
    Input(
        "an answer letter by letter",
        CALLS,
        lambda a: (
            [deed for letter in a.answer.encode() for deed in (Wire(bytes([letter])), Pause(0.001))] + [Wire(b"\n")]
        ),
        CHILD,
    ),
)
