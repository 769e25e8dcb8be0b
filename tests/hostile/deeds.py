"""Small values that describe what a hostile server does where an honest one would answer.

The tables of inputs consist of them, and the two hostile servers carry them out, each on its transport.
Standard library only, because a child process that imports this must start in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

STDIO, STDIO_MODERN = "stdio", "stdio-modern"
HTTP, HTTP_MODERN = "http", "http-modern"
SSE = "sse"
EVERY_WIRE = (STDIO, STDIO_MODERN, HTTP, HTTP_MODERN, SSE)
OVER_HTTP = (HTTP, HTTP_MODERN)

HELLO = "hello"
"""The first request of either era: `initialize` or `server/discover`."""
BEGIN = "begin"
"""Before any request: a child process starts, or an SSE stream opens."""
STREAM = "stream"
"""The stream that belongs to no call, once the server is up; on stdio, after the response to `tools/list`."""

_MARK = "\x00here\x00"


@dataclass(frozen=True)
class Say:
    """Send a message, framed as the transport requires."""

    text: str | bytes
    times: int = 1


@dataclass(frozen=True)
class Wire:
    """Send raw bytes: on stdout, or in place of a complete HTTP response."""

    data: bytes
    times: int = 1


@dataclass(frozen=True)
class Stderr:
    data: bytes
    times: int = 1


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Exit:
    """End the process, or close the connection."""

    code: int = 1


@dataclass(frozen=True)
class CloseOutput:
    """Close stdout, but keep the process alive."""


@dataclass(frozen=True)
class StopReading:
    """Stop reading what the gateway sends."""


Deed = Say | Wire | Stderr | Pause | Exit | CloseOutput | StopReading


@dataclass(frozen=True)
class Asked:
    """A request, and what an honest server would answer."""

    method: str
    id: Any
    answer: str
    """The honest message, as JSON; empty if no answer is due."""
    scale: int = 1
    """Factor for everything that is large: 1 in tests, more where limits are measured."""


Deeds = Callable[[Asked], Iterable[Deed]]


@dataclass(frozen=True)
class Input:
    """One thing that no server should do: when, how, and on which transports it is possible."""

    name: str
    at: str
    deeds: Deeds
    transports: tuple[str, ...] = EVERY_WIRE
    slow: bool = False
    """Takes effect only after the gateway has waited for many seconds; not tried in CI."""
    heavy: bool = False
    """Costs the receiver seconds or much memory; measured alone, not in the soak."""

    def __str__(self) -> str:
        return self.name


def put(path: str, value: str | Callable[[Asked], str]) -> Deeds:
    """The honest answer, with the JSON text `value` at a path such as result.tools.0.name."""

    def deeds(asked: Asked) -> Iterator[Deed]:
        message = json.loads(asked.answer)
        *above, last = path.split(".")
        place = message
        for key in above:
            place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
        place[int(last) if isinstance(place, list) else last] = _MARK
        text = value(asked) if callable(value) else value
        yield Say(json.dumps(message).replace(json.dumps(_MARK), text))

    return deeds


def instead(*texts: str, times: int = 1) -> Deeds:
    """Only these messages; `ID` in them is replaced by the id of the request."""
    return lambda asked: [Say(text.replace("ID", json.dumps(asked.id)), times * asked.scale) for text in texts]


def before(*texts: str, times: int = 1) -> Deeds:
    """These messages first, then the honest answer."""
    return lambda asked: [*instead(*texts, times=times)(asked), *honest(asked)]


def wire(*pieces: bytes, times: int = 1) -> Deeds:
    """These bytes instead of the answer."""
    return lambda asked: [Wire(piece, times * asked.scale) for piece in pieces]


def honest(asked: Asked) -> Iterable[Deed]:
    return [Say(asked.answer)] if asked.answer else []


def after(*deeds: Deed) -> Deeds:
    """The honest answer, then these deeds."""
    return lambda asked: [*honest(asked), *deeds]


def only(*deeds: Deed) -> Deeds:
    """These deeds, and no answer."""
    return lambda _asked: deeds
