"""Two callers at three gateways that are killed in turn: what reaches the other one.

    python -m benchmarks.many_gateways.callers [--minutes 5] [--every 10] [--write]

PostgreSQL, `deploy/haproxy.cfg` without stickiness, and one server that lists, answers and tells every user something
else. First both callers have logins of their own, then their tokens are exchanged. Clients of both eras use every
method all the time; now and then all tokens end at once, and are renewed once for all gateways.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import running_cluster
from tests.e2e.callers_anywhere import (
    CALLERS,
    OPTIONS,
    Exchanged,
    Identity,
    Office,
    OwnLogins,
    configured,
    office,
    secret_key,
)
from tests.postgres import find_programs, running_postgres
from tests.servers.login_world import LoginWorld, issuer_world, login_world, running

from benchmarks.many_gateways.run import COMMAND
from benchmarks.paths import RESULTS

RESULT = RESULTS / "own_callers.md"
_LIFE = 3_600


@contextmanager
def own_logins() -> Iterator[Identity]:
    with login_world(seconds=_LIFE, server="tests.servers.personal") as world:
        yield OwnLogins(world)


@contextmanager
def exchanged() -> Iterator[Identity]:
    with issuer_world(seconds=_LIFE) as issuer, running("tests.servers.personal", "--issuer", issuer.issuer) as server:
        yield Exchanged(LoginWorld(server, issuer.issuer, issuer.http))


@dataclass
class Seen:
    """What a run saw."""

    seconds: float = 0.0
    kills: int = 0
    answered: int = 0
    lost: int = 0
    updates: int = 0
    lost_logins: int = 0
    reuses: int = 0
    renewed: list[int] = field(default_factory=list)
    mixed_up: list[str] = field(default_factory=list)


async def seen(made: Callable[[], AbstractContextManager[Identity]], seconds: float, every: float) -> Seen:
    programs = find_programs()
    if programs is None:
        raise FileNotFoundError("PostgreSQL is not installed")
    with tempfile.TemporaryDirectory() as folder, running_postgres(programs) as postgres, made() as identity:
        database = postgres.new_database()
        config, settings = await configured(identity, Path(folder), database)
        more = (*OPTIONS, "--settings", settings)
        with running_cluster(COMMAND, config, database, *more, environment=secret_key()) as cluster:
            found = Seen()
            async with office(cluster, identity) as people:
                await _kill_in_turn(people, found, seconds, every)
                found.answered = sum(seat.answered for seat in people.seats)
                found.lost = sum(seat.lost for seat in people.seats)
                found.updates = sum(seat.updates for seat in people.seats)
            found.mixed_up, found.lost_logins, found.renewed = people.mixed_up(), people.lost_logins, people.renewed
            found.reuses = identity.world.counts()["reuses"]
    return found


async def _kill_in_turn(people: Office, found: Seen, seconds: float, every: float) -> None:
    began = time.monotonic()
    for gateway in itertools.cycle(people.cluster.gateways):
        turn = time.monotonic()
        if turn - began > seconds:
            break
        await people.kill(gateway)
        found.kills += 1
        await people.all_hear()
        await people.tokens_end()
        while time.monotonic() - turn < every:
            await people.all_served()
    found.seconds = time.monotonic() - began


def described(title: str, found: Seen) -> str:
    times = len(found.renewed)
    once = sum(one == len(CALLERS) for one in found.renewed)
    lines = [
        f"## {title}",
        "",
        f"{found.seconds:.0f} s; load of the machine ({os.cpu_count()} cores) at the end: {os.getloadavg()[0]:.1f}",
        "",
        f"- gateways killed: {found.kills}; requests answered: {found.answered:,}; lost with a killed gateway: "
        f"{found.lost:,}; changes of resources told: {found.updates:,}",
        f"- all tokens ended at once: {times} times; renewed once for each caller and all gateways: {once}; at most "
        f"{max(found.renewed, default=0)} renewals for {len(CALLERS)} callers",
        f"- refresh tokens sent twice: {found.reuses}; logins lost: {found.lost_logins}",
        f"- what reached the other caller, a log, or a session of the other: {len(found.mixed_up)}",
    ]
    return "\n".join([*lines, *(f"  - {one}" for one in found.mixed_up[:8])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="for each of both ways (default: 5)")
    parser.add_argument("--every", type=float, default=10, help="seconds between two kills at least (default: 10)")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    parts = []
    for title, made in (("Logins of their own", own_logins), ("Tokens that are exchanged", exchanged)):
        parts.append(described(title, asyncio.run(seen(made, 60 * options.minutes, options.every))))
        print(parts[-1], flush=True)
    if options.write:
        head = "# Two callers, three gateways\n\n`python -m benchmarks.many_gateways.callers`"
        RESULT.write_text("\n\n".join([head, *parts]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
