"""The command socket: where it is, and the lines exchanged on it. A gateway identifies itself, a command asks, the
gateway answers.

Pure. Also says how a failed command ends: the message and exit code are the same whether the command or a gateway
did the work.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import ConfigurationError, GatewayFailure, InvalidArguments, OptimizerError, UnknownTool
from mcp_optimizer.runtime.sharing.places import folders, sockets_named

# The sockets on which running gateways answer commands: their names, and where they are.


def identity(settings: Settings) -> str:
    """A digest of what a gateway and a command must share: the servers and their database."""
    source = "demo" if settings.demo else os.path.realpath(settings.server_file)
    place = settings.database_place
    if isinstance(place, Path):
        stored = os.path.realpath(place)
    else:
        url = urlsplit(place or "none")
        # Without the password: nothing may be derived from it.
        stored = f"{url.scheme} {url.username or ''} {url.hostname or ''} {url.port or ''} {url.path}" if place else ""
    chosen = sorted(name for name in (part.strip() for part in settings.servers.split(",")) if name)
    known = json.dumps([source, settings.demo, chosen, stored])
    return hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def socket_name(of: str, pid: int) -> str:
    return f"{of}-{pid}.sock"


def sockets(of: str, environment: Mapping[str, str]) -> list[Path]:
    """The sockets of gateways with this identity, newest first. Skips links and files of other users."""
    return sockets_named(lambda name: name.startswith(f"{of}-"), folders(environment))


@dataclass(frozen=True)
class FailedCommand:
    """The message for a person, and the exit code: 1 for a failure, 2 for wrong usage or configuration."""

    message: str
    code: int = 1


def failure_of(error: OptimizerError) -> FailedCommand:
    """An error for people; advice meant for a model is replaced by a command."""
    if isinstance(error, GatewayFailure):
        return FailedCommand(str(error), error.code)
    if isinstance(error, ConfigurationError):
        return FailedCommand(str(error), 2)
    if isinstance(error, InvalidArguments):
        return FailedCommand(f"{error} `mcp-optimizer show {error.tool}` explains them.")
    if isinstance(error, UnknownTool):
        return FailedCommand(f"{error.without_advice} Search with `mcp-optimizer find`.")
    return FailedCommand(str(error))


PROTOCOL = 1
MOST_ASKED = 10_000_000
"""Maximum bytes of a request."""
MOST_ANSWERED = 1_000_000_000
"""Maximum bytes of a reply that a command reads."""
LONGEST_HELLO = 10_000


@dataclass(frozen=True)
class Hello:
    """The first line a gateway sends."""

    version: str
    pid: int
    is_ready: bool
    protocol: int = PROTOCOL

    def line(self) -> bytes:
        return _line(asdict(self))

    @classmethod
    def of(cls, line: bytes) -> Hello | None:
        """None if it is no greeting, or one of another protocol version."""
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict) or said.get("protocol") != PROTOCOL:
            return None
        version, pid = said.get("version"), said.get("pid")
        if not isinstance(version, str) or not isinstance(pid, int):
            return None
        return cls(version, pid, said.get("is_ready") is True)


def answered(value: Any) -> bytes:
    return _line({"answer": value})


def failed(failure: FailedCommand) -> bytes:
    return _line({"failure": asdict(failure)})


def read_answer(line: bytes) -> Any:
    """The gateway's answer; raises the failure that it reports, and ValueError if it is malformed."""
    if not line.endswith(b"\n"):
        raise GatewayFailure("The gateway ended before it answered. With --fresh, the servers are started anew.")
    try:
        said = json.loads(line)
    except RecursionError:
        said = None
    match said:
        case {"failure": {"message": str(message), "code": int(code)}}:
            raise GatewayFailure(message, code)
        case {"answer": answer}:
            return answer
    raise ValueError("what it says is no answer")


def _line(value: Any) -> bytes:
    # Lone surrogates, which servers may send, have no UTF-8 encoding; escaped, they survive.
    return json.dumps(value).encode("ascii") + b"\n"
