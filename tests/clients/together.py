"""python -m tests.clients.together [CLIENT CLIENT]: two real clients of one user, at the same time, share one gateway.

Both have the same home and folder. Their models wait for each other before each call, so both are connected meanwhile;
each has to read its own answer. Fails if they used two gateways, or if something was done twice. A client that can be
asked questions has a process of its own of this server.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tests.clients.__main__ import available
from tests.clients.bench import OURS, SHOP, Bench, Talk
from tests.clients.endpoint import Call, Endpoint
from tests.clients.installing import FOLDER
from tests.clients.programs import CLIENTS, OUR_NAME, RealClient
from tests.clients.story import changing, find

_WAIT = 60
"""Seconds for which one model waits for the other."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.together")
    parser.add_argument("clients", nargs="*", default=["claude-code", "codex"])
    wanted = [client for client in CLIENTS if client.name in parser.parse_args().clients]
    node, had, missing = available(wanted)
    if missing or len(had) < 2:
        print(f"clients: {'; '.join(missing) or 'name two of ' + ', '.join(client.name for client in CLIENTS)}")
        return 1
    problems = list(found(had, node))
    for problem in problems:
        print(f"clients: {problem}")
    if not problems:
        print(f"clients: {' and '.join(client.title for client in had)} shared one gateway")
    return 1 if problems else 0


def found(clients: Sequence[RealClient], node: str) -> list[str]:
    """What went wrong, if anything."""
    folder = FOLDER / "runs" / "together"
    shutil.rmtree(folder, ignore_errors=True)
    meeting = threading.Barrier(len(clients), timeout=_WAIT)
    seen: list[int] = []
    with Endpoint(folder / "requests").running() as endpoint:
        benches = [Bench(client, node, folder / "user", endpoint) for client in clients]
        prepare(benches)

        def steps(number: int) -> list[Call]:
            def look() -> None:
                meeting.wait()
                if number == 0:
                    status = json.loads(benches[0].optimizer("status", "--json").printed)
                    seen.extend(gateway.get("clients", 0) for gateway in status["gateways"])
                meeting.wait()

            both = replace(find("write a note"), before=meeting.wait)
            return [both, replace(changing("write_note", text=clients[number].name), before=look)]

        with ThreadPoolExecutor() as threads:
            talks = list(threads.map(lambda at: ask(benches[at], steps(at)), range(len(benches))))
    return [*wrong_answers(clients, talks), *wrong_processes(benches[0], seen, len(clients))]


def prepare(benches: Sequence[Bench]) -> None:
    """Write the files of a user who has the same gateway in each client."""
    first = benches[0]
    program, *arguments = first.lab()
    first.server_file.parent.mkdir(parents=True, exist_ok=True)
    first.server_file.write_text(json.dumps({"mcpServers": {SHOP: {"command": program, "args": arguments}}}))
    for bench in benches:
        bench.set_up({OUR_NAME[0]: [str(OURS), "serve"]})


def ask(bench: Bench, steps: Sequence[Call]) -> Talk:
    client = bench.client
    return bench.ask(f"together-{client.name}", steps, (*client.trusting, *client.patient(OUR_NAME)), client.waits)


def wrong_answers(clients: Sequence[RealClient], talks: Sequence[Talk]) -> list[str]:
    problems = []
    for client, talk in zip(clients, talks, strict=True):
        read = talk.held.read(1)
        if read is None or "write_note done" not in read.text:
            problems.append(f"{client.title} read {read.text if read else talk.ended.printed[-500:]!r}")
    return problems


def wrong_processes(bench: Bench, seen: Sequence[int], clients: int) -> list[str]:
    problems = [] if list(seen) == [clients] else [f"clients of each gateway: {list(seen)}, not [{clients}]"]
    if len(wrote := bench.did(f"{SHOP} did write_note")) != clients:
        problems.append(f"the server was called {len(wrote)} times")
    return problems


if __name__ == "__main__":
    sys.exit(main())
