"""Builds what only a gateway that serves has: the other gateways beside it, what passes beside tools, the check of
messages, and the protocol's extensions. Called by `parts`, which loads it only then: it brings the SDK's server.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial

from mcp_optimizer import __version__
from mcp_optimizer.access.audit.trail import AuditTrail
from mcp_optimizer.access.trust.pin_keeper import PinKeeper
from mcp_optimizer.app.first_start import FirstStart
from mcp_optimizer.app.part_options import is_transparent
from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.catalog.own_listings import OwnListings
from mcp_optimizer.catalog.snapshot import OwnViews
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.db.storage import Storage
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.tasks import TaskBook, TaskRequests
from mcp_optimizer.runtime.signatures import OwnedNames, Signatures, new_owner
from mcp_optimizer.runtime.worker_place import worker_place
from mcp_optimizer.serving.extensions.announcing import Apps, Extensions
from mcp_optimizer.serving.extensions.skills import SkillMethods
from mcp_optimizer.serving.extensions.tasks import Tasks
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.peers import Forwarding, Peers
from mcp_optimizer.serving.relay.server import Relay
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.reporting import ServerNews


@dataclass(frozen=True)
class GatewayPeers:
    """Names for state held by this gateway, and the other gateways."""

    names: OwnedNames
    peers: Peers
    signatures: Signatures

    def conversations(self) -> str:
        """The key with which every gateway hashes conversation names, so that all give a client the same one."""
        return self.signatures.shared_mark("conversation")

    def forwarding(self) -> Forwarding:
        """Forwards requests that only another gateway can answer."""
        return Forwarding(self.peers, self.names, self.signatures)


def neighbours_of(settings: Settings, storage: Storage) -> GatewayPeers | None:
    """Gateways that share a PostgreSQL; workers of one `serve` share any database."""
    is_shared = isinstance(settings.database_place, str) or worker_place(os.environ) is not None
    if settings.http is None or settings.database_place is None or not is_shared:
        return None
    own = new_owner()
    peers = Peers(own, __version__, storage.gateways)
    return GatewayPeers(OwnedNames(own, storage.signatures), peers, storage.signatures)


@dataclass(frozen=True)
class ServingParts:
    """What stands between clients and the parts that find, list and call."""

    relay: Relay
    gate: Gate
    extensions: Extensions

    def listen(self, news: ServerNews) -> None:
        """Hear of the servers' changes, and of those of callers' own servers."""
        news.listen(self.relay.on_state, self.relay.on_notice, self.relay.on_gone)
        news.listen_to_own(self.relay.on_own_state, self.relay.on_own_notice)


def serving_parts(
    settings: Settings,
    gateway: Gateway,
    *,
    catalog: LiveCatalog,
    pool: UpstreamPool,
    ingestion: Ingestion,
    keeper: PinKeeper,
    listings: OwnListings,
    own_views: OwnViews,
    tasks: TaskBook,
    trail: AuditTrail | None,
    names: OwnedNames | None,
) -> ServingParts:
    views = gateway.permissions.views
    relay = Relay(
        pool,
        lambda: catalog.snapshot.states,
        partial(_taken_in, listings, catalog) if is_transparent(settings) else None,
        FirstStart(catalog, pool.wake, views.own, gateway.arrived),
        settings.limits,
        views.permits_reading,
        trail,
        gateway.permissions.take_turn,
        names.question if names is not None else None,
        ingestion,
        gateway.pages,
        gateway.skills,
        lambda principal: own_views.of(catalog.snapshot, principal).states if pool.by_caller else None,
    )
    skills = SkillMethods(gateway, relay, pool, keeper.objection, trail)
    every = (Apps(partial(_has_pages, gateway)), skills, Tasks(gateway, TaskRequests(tasks, gateway, pool), trail))
    extensions = Extensions(every, lambda: gateway.snapshot.states, views.permits_reading, relay.clients.caller)
    return ServingParts(relay, Gate(settings.limits), extensions)


def _has_pages(gateway: Gateway, caller: Caller) -> bool:
    views = gateway.permissions.views
    return any(views.permits_server(caller, tool.server) for tool in gateway.snapshot.of_apps)


async def _taken_in(listings: OwnListings, catalog: LiveCatalog) -> None:
    await listings.settled()
    await catalog.taken_in()
