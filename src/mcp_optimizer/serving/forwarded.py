"""What one gateway tells another about a request that it passes on: signed, for one gateway, one body and a short time.

The receiver asks the caller's credential again, as of any request: this says only where the request arrived first, so
that nobody forwards it once more. Also the proof by which a gateway shows that it is the one it is taken for.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from mcp_optimizer.runtime.signatures import Signatures

HEADER = "mcp-optimizer-forwarded"
FORWARDED_KEY = "mcp_optimizer.forwarded"
"""The key under which a request that another gateway passed on carries what was told of it."""

_SECONDS = 60
"""For which a request may be under way; clocks of two machines differ."""

_LONGEST = 8_000
_FORWARDED, _PROOF = "forwarded", "gateway"


@dataclass(frozen=True)
class Forwarded:
    """A request that another gateway passed on."""

    to: str
    principal: str
    """The id of the caller, as the other gateway verified it."""
    resource: str
    """The address that the client used; tokens are for that one."""
    digest: str
    """Of the body."""
    until: int

    def is_about(self, body: bytes | bytearray, principal: str) -> bool:
        return self.digest == digest(body) and self.principal == principal


def digest(body: bytes | bytearray) -> str:
    return hashlib.sha256(body).hexdigest()


class ForwardedHeaders:
    """Writes and reads them, as the gateway `own`."""

    def __init__(self, own: str, signatures: Signatures, clock: Callable[[], float] = time.time) -> None:
        self.own = own
        self._signatures = signatures
        self._clock = clock

    async def written(self, to: str, principal: str, resource: str, body: bytes | bytearray) -> str:
        """The header for a request to another gateway."""
        told = Forwarded(to, principal, resource, digest(body), round(self._clock()) + _SECONDS)
        text = base64.urlsafe_b64encode(json.dumps(asdict(told)).encode()).decode().rstrip("=")
        return f"{text}.{await self._signatures.sign(_FORWARDED, text)}"

    async def read(self, header: str) -> Forwarded | None:
        """What another gateway told; None for anything else, which counts as if it were not there."""
        text, _, signature = header.rpartition(".")
        if len(header) > _LONGEST or not await self._signatures.is_ours(_FORWARDED, text, signature):
            return None
        try:
            told = Forwarded(**json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))
        except (binascii.Error, ValueError, TypeError):
            # Of a version that says something else.
            return None
        return told if told.to == self.own and told.until > self._clock() else None

    async def proof(self, asked: str, gateway: str) -> str:
        """What only this gateway, or another on the same database, can answer to a random question."""
        return await self._signatures.sign(_PROOF, f"{gateway}\0{asked}")

    async def is_proof(self, answer: object, asked: str, gateway: str) -> bool:
        text = f"{gateway}\0{asked}"
        return isinstance(answer, str) and await self._signatures.is_ours(_PROOF, text, answer)
