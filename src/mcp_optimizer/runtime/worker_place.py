"""What one worker of several knows of its place: its number, its sockets, and where the others are.

Written by the process that starts the workers into their environment, and read by each at its start. Not an option.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass

VARIABLE = "MCP_OPTIMIZER_WORKER"


@dataclass(frozen=True)
class WorkerPlace:
    """One of `of` workers, counted from 1."""

    number: int
    of: int
    public: int
    """Its listening socket at the address of all, as a file descriptor."""
    private: int
    """Its listening socket on loopback, where the others reach it and nobody else."""
    link: int
    """Its end of the connection with the process that started it, which ends when that process does."""
    addresses: tuple[str, ...]
    """HOST:PORT of each worker's private socket, in the order of their numbers. The same over all of their lives."""

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
        """Public, private and link, as objects; no server that this process starts inherits them."""
        for descriptor in self.descriptors:
            os.set_inheritable(descriptor, False)
        public, private, link = (socket.socket(fileno=descriptor) for descriptor in self.descriptors)
        for each in (public, private, link):
            each.setblocking(False)
        return public, private, link


def worker_place(environment: Mapping[str, str]) -> WorkerPlace | None:
    """The place of this process among workers; None if it is alone."""
    written = environment.get(VARIABLE, "")
    if not written:
        return None
    read = json.loads(written)
    return WorkerPlace(**{**read, "addresses": tuple(read["addresses"])})


def worker_name(environment: Mapping[str, str]) -> str:
    """Such as 2/3; empty if this process is alone."""
    place = worker_place(environment)
    return place.name if place is not None else ""
