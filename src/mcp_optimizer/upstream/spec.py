"""A configured server: how to start or reach it. Pure values, no effects."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from mcp_optimizer.domain.pins import TrustMode
from mcp_optimizer.upstream.auth_spec import NO_AUTH, AuthSpec
from mcp_optimizer.upstream.failure import FailureKind
from mcp_optimizer.upstream.selection import EVERY_TOOL, ToolSelection


class Transport(StrEnum):
    """How the gateway talks to a server."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


@dataclass(frozen=True)
class ServerSpec:
    """One entry of a server file, with its variables replaced.

    `problem` says why the entry cannot be used, if so. One bad entry must not stop the others, so it is carried along
    and reported where servers are listed.
    """

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: AuthSpec = NO_AUTH
    description: str = ""
    """What the server is for, as the server file says: searched, and shown with its tools."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The stored secrets that the entry uses, by name. Their values are part of the other fields."""
    timeout: float | None = None
    disabled: bool = False
    tools: ToolSelection = EVERY_TOOL
    trust: TrustMode | None = None
    """What happens to its tools when they change, if its entry says so."""
    unread: tuple[str, ...] = ()
    """Keys of the entry that mean nothing here."""
    transport_is_certain: bool = True
    problem: str = ""
    problem_kind: FailureKind = FailureKind.ENTRY

    @property
    def of_session(self) -> ServerSpec:
        """What a session depends on: while this stays the same, other changes need no new one."""
        return replace(self, description="", timeout=None, tools=EVERY_TOOL, trust=None)

    @property
    def fingerprint(self) -> str:
        """Distinguishes two servers of the same name. Excludes values of variables and headers, and stored secrets."""
        chosen = [self.tools.used, self.tools.turned_off] if self.tools else []
        named = [sorted(self.env), sorted(self.headers)]
        account = [self.auth.identity] if self.auth.identity != NO_AUTH.identity else []
        args = [self.without_secrets(argument) for argument in self.args]
        identity = [self.transport, self.command, args, self.without_secrets(self.url), *named, *chosen, *account]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]

    @property
    def target(self) -> str:
        """What is started or reached, for people; without arguments, password or query, which may be secrets."""
        if self.transport is Transport.STDIO:
            return self.command
        return re.sub(r"(?<=://)[^/?#]*@|[?#].*", "", self.without_secrets(self.url))

    def without_secrets(self, text: str) -> str:
        """A part of this spec with the names of its stored secrets instead of their values."""
        for name, value in sorted(self.secrets.items(), key=lambda item: -len(item[1])):
            text = text.replace(value, f"[secret {name}]")
        return text
