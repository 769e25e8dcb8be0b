"""What a gateway needs to know other gateways on its database; None where there can be none."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_optimizer import __version__
from mcp_optimizer.db.storage import Storage
from mcp_optimizer.runtime.owned_names import OwnedNames, new_owner
from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.runtime.worker_place import worker_place
from mcp_optimizer.serving.peers import Peers
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from mcp_optimizer.serving.forwarding import Forwarding


@dataclass(frozen=True)
class Neighbours:
    """The names of what waits here, and the other gateways."""

    names: OwnedNames
    peers: Peers
    signatures: Signatures

    def conversations(self) -> str:
        """What every gateway hashes the names of conversations with, so that a client has one at all of them."""
        return self.signatures.shared_mark("conversation")

    def forwarding(self) -> Forwarding:
        """Passes on to them what only one of them can answer."""
        from mcp_optimizer.serving.forwarding import Forwarding

        return Forwarding(self.peers, self.names, self.signatures)


def neighbours_of(settings: Settings, storage: Storage) -> Neighbours | None:
    """Gateways share a PostgreSQL, and workers of one `serve` any database."""
    is_shared = isinstance(settings.database_place, str) or worker_place(os.environ) is not None
    if settings.http is None or settings.database_place is None or not is_shared:
        return None
    own = new_owner()
    peers = Peers(own, __version__, storage.gateways)
    return Neighbours(OwnedNames(own, storage.signatures), peers, storage.signatures)
