"""What is stored of a server beside its tools: what it said of itself, and how its last start failed.

Both are stored with a digest of the server's entry, so that they hold only while the entry is the same. Called by
ingestion, and by commands that start servers only where they must.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.upstream.state import KnownServer, UpstreamState

logger = logging.getLogger(__name__)

SAID = "server"
"""The kind of list under which is stored what a server said of itself."""

FAILED = "failed start"
"""The kind of list under which is stored how a server failed to start."""

Stored = Mapping[str, Mapping[str, str]]
"""Stored lists as text, by server name and kind."""


@dataclass(frozen=True)
class FailedStart:
    """How a server failed to start, and when, in wall-clock seconds."""

    at: float
    reason: str
    kind: FailureKind | None = None


@dataclass(frozen=True)
class RecalledServer:
    """What a server said of itself when it was listed last, and a digest of the entry that it was listed with."""

    said: KnownServer
    entry: str
    salt: str

    def is_of(self, spec: ServerSpec) -> bool:
        """Whether it was listed with this entry. Takes milliseconds if the entry has variables or headers."""
        return hmac.compare_digest(self.entry, _digest(spec, self.salt))


def said_by(state: UpstreamState) -> str:
    """What a server said of itself, with a digest of its entry. A resting server is taken for what this says."""
    return _with_digest(
        state.spec,
        {
            "protocol": state.protocol_version,
            "version": state.server_version,
            "capabilities": state.capabilities,
            "instructions": state.instructions,
        },
    )


def failure_of(state: UpstreamState, at: float) -> str:
    """How a server failed to start, with a digest of its entry."""
    kind = state.failure.value if state.failure is not None else None
    return _with_digest(state.spec, {"at": at, "reason": state.reason, "kind": kind})


def recalled_server(text: str) -> RecalledServer | None:
    """What is stored of a server; None if it cannot be read."""
    try:
        about = json.loads(text)
        said = KnownServer(0, about["protocol"], about["version"], about["capabilities"], about["instructions"])
        return RecalledServer(said, about["entry"], about["salt"])
    except (ValueError, LookupError, TypeError, RecursionError):
        logger.debug("What is stored of a server cannot be read")
        return None


def failed_starts(specs: Sequence[ServerSpec], stored: Stored) -> dict[str, FailedStart]:
    """How servers whose entries are still the same failed to start, by name."""
    found = {}
    for spec in specs:
        if (about := _of_same_entry(spec, stored, FAILED)) is not None:
            kind = about["kind"]
            found[spec.name] = FailedStart(about["at"], about["reason"], FailureKind(kind) if kind else None)
    return found


def _with_digest(spec: ServerSpec, about: Mapping[str, Any]) -> str:
    salt = secrets.token_hex(16)
    return json.dumps({"salt": salt, "entry": _digest(spec, salt), **about})


def _of_same_entry(spec: ServerSpec, stored: Stored, kind: str) -> dict[str, Any] | None:
    about: dict[str, Any] | None = json.loads(stored.get(spec.name, {}).get(kind, "null"))
    return about if about is not None and about["entry"] == _digest(spec, about["salt"]) else None


def _digest(spec: ServerSpec, salt: str) -> str:
    """The same for the same entry. Salted and slow, because values of variables may be short secrets."""
    values = [spec.fingerprint, spec.cwd or "", sorted(spec.env.items()), sorted(spec.headers.items())]
    text = spec.without_secrets(json.dumps(values))
    if not spec.env and not spec.headers:
        # Everything that is left is in the fingerprint, or no secret.
        return hashlib.sha256((salt + text).encode()).hexdigest()
    return hashlib.scrypt(text.encode(), salt=salt.encode(), n=2**10, r=8, p=1, dklen=16).hex()
