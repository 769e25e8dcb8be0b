"""How callers with own logins share one index: memory, and the time of a search.

    python -m benchmarks.gateway.own_callers [--callers 500] [--servers 20] [--tools 20] [--own 0] [--risk destructive]
        [--confined 0]

Each entry has `"principal": "caller"`, so each caller has a listing of its own from each server: parsed anew for every
caller, as from its own session. `--own` says how many of each server's tools are different for every caller, and
`--confined` to how many of the servers each caller's key is confined, to others for each caller. The servers are
simulated by what they list; no sessions are opened. Every result is checked to be the caller's own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time

from benchmarks.gateway.size import REQUESTS
from benchmarks.gateway.tenants import COUNTER, no_database, resident, said
from benchmarks.tools import varied
from mcp_optimizer import McpTool
from mcp_optimizer.access.policy.policy import Policy, RuleBook
from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.catalog.admissions import AdmitsAll
from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.catalog.own_listings import OwnListings
from mcp_optimizer.catalog.snapshot import OwnViews
from mcp_optimizer.catalog.tool_forms import ToolForms
from mcp_optimizer.config.serverfile.spec import AuthKind, AuthSpec, ServerSpec, Transport
from mcp_optimizer.domain.caller import Caller, Principal, Risk
from mcp_optimizer.domain.tools import Definition, ServerStatus
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.permissions import Permissions, Views
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.state import PoolOptions, UpstreamState

_OF = "_of_caller_"


class Company:
    """A gateway whose entries act as each caller."""

    def __init__(self, servers: int, tools: int) -> None:
        auth = AuthSpec(kind=AuthKind.OAUTH, per_caller=True)
        made = varied(servers * tools)
        self.tools: dict[str, list[str]] = {}
        self.specs: dict[str, ServerSpec] = {}
        for number in range(servers):
            name = f"server-{number}"
            self.specs[name] = ServerSpec(name, Transport.HTTP, url=f"https://{name}.example/mcp", auth=auth)
            self.tools[name] = [next(made).parsed().model_dump_json(exclude_none=True) for _ in range(tools)]
        vocabulary = Vocabulary()
        ingestion = Ingestion(COUNTER, vocabulary, no_database)
        self.catalog = LiveCatalog(ingestion, vocabulary, COUNTER)
        self.listings = OwnListings(ingestion, AdmitsAll(), self._show, self.catalog.own_changed)
        self.by_caller = list(self.specs.values())
        views = OwnViews(self.listings, self, lambda _spec, _caller: "", self.catalog.named)
        for spec in self.by_caller:
            self.catalog.on_state(UpstreamState(spec, ServerStatus.RESTING))
        permissions = Permissions(Views(Policy(RuleBook(())), own=views))
        pool = UpstreamPool((), PoolOptions(), "benchmark")
        self.gateway = Gateway(
            self.catalog, pool, ToolForms(COUNTER), Results.plain(COUNTER), 5, permissions=permissions
        )

    def _show(self, server: str, listing: Listing, instructions: str) -> None:
        state = UpstreamState(self.specs[server], ServerStatus.RUNNING, listing, instructions=instructions)
        self.catalog.on_state(state)

    def log_in(self, caller: Caller, own: int) -> None:
        """The caller's servers list their tools, of which `own` are for this caller alone."""
        for name, texts in self.tools.items():
            tools = [McpTool.model_validate_json(text) for text in texts]
            for tool in tools[:own]:
                tool.name = f"{tool.name[:40]}{_OF}{caller.key}"
            listing = Listing(tuple(map(Definition.of, tools)))
            state = UpstreamState(self.specs[name], ServerStatus.RUNNING, listing)
            self.listings.on_state(caller.principal, state)


def caller_of(number: int, options: argparse.Namespace) -> Caller:
    chosen = random.Random(number).sample(range(options.servers), options.confined)
    servers = frozenset(f"server-{one}" for one in chosen) or None
    principal = Principal(f"key:{number}", f"key:c{number}", servers=servers, risk=Risk(options.risk))
    return Caller(key=f"{number}", principal=principal)


def find(gateway: Gateway, caller: Caller, request: str) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    found = gateway.find(request, caller=caller)
    taken = time.perf_counter() - started
    servers = caller.principal.servers
    assert found.tools or servers is not None, f"caller {caller.key} found nothing"
    for hit in found.tools:
        assert servers is None or hit.tool.server in servers, f"caller {caller.key} found a tool of {hit.tool.server}"
        whose = hit.tool.record.name.partition(_OF)[2]
        assert whose in ("", caller.key), f"caller {caller.key} found a tool of caller {whose}"
    return taken * 1e3


async def measure(options: argparse.Namespace) -> None:
    company = Company(options.servers, options.tools)
    callers = [caller_of(number, options) for number in range(options.callers)]
    before, started, held = resident(), time.process_time(), {}
    for number, caller in enumerate(callers, 1):
        company.log_in(caller, options.own)
        if number in (1, options.callers // 10, options.callers):
            await company.listings.settled()
            await company.catalog.caught_up()
            held[number] = resident() - before
    work = time.process_time() - started
    gateway = company.gateway
    first = [find(gateway, caller, REQUESTS[0]) for caller in callers]
    later = [find(gateway, caller, request) for request in REQUESTS[1:5] for caller in callers]
    with_views = resident() - before
    confined = f", confined to {options.confined}" if options.confined else ""
    print(
        f"{options.callers} callers with rights up to {options.risk}, {options.servers} servers of {options.tools} "
        f"tools, {options.own} of them each caller's own{confined}: {gateway.snapshot.index.size:,} tools in the "
        f"index, load {os.getloadavg()[0]:.1f}; made in {work:.0f} s of CPU\n"
    )
    print("| | p50 ms | 99 % | longest |\n|---|---:|---:|---:|")
    print(said("a caller's first search", first))
    print(said("all callers in turn", later))
    grown = ", ".join(f"{megabytes:.1f} MB with {number} callers" for number, megabytes in held.items())
    print(f"\nMemory: {grown}; {with_views:.1f} after all have searched.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callers", type=int, default=500)
    parser.add_argument("--servers", type=int, default=20, help="of each caller (default: 20)")
    parser.add_argument("--tools", type=int, default=20, help="of each server (default: 20)")
    parser.add_argument("--own", type=int, default=0, help="of these, each caller's own (default: 0)")
    parser.add_argument("--risk", default=Risk.DESTRUCTIVE, help="what callers may call: read or destructive (default)")
    parser.add_argument("--confined", type=int, default=0, help="servers of each caller's key (default: 0, for all)")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
