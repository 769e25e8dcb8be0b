"""python -m tests.clients.permitted: what a user permits in a client holds after `import --move` and `connect`.

The same three calls, first with the servers in the client's own file and then through us, without a person who could
be asked: of a tool that is permitted, of one that the user wants to be asked about, and of one that is forbidden. What
the server did says what got through. Writes `benchmarks/results/permissions_kept.md`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.clients.__main__ import available
from tests.clients.bench import SHOP, Bench
from tests.clients.endpoint import Call, Endpoint
from tests.clients.installing import FOLDER
from tests.clients.programs import CLIENTS, OUR_NAME
from tests.clients.story import changing
from tests.clients.table import version_of

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "permissions_kept.md"
NAMES = ("claude-code", "codex")
CALLS: dict[str, dict[str, Any]] = {
    "write_note": {"text": "hello"},
    "refund_order": {"order_id": 7},
    "delete_orders": {},
}
ASKED, FORBIDDEN = f"{SHOP}/refund_order", f"{SHOP}/delete_orders"
_ASKS_BY_TOOL = ("claude-code",)
_HEAD = """# Permissions, before and after a move

`python -m tests.clients.permitted`

The same calls by a scripted model in real clients, first with the server in the client's own file, then after
`import --move` and `connect`, with nobody who could be asked. What the server did:

| client | tool | the user's permission | directly | through us |
|---|---|---|---|---|
"""


def done(bench: Bench, name: str, steps: Sequence[Call], waits_for: Sequence[str]) -> list[str]:
    """The tools that the server ran in one conversation."""
    before = len(bench.did(f"{SHOP} did "))
    client = bench.client
    bench.ask(name, steps, (*client.trusting, *client.patient(waits_for)), client.waits)
    return [line.split()[2] for line in bench.did(f"{SHOP} did ")[before:]]


def compared(bench: Bench) -> tuple[list[str], list[str]]:
    asked = ASKED if bench.client.name in _ASKS_BY_TOOL else ""
    bench.set_up({SHOP: bench.lab()}, FORBIDDEN, asked)
    directly = done(bench, "directly", [Call((tool,), arguments) for tool, arguments in CALLS.items()], [SHOP])
    for command in ("import", "--move"), ("connect", "--file"):
        ended = bench.optimizer(command[0], bench.client.name, command[1], "--yes")
        assert ended.code == 0, ended.printed
    steps = [changing(tool, **arguments) for tool, arguments in CALLS.items()]
    return directly, done(bench, "through us", steps, OUR_NAME)


def main() -> int:
    node, clients, missing = available([client for client in CLIENTS if client.name in NAMES])
    lines, differ = [], bool(missing)
    for client in clients:
        folder = FOLDER / "runs" / f"permitted-{client.name}"
        shutil.rmtree(folder, ignore_errors=True)
        with Endpoint(folder / "requests").running() as endpoint:
            directly, through_us = compared(Bench(client, node, folder / "user", endpoint))
        permissions = {"delete_orders": "forbidden"}
        if client.name in _ASKS_BY_TOOL:
            permissions["refund_order"] = "ask"
        for tool in CALLS:
            told = ["ran" if tool in ran else "did not run" for ran in (directly, through_us)]
            permission = permissions.get(tool, "permitted")
            lines.append(f"| {client.title} {version_of(client)} | `{tool}` | {permission} | {' | '.join(told)} |")
            differ = differ or told[0] != told[1]
    print(*lines, *missing, sep="\n")
    RESULTS.write_text(_HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
