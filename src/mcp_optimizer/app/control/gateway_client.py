"""Finds a running gateway and queries it. Used by commands and shell completion; fast, and without an event loop."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_optimizer import __version__
from mcp_optimizer.app.control.wire import (
    LONGEST_HELLO,
    MOST_ANSWERED,
    MOST_ASKED,
    Hello,
    identity,
    read_answer,
    sockets,
)
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import GatewayFailure
from mcp_optimizer.runtime.sharing.places import CAN_CONTROL, is_own_user

if TYPE_CHECKING:
    from mcp_optimizer.app.control.command_requests import Request

_HELLO_SECONDS = 1.0
_MOST_TRIED = 50


@dataclass(frozen=True)
class RunningGateway:
    """A gateway that responded. Each request has its own connection."""

    path: Path
    hello: Hello

    @property
    def is_same_version(self) -> bool:
        return self.hello.version == __version__

    def ask(self, request: Request, seconds: float = 3_600.0) -> Any:
        """The answer; raises GatewayFailure with the gateway's message, or if the gateway ends or takes too long."""
        line = json.dumps(request.model_dump()).encode("ascii") + b"\n"
        if len(line) > MOST_ASKED:
            raise GatewayFailure(f"The request has {len(line):,} bytes, and a running gateway takes {MOST_ASKED:,}.")
        try:
            with _connected(self.path) as (connection, _):
                connection.settimeout(seconds)
                connection.sendall(line)
                with connection.makefile("rb") as replies:
                    return read_answer(replies.readline(MOST_ANSWERED))
        except (OSError, ValueError) as error:
            raise GatewayFailure(
                f"The running gateway (pid {self.hello.pid}) did not answer: {error}. With --fresh, the servers are "
                "started anew."
            ) from error


def running_gateways(settings: Settings, environment: Mapping[str, str] = os.environ) -> list[RunningGateway]:
    """Gateways with the servers of these settings: ready ones first, then the newest. Removes sockets of dead ones."""
    if not CAN_CONTROL:
        return []
    found: list[RunningGateway] = []
    for path in sockets(identity(settings), environment)[:_MOST_TRIED]:
        try:
            with _connected(path) as (_, hello):
                found.append(RunningGateway(path, hello))
        except ConnectionRefusedError:
            with contextlib.suppress(OSError):
                path.unlink()
        except (OSError, ValueError):
            # Busy, or another program listens there.
            continue
    return sorted(found, key=lambda gateway: not gateway.hello.is_ready)


def address_of_running(settings: Settings) -> str:
    """The address of a gateway over HTTP that runs with the servers of these settings; empty if there is none."""
    from mcp_optimizer.app.control.command_requests import StatusRequest

    for gateway in running_gateways(settings):
        with contextlib.suppress(GatewayFailure):
            address = str(gateway.ask(StatusRequest(), _HELLO_SECONDS)["value"]["address"])
            if address.startswith(("http://", "https://")):
                return address.removesuffix("/mcp")
    return ""


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[tuple[socket.socket, Hello]]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_HELLO_SECONDS)
        connection.connect(str(path))
        if not is_own_user(connection):
            raise ValueError("it is a process of another user")
        hello = Hello.of(_first_line(connection))
        if hello is None:
            raise ValueError("it is another program, or another version of this one")
        yield connection, hello


def _first_line(connection: socket.socket) -> bytes:
    """Read only the first line, which is all that the gateway sends before a request."""
    line = b""
    while not line.endswith(b"\n") and len(line) < LONGEST_HELLO:
        if not (more := connection.recv(LONGEST_HELLO - len(line))):
            break
        line += more
    return line
