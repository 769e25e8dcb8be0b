"""Who asks: what results are stored and cached for, what events name, and how a server may speak back to it.

Values and a protocol; knows no transport.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class ClientLink(Protocol):
    """The client behind a call, as far as a server may speak to it while the call lasts."""

    @property
    def key(self) -> str:
        """What tells clients apart; two links of one client have the same."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared that it can be asked for: sampling, elicitation, roots ..."""
        ...

    @property
    def is_modern(self) -> bool:
        """Whether it speaks the newer protocol era, in which a server asks in its result and not in between."""
        ...

    @property
    def log_level(self) -> str | None:
        """The least severe log message that it wants; None: it did not say."""
        ...

    @property
    def lasting(self) -> ClientLink:
        """The way to the same client when this call is over."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Pass a server's request on to the client, and its raw answer back."""
        ...

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification on. Never raises: a client that left hears nothing."""
        ...

    async def release_streams(self) -> None:
        """The server let go of the call's stream and will be asked for the rest; a client that can do so may, too."""
        ...


@dataclass(frozen=True)
class Caller:
    """One user of the gateway. Whoever has another `key` sees nothing of what is kept for this one."""

    client: str = ""
    """How the client calls itself; for people to read, and not to be relied on."""
    key: str = "local"
    """What tells callers apart: the process over stdio, a session over HTTP."""
    link: ClientLink | None = field(default=None, compare=False, repr=False)
    """The way back to the client, if there is one."""
    passed_on: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What of the client's request goes on to the server as it is: `_meta`, `inputResponses`, `requestState`."""


LOCAL = Caller()
