"""What a client's process and the gateway say to each other, on a Unix socket: small messages, with open files.

A message is its length, its kind and its content; files travel with its first byte (`SCM_RIGHTS`). The peer is a
process of the same user, but may be another program, or another version: whatever is unusual ends the connection.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

PROTOCOL = 2

# From the gateway.
HELLO = b"H"
"""Its version and protocol."""
WELCOME = b"W"
OTHER = b"O"
"""The client needs another gateway."""
BOUND = b"B"
"""Other clients find it from now on."""
SERVING = b"S"
"""It reads what the client says."""
LOG = b"L"
NEW_JOURNAL = b"N"
"""With a shorter journal."""
END = b"E"
"""The client has left, or was asked to; the content is the exit code."""

# From the client's process.
JOIN = b"J"
"""The name of the client, what it has to have in common with the gateway, and digests of its variables."""
FILES = b"F"
"""With stdin, stdout and the journal."""
RELOAD = b"R"
"""Its files are to be read again."""
STOP = b"T"
"""Its client wants it to end."""

_HEAD = struct.Struct(">Ic")
_LONGEST = 4_000_000
_MOST_FILES = 4
_PIECE = 65_536


class Broken(OSError):
    """The peer does not say what it should."""


class Said(NamedTuple):
    """One message."""

    kind: bytes
    content: bytes = b""
    files: tuple[int, ...] = ()


class ProcessLink:
    """One connection. Never waits if its socket does not."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._read = b""
        self._files: list[int] = []

    def say(self, kind: bytes, content: bytes = b"", files: Sequence[int] = ()) -> None:
        """Send a message. Raises OSError if the peer is gone or does not read."""
        data = _HEAD.pack(len(content), kind) + content
        with_files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        sent = self.socket.sendmsg([data], with_files)
        if sent < len(data):
            if self.socket.gettimeout() == 0:
                raise Broken("the peer does not read")
            self.socket.sendall(data[sent:])

    def hear(self) -> list[Said] | None:
        """What has arrived: nothing, if no message is complete; None at the end. Raises OSError."""
        room = socket.CMSG_SPACE(_MOST_FILES * array.array("i").itemsize)
        data, extra, flags, _ = self.socket.recvmsg(_PIECE, room, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        for level, kind, content in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files = array.array("i")
                files.frombytes(content[: len(content) - len(content) % files.itemsize])
                self._files += files
        if flags & socket.MSG_CTRUNC or len(self._files) > _MOST_FILES:
            raise Broken("too many files")
        if not data:
            return None
        self._read += data
        said: list[Said] = []
        while len(self._read) >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._read)
            if length > _LONGEST:
                raise Broken("a message is too long")
            end = _HEAD.size + length
            if len(self._read) < end:
                break
            files_of = tuple(self._files) if kind in (FILES, NEW_JOURNAL) else ()
            if files_of:
                self._files = []
            said.append(Said(kind, self._read[_HEAD.size : end], files_of))
            self._read = self._read[end:]
        return said

    def close(self) -> None:
        close_files(self._files)
        self._files = []
        self.socket.close()


def close_files(files: Sequence[int]) -> None:
    """Close files that came with a message and are not used."""
    for file in files:
        with contextlib.suppress(OSError):
            os.close(file)
