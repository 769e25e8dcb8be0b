"""How tenants share one index: memory, and the time of a search.

    python -m benchmarks.gateway.tenants [--tenants 500] [--servers 20] [--tools 20] [--apart 20]

The servers are simulated by what they list; ingestion, index, views, policy and search are the product's own. No
encoder: both sides would embed each tool once. Every result is checked: a tenant that finds a tool of another ends the
measurement. Beside it, a few of the tenants get an index of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.gateway.size import REQUESTS
from benchmarks.processes import resident_mb
from benchmarks.tools import varied
from mcp_optimizer.access.policy.policy import Policy, RuleBook
from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.catalog.tool_forms import ToolForms
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.caller import Caller, Principal
from mcp_optimizer.domain.tools import Definition, ServerStatus
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.permissions import Permissions, Views
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.runtime.memory import give_back
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.state import PoolOptions, UpstreamState

COUNTER = TokenCounter()


def resident() -> float:
    """Megabytes that are in use."""
    gc.collect()
    give_back()
    return resident_mb()


async def no_database() -> None:
    return None


def tenant(number: int, servers: int) -> Caller:
    own = frozenset(f"t{number}-s{which}" for which in range(servers))
    return Caller(key=f"tenant {number}", principal=Principal(f"key:{number}", f"key:t{number}", servers=own))


def states(callers: Sequence[Caller], tools: Iterator[Definition], each: int) -> Iterator[UpstreamState]:
    for caller in callers:
        for server in sorted(caller.principal.servers or ()):
            spec = ServerSpec(name=server, transport=Transport.STDIO, command="simulated")
            yield UpstreamState(spec, ServerStatus.RUNNING, Listing(tuple(itertools.islice(tools, each))))


async def gateway_of(callers: Sequence[Caller], tools: Iterator[Definition], each: int) -> Gateway:
    vocabulary = Vocabulary()
    catalog = LiveCatalog(Ingestion(COUNTER, vocabulary, no_database), vocabulary, COUNTER)
    for state in states(callers, tools, each):
        catalog.on_state(state)
    await catalog.caught_up()
    pool = UpstreamPool((), PoolOptions(), "benchmark")
    permissions = Permissions(Views(Policy(RuleBook(()))))
    return Gateway(catalog, pool, ToolForms(COUNTER), Results.plain(COUNTER), 5, permissions=permissions)


def find(gateway: Gateway, caller: Caller, request: str) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    found = gateway.find(request, caller=caller)
    taken = time.perf_counter() - started
    assert caller.principal.servers is not None
    strangers = {hit.tool.server for hit in found.tools} - caller.principal.servers
    assert not strangers, f"{caller.key} found tools of {strangers}"
    return taken * 1e3


def rounds(gateways: Sequence[tuple[Gateway, Caller]]) -> tuple[list[float], list[float]]:
    """Each tenant's first search, and then all of them in turn."""
    first = [find(gateway, caller, REQUESTS[0]) for gateway, caller in gateways]
    later = [find(gateway, caller, request) for request in REQUESTS[1:5] for gateway, caller in gateways]
    return first, later


def said(what: str, taken: Sequence[float]) -> str:
    ordered = sorted(taken)
    return (
        f"| {what} | {statistics.median(ordered):.1f} | {ordered[int(len(ordered) * 0.99)]:.1f} | {ordered[-1]:.1f} |"
    )


async def measure(options: argparse.Namespace) -> None:
    callers = [tenant(number, options.servers) for number in range(options.tenants)]
    tools = varied(options.tenants * options.servers * options.tools * 2)
    apart = callers[: options.apart]
    before = resident()
    own = [(await gateway_of([caller], tools, options.tools), caller) for caller in apart]
    of_one = (resident() - before) / len(apart)
    own_first, own_later = rounds(own)
    own_views = (resident() - before) / len(apart)
    del own
    before = resident()
    started = time.process_time()
    gateway = await gateway_of(callers, tools, options.tools)
    shared, work = resident() - before, time.process_time() - started
    first, later = rounds([(gateway, caller) for caller in callers])
    with_views = resident() - before
    print(f"{gateway.snapshot.index.size:,} tools, load {os.getloadavg()[0]:.1f}; made in {work:.0f} s of CPU\n")
    print("| | p50 ms | 99 % | longest |\n|---|---:|---:|---:|")
    print(said("shared index: a tenant's first search", first))
    print(said("shared index: all tenants in turn", later))
    print(said(f"an index of its own ({len(apart)} tenants): first", own_first))
    print(said("an index of its own: in turn", own_later))
    print(f"\nMemory: the shared index {shared:.0f} MB, {with_views:.0f} after all tenants searched; an index for one")
    print(f"tenant {of_one:.2f} MB, {own_views:.2f} after its searches: {own_views * len(callers):,.0f} MB for all.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=500)
    parser.add_argument("--servers", type=int, default=20, help="of each tenant (default: 20)")
    parser.add_argument("--tools", type=int, default=20, help="of each server (default: 20)")
    parser.add_argument("--apart", type=int, default=20, help="tenants that get an index of their own (default: 20)")
    asyncio.run(measure(parser.parse_args()))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
