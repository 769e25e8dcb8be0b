"""python -m tests.clients.ledger [CLIENT ...]: the saving that we claim, against the requests that a client logged.

Each client does the same work twice: with its servers in its own file, and with mcp-optimizer in their place. A
scripted model logs each request. What the second run sent less is the truth; the report of its gateway is the claim.
Without names, measures every client of which savings of definitions are claimed, and writes
`benchmarks/results/ledger.md`; with names, prints their rows.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer_demo import demo_server_commands
from tests.clients.__main__ import available
from tests.clients.bench import SHOP, Bench
from tests.clients.endpoint import Call, Conversation, Endpoint
from tests.clients.installing import FOLDER
from tests.clients.programs import CLIENTS, OUR_NAME, RealClient
from tests.clients.story import find, reading

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "ledger.md"
COUNTED = ("gemini", "opencode", "continue", "kimi")
THINKING = 0.3
"""Seconds that the model takes for an answer; a real one takes longer."""
WORK = ("list_orders", "shop_status", "shop_status", "shop_status")
_HEAD = """# The ledger against logged requests

`python -m tests.clients.ledger` (clients from npm, in the versions of `tests/clients/versions.toml`)

Each client did the same work twice, with the demo's three servers and one more: four calls, one
of which returns 640 rows. Tokens (cl100k_base, compact JSON) of all requests that offered tools, as a scripted model
logged them, and the saving
that `mcp-optimizer report` claims for the second run. The claim is never to be above the truth.

| client | direct | through us | sent less | claimed | share |
|---|---:|---:|---:|---:|---:|
"""


def total(held: Conversation, counter: TokenCounter) -> int:
    """The tokens of all requests of a conversation; those for a title or a summary offer no tools."""
    bodies = [dict(one.body) for one in held.asked if one.offered]
    return sum(counter.count_tokens(json.dumps(body, ensure_ascii=False, separators=(",", ":"))) for body in bodies)


def slowly(steps: Sequence[Call]) -> list[Call]:
    """The same steps, by a model that has to think."""
    import threading

    pause = threading.Event()
    return [replace(step, before=lambda: pause.wait(THINKING)) for step in steps]


def measured(bench: Bench, counter: TokenCounter) -> str:
    client, servers = bench.client, {**demo_server_commands(), SHOP: bench.lab()}
    bench.set_up(servers)
    directly = slowly([Call((name,)) for name in WORK])
    direct = bench.ask("direct", directly, client.patient(servers), client.waits).held
    bench.optimizer("import", client.name, "--move", "--yes")
    bench.optimizer("connect", client.name, "--yes", "--file")
    # Once, so that everything is known, as on every day after the first.
    bench.optimizer("tools")
    through = slowly([find(), *(reading(name) for name in WORK)])
    ours = bench.ask("through us", through, (*client.trusting, *client.patient(OUR_NAME)), client.waits).held
    printed = bench.optimizer("report", "--json").printed
    # What it says on stderr comes first.
    claimed = claim_of(json.JSONDecoder().raw_decode(printed[printed.index("{") :])[0])
    before, after = total(direct, counter), total(ours, counter)
    missing = f" (missing: {', '.join([*direct.missing, *ours.missing])})" if direct.missing or ours.missing else ""
    truth = before - after
    return (
        f"| {client.title}{missing} | {before:,} | {after:,} | {truth:,} | {claimed:,} | "
        f"{claimed / truth * 100 if truth else 0:.0f} % |"
    )


def claim_of(report: dict[str, object]) -> int:
    """The tokens that a report says were saved, at full price."""
    usage = report["usage"]
    assert isinstance(usage, dict), "no use was recorded"
    saved = usage["savings"]["uncached"]["saved"]
    return int(saved)


def main() -> int:
    names = sys.argv[1:] or COUNTED
    wanted: list[RealClient] = [client for client in CLIENTS if client.name in names]
    node, had, missing = available(wanted)
    counter, lines = TokenCounter(), []
    for client in had:
        folder = FOLDER / "runs" / f"ledger-{client.name}"
        shutil.rmtree(folder, ignore_errors=True)
        with Endpoint(folder / "requests").running() as endpoint:
            lines.append(measured(Bench(client, node, folder / "user", endpoint), counter))
        print(lines[-1], flush=True)
    for line in missing:
        print(f"clients: {line}")
    if not sys.argv[1:]:
        RESULTS.write_text(_HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
