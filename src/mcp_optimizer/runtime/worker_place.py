"""The place of one worker among several: its number, its sockets, and the addresses of the others.

The process that starts the workers writes it into their environment, and each worker reads it at its start. Not an
option.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

VARIABLE = "MCP_OPTIMIZER_WORKER"


@dataclass(frozen=True)
class WorkerPlace:
    """One of `of` workers, counted from 1."""

    number: int
    of: int
    public: int
    """File descriptor of its listening socket at the shared public address."""
    private: int
    """File descriptor of its listening socket on loopback, which only the other workers use."""
    link: int
    """File descriptor of its connection with the parent process; the connection ends when that process does."""
    addresses: tuple[str, ...]
    """HOST:PORT of each worker's private socket, in the order of their numbers; unchanged when a worker restarts."""
    since: float
    """When the parent process began to listen at the public address, in seconds since 1970."""

    @property
    def name(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def address(self) -> str:
        return self.addresses[self.number - 1]

    @property
    def descriptors(self) -> tuple[int, int, int]:
        return self.public, self.private, self.link

    def variable(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}

    def sockets(self) -> tuple[socket.socket, socket.socket, socket.socket]:
        """The public, private and link sockets as objects; servers that this process starts do not inherit them."""
        for descriptor in self.descriptors:
            os.set_inheritable(descriptor, False)
        public, private, link = (socket.socket(fileno=descriptor) for descriptor in self.descriptors)
        for each in (public, private, link):
            each.setblocking(False)
        return public, private, link


def worker_place(environment: Mapping[str, str]) -> WorkerPlace | None:
    """The place of this process among workers; None if there are no others."""
    written = environment.get(VARIABLE, "")
    if not written:
        return None
    read = json.loads(written)
    return WorkerPlace(**{**read, "addresses": tuple(read["addresses"])})


def listening_since(environment: Mapping[str, str]) -> float:
    """Since when no other program can listen at the gateway's port, in seconds since 1970: for a worker, since its
    parent process listens; otherwise from now on.
    """
    place = worker_place(environment)
    return place.since if place is not None else time.time()


def worker_name(environment: Mapping[str, str]) -> str:
    """The name of this worker, such as 2/3; empty if there are no others."""
    place = worker_place(environment)
    return place.name if place is not None else ""
