"""The lines that go over the socket for commands: a gateway says who it is, a command asks, the gateway answers.

Pure. Also says how a command ends that fails: the message and exit code are the same in the command itself and in a
gateway.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from mcp_optimizer.errors import ConfigurationError, GatewayFailure, InvalidArguments, OptimizerError, UnknownTool


@dataclass(frozen=True)
class FailedCommand:
    """What a person reads, and the exit code: 1 for a failure, 2 for wrong usage or configuration."""

    message: str
    code: int = 1


def failure_of(error: OptimizerError) -> FailedCommand:
    """An error for people; whatever it advises a model is replaced by a command."""
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
"""Bytes of a request."""
MOST_ANSWERED = 1_000_000_000
"""Bytes of a reply that a command reads."""
LONGEST_HELLO = 10_000


@dataclass(frozen=True)
class Hello:
    """The first line of a gateway."""

    version: str
    pid: int
    is_ready: bool
    protocol: int = PROTOCOL

    def line(self) -> bytes:
        return _line(asdict(self))

    @classmethod
    def of(cls, line: bytes) -> Hello | None:
        """None if it is no such line, or that of another protocol."""
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
    """What a gateway answered; raises the failure that it reports, and ValueError if it is no answer."""
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
    # Half characters, which servers may send, have no UTF-8; escaped they survive.
    return json.dumps(value).encode("ascii") + b"\n"
