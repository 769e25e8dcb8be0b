"""How many real tools get a note of `trust list`, and what pinning a listing costs.

    python -m benchmarks.definitions.trust_notes

Checks all dumps for hidden characters, encoded shell commands and clones, and hashes all definitions.
"""

from __future__ import annotations

import json
import time
from collections import Counter

from benchmarks.paths import DUMPS
from mcp_optimizer.access.trust.pins import pin_of
from mcp_optimizer.access.trust.review import clones, notes_on
from mcp_optimizer.upstream.listing import read_dumps


def main() -> None:
    definitions = [(server, one) for server, listing in read_dumps(DUMPS) for one in listing.tools]
    tools = [((server, one.name), json.loads(one.wire_json)) for server, one in definitions]
    notes = Counter(note for _, tool in tools for note in notes_on(tool))
    for key, tool in tools:
        for note in notes_on(tool):
            print(f"{note}: {key[1]} of {key[0]}")
    alike = clones((key, tool.get("description") or "") for key, tool in tools)
    servers = {key[0] for key in alike}
    print(f"{len(tools):,} tools; notes: {dict(notes)}; {len(alike)} tools of {len(servers)} servers are clones")
    started = time.perf_counter()
    for _, one in definitions:
        pin_of(one)
    print(f"hashing a definition: {(time.perf_counter() - started) / len(definitions) * 1e6:.0f} µs")


if __name__ == "__main__":
    main()
