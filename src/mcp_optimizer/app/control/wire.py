"""The lines exchanged on the command socket: a gateway identifies itself, a command asks, the gateway answers.

Pure. Also says how a failed command ends: the message and exit code are the same whether the command or a gateway
did the work.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from mcp_optimizer.errors import ConfigurationError, GatewayFailure, InvalidArguments, OptimizerError, UnknownTool


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
