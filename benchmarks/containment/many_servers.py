"""How long the event loop stops while 2,000 servers start and die, and at 100,000 tools.

    python -m benchmarks.containment.many_servers [--seconds 30] [--encoder none|bundled] [--only servers|tools]

A client searches meanwhile. No processes are started: the states of made-up servers are reported to the catalog and the
relay exactly as the pool reports them, hundreds in one turn of the loop. Everything behind that is the product's own:
counting, indexing, naming, searching, announcing. A stop is how much later than requested a task wakes that sleeps for
a millisecond at a time. Other load on the machine is part of it, so the load is printed as well.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from benchmarks.stops import Stops, quantile
from benchmarks.tools import QUERIES, varied
from mcp_optimizer import Optimizer
from mcp_optimizer.cli.serve import make_room
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.domain.tools import Definition, ServerStatus
from mcp_optimizer.errors import RequestError
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.state import UpstreamState

SHARED = 200
"""Tools that servers have in common, so that they share names, and names change as servers come and go."""
CAPABILITIES = {"tools": {}, "prompts": {"listChanged": True}}


def line_of(stops: Stops) -> str:
    """The longest stop and the longest of a thousand; then the same of the work during stops."""
    both = (stops.whole, stops.work)
    return "   ".join(f"{ordered[-1] * 1e3:7.0f} {quantile(ordered, 0.999) * 1e3:7.0f}" for ordered in both)


@dataclass
class Servers:
    """Made-up servers, and the parts that hear of them."""

    optimizer: Optimizer
    listings: dict[str, tuple[Definition, ...]]
    up: set[str] = field(default_factory=set)
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def tell(self, name: str, status: ServerStatus) -> None:
        up = status is ServerStatus.RUNNING
        (self.up.add if up else self.up.discard)(name)
        listing = Listing(self.listings[name]) if up else Listing()
        spec = ServerSpec(name=name, transport=Transport.STDIO, command=name)
        state = UpstreamState(spec, status, listing, capabilities=CAPABILITIES if up else {})
        self.optimizer.catalog.on_state(state)
        self.optimizer.relay.on_state(state)

    def tell_all(self, status: ServerStatus) -> None:
        for name in self.listings:
            self.tell(name, status)

    async def come_and_go(self, seconds: float) -> int:
        """Now and then, a tenth of the servers die or come up at once; some come up with another listing."""
        until, changes, names = time.monotonic() + seconds, 0, list(self.listings)
        while time.monotonic() < until:
            for name in self.chance.sample(names, max(1, len(names) // 10)):
                is_up = name in self.up
                if not is_up and self.chance.random() < 0.05:
                    first, *rest = self.listings[name]
                    tool = first.parsed()
                    other = tool.model_copy(update={"description": f"{tool.description} {changes}"})
                    self.listings[name] = (Definition.of(other), *rest)
                self.tell(name, ServerStatus.FAILED if is_up else ServerStatus.RUNNING)
                changes += 1
            await asyncio.sleep(self.chance.uniform(0.02, 0.5))
        return changes


async def search(optimizer: Optimizer, times: list[float]) -> None:
    """One client that searches, lists tools and misspells a name, over and over."""
    turn = 0
    while True:
        turn += 1
        started = time.perf_counter()
        await optimizer.find(QUERIES[turn % len(QUERIES)])
        times.append(time.perf_counter() - started)
        await asyncio.to_thread(optimizer.tools, offset=100 * (turn % 7))
        with contextlib.suppress(RequestError):
            optimizer.gateway.resolve(f"creat_isue_{turn}")
        await asyncio.sleep(0.01)


def made(servers: int, each: int) -> dict[str, tuple[Definition, ...]]:
    """Listings of made-up servers: half of the tools are a server's own, half it shares with others."""
    alike = max(SHARED, each)
    half = each // 2
    pool = list(varied(alike + servers * half))
    chance = random.Random(11)
    return {
        f"server-{number}": (
            *chance.sample(pool[:alike], each - half),
            *pool[alike + number * half : alike + (number + 1) * half],
        )
        for number in range(servers)
    }


async def measure(title: str, listings: dict[str, tuple[Definition, ...]], seconds: float, encoder: str) -> None:
    settings = load_settings({"demo": True, "database": "none", "encoder": encoder})
    optimizer = Optimizer([], settings)
    optimizer.start()
    await optimizer.wait_for_servers(120)
    servers = Servers(optimizer, listings)
    count = sum(map(len, listings.values()))
    print(f"{title}: {len(listings):,} servers, {count:,} tools; load {os.getloadavg()[0]:.1f}", flush=True)
    print(
        f"  {'':28}{'seconds':>7}   {'stops: longest, 99.9 %':>15}   {'without waits':>15}   slowest find, ms",
        flush=True,
    )
    # The listings made here are no part of a gateway, so the garbage collector leaves them out.
    gc.collect()
    gc.freeze()
    finds: list[float] = []
    searching = asyncio.create_task(search(optimizer, finds))

    async def during(what: str, work: Awaitable[object]) -> None:
        stops = Stops()
        finds.clear()
        watching = asyncio.create_task(stops.watch())
        started = time.perf_counter()
        await work
        watching.cancel()
        slowest = max(finds, default=0.0) * 1e3
        print(
            f"  {what:34}{time.perf_counter() - started:7.1f} s   {line_of(stops)}   slowest find {slowest:.0f} ms",
            flush=True,
        )

    async def start_all() -> None:
        servers.tell_all(ServerStatus.STARTING)
        await asyncio.sleep(0)
        servers.tell_all(ServerStatus.RUNNING)
        await optimizer.catalog.caught_up()

    await during("all start in one turn", start_all())
    await during("nothing happens", asyncio.sleep(5))
    await during("some die, some come up", servers.come_and_go(seconds))
    await during("all die in one turn", _after(lambda: servers.tell_all(ServerStatus.FAILED)))
    await during("all come back in one turn", _after(lambda: servers.tell_all(ServerStatus.RUNNING)))
    searching.cancel()
    await optimizer.stop()


async def _after(work: Callable[[], None]) -> None:
    await asyncio.sleep(0.2)
    work()
    await asyncio.sleep(2)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long servers come and go (default: 30)")
    parser.add_argument("--encoder", default="none")
    parser.add_argument("--only", choices=["servers", "tools"])
    parser.add_argument("--servers", type=int, default=2_000)
    parser.add_argument("--tools", type=int, default=100_000)
    options = parser.parse_args()
    make_room()
    if options.only != "tools":
        await measure("many servers", made(options.servers, 10), options.seconds, options.encoder)
    if options.only != "servers":
        await measure("many tools", made(100, options.tools // 100), options.seconds, options.encoder)


if __name__ == "__main__":
    asyncio.run(main())
