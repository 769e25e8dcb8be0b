"""python -m tests.clients [--if-possible] [--short | CLIENT ...]: real clients use mcp-optimizer, read by a model.

Installs the clients of `versions.toml` into .clients/, lets each live through `story`, and checks what its model read.
One client at a time, each in a home of its own. `--short`: only those of every change. With `--if-possible`, what
cannot be installed is named and skipped; otherwise it is a failure. Logs stay in .clients/runs/CLIENT.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Sequence

from tests.clients.bench import Bench
from tests.clients.checks import CHECKS, Check, sentence
from tests.clients.endpoint import Endpoint
from tests.clients.installing import FOLDER, install_from_npm, install_from_pypi
from tests.clients.programs import CLIENTS, SHORT, RealClient
from tests.clients.promises import PROMISES
from tests.clients.story import Evidence, live_through
from tests.conformance.suite import NotAvailable


def gather(client: RealClient, node: str) -> Evidence:
    folder = FOLDER / "runs" / client.name
    shutil.rmtree(folder, ignore_errors=True)
    with Endpoint(folder / "requests").running() as endpoint:
        return live_through(Bench(client, node, folder / "user", endpoint))


def problems(evidence: Evidence, checks: Sequence[Check]) -> Iterator[str]:
    for check in checks:
        try:
            check(evidence)
        except AssertionError as problem:
            yield f"{evidence.name}: {sentence(check)}: {str(problem) or 'no'}".replace("\n", " ")


def available(wanted: Sequence[RealClient]) -> tuple[str, list[RealClient], list[str]]:
    """The Node that runs them, those that are installed now, and why others are not."""
    node, had, missing = "", [], []
    try:
        node = install_from_npm([client.package for client in wanted if client.is_from_npm])
        had = [client for client in wanted if client.is_from_npm]
    except NotAvailable as problem:
        missing.append(f"no client from npm, because {problem}")
    for client in wanted:
        if not client.is_from_npm:
            try:
                install_from_pypi(client.package)
                had.append(client)
            except NotAvailable as problem:
                missing.append(f"no {client.title}, because {problem}")
    return node, had, missing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients")
    parser.add_argument("--if-possible", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("clients", nargs="*")
    options = parser.parse_args()
    names = SHORT if options.short else options.clients or [client.name for client in CLIENTS]
    if unknown := set(names) - {client.name for client in CLIENTS}:
        parser.error(f"no such client: {', '.join(unknown)}")
    began = time.monotonic()
    node, wanted, missing = available([client for client in CLIENTS if client.name in names])
    print(f"clients: installed in {time.monotonic() - began:.0f} s")
    for line in missing:
        print(f"clients: {line}")
    failed = not options.if_possible and bool(missing)
    for client in wanted:
        began = time.monotonic()
        found = list(problems(gather(client, node), [*CHECKS, *PROMISES]))
        failed = failed or bool(found)
        checked = len(CHECKS) + len(PROMISES)
        print(f"clients: {client.title}: {checked - len(found)} of {checked} hold ({time.monotonic() - began:.0f} s)")
        for line in found:
            print(f"  {line[:700]}")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
