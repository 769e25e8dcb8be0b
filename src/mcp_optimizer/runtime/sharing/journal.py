"""What one client has said, kept where it outlives the gateway: in a file without a name that the client's process
made and holds.

The gateway writes everything that it reads from the client, and which requests it has answered. If it ends, another
gateway learns from it how the client introduced itself, what it subscribed to, and which of its requests are open.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

_HEARD, _ANSWERED, _HALF, _WHOLE = b"I", b"A", b"W", b"w"
_HEAD = struct.Struct(">Ic")
_PIECE = 1 << 20
SHORTEN_AT = 1 << 20
"""Bytes from which a journal is written anew with only what matters."""


class Standing(NamedTuple):
    """Where a client stands: what a gateway that takes over has to know."""

    kept: tuple[bytes, ...] = ()
    """Answered messages that a new gateway must hear: the introduction, the log level, subscriptions."""
    open: tuple[tuple[Any, bytes], ...] = ()
    """The ids and lines of requests that have no answer."""
    rest: bytes = b""
    """The beginning of a line whose end was not read."""
    is_half_written: bool = False
    """Whether the client may have got the beginning of a line without its end."""

    @property
    def is_new(self) -> bool:
        return not (self.kept or self.open or self.rest or self.is_half_written)


def new_file() -> int:
    """An empty file that only its holders can reach."""
    if sys.platform != "linux":
        # Imported only here, because it loads much.
        from tempfile import TemporaryFile

        with TemporaryFile() as file:
            return os.dup(file.fileno())
    return os.memfd_create("mcp-optimizer", os.MFD_CLOEXEC)


class Journal:
    """Writes one client's journal. A system call of a microsecond for each message."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.size = os.fstat(file).st_size
        os.lseek(file, 0, os.SEEK_END)
        self._is_half = False

    def heard(self, data: bytes) -> None:
        """Everything that was read from the client, as it was read."""
        self._put(_HEARD, data)

    def answered(self, request: Any) -> None:
        """The request with this id has its answer."""
        self._put(_ANSWERED, json.dumps(request).encode())

    def writing(self, *, is_half: bool) -> None:
        """Whether the client has the beginning of a line whose end waits to be written."""
        if is_half is not self._is_half:
            self._is_half = is_half
            self._put(_HALF if is_half else _WHOLE, b"")

    def standing(self) -> Standing:
        return standing(_contents(self.file))

    def shortened(self) -> Journal:
        """Another file with what matters of this one."""
        now = self.standing()
        shorter = Journal(new_file())
        for line in now.kept:
            shorter.heard(line + b"\n")
            if (request := _message(line).get("id")) is not None:
                shorter.answered(request)
        for _, line in now.open:
            shorter.heard(line + b"\n")
        if now.rest:
            shorter.heard(now.rest)
        shorter.writing(is_half=now.is_half_written)
        return shorter

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.file)
        # Its number may soon be another file's.
        self.file = -1

    def _put(self, kind: bytes, data: bytes) -> None:
        # Memory may be full: the client is served all the same, and loses only what a journal is for.
        with contextlib.suppress(OSError):
            self.size += os.writev(self.file, [_HEAD.pack(len(data), kind), data])


def standing(content: bytes) -> Standing:
    """Read a journal. Its last record may be incomplete, because its writer was killed."""
    heard = _Heard()
    is_half = False
    for kind, data in _records(content):
        if kind == _HEARD:
            heard.read(data)
        elif kind == _ANSWERED:
            heard.answered(json.loads(data))
        else:
            is_half = kind == _HALF
    # A client may send what follows its introduction before it has the answer.
    kept = sorted(heard.kept, key=lambda what: what != "initialize")
    return Standing(tuple(heard.kept[what] for what in kept), tuple(heard.open.values()), heard.rest, is_half)


class _Heard:
    """The lines of one client, in their order."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.open: dict[str, tuple[Any, bytes]] = {}
        self._begun: list[bytes] = []
        """The parts of a line whose end was not read. Joined once: a line may have megabytes, in a thousand parts."""

    @property
    def rest(self) -> bytes:
        return b"".join(self._begun)

    def read(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        self._begun.append(first)
        if not others:
            return
        self._take(self.rest)
        *lines, rest = others
        self._begun = [rest]
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        message = _message(line)
        method, request = message.get("method"), message.get("id")
        if not isinstance(method, str):
            return
        if request is not None:
            self.open[str(request)] = request, line
        elif method == "notifications/initialized":
            self.kept[method] = line
        elif method == "notifications/cancelled":
            self.open.pop(str(_params(message).get("requestId")), None)

    def answered(self, request: Any) -> None:
        _, line = self.open.pop(str(request), (None, b""))
        message = _message(line) if line else {}
        method, uri = message.get("method"), _params(message).get("uri")
        if method in ("initialize", "logging/setLevel"):
            self.kept[method] = line
        elif method == "resources/subscribe":
            self.kept[f"{uri}"] = line
        elif method == "resources/unsubscribe":
            self.kept.pop(f"{uri}", None)


def _contents(file: int) -> bytes:
    parts, place = [], 0
    while part := os.pread(file, _PIECE, place):
        parts.append(part)
        place += len(part)
    return b"".join(parts)


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 0
    while place + _HEAD.size <= len(content):
        length, kind = _HEAD.unpack_from(content, place)
        place += _HEAD.size
        # Of a record that was cut off, what is there was heard.
        yield kind, content[place : place + length] if kind == _HEARD or place + length <= len(content) else b"null"
        place += length


def _message(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _params(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params")
    return params if isinstance(params, dict) else {}
