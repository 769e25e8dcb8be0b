"""How often find_tool says that no tool fits, where none does and where one does.

    python -m benchmarks.search.refusal [--encoder NAME] [--misses]

Three catalogs of 15 to 20 real servers (`sets/refusal/catalogs.json`); 180 requests that none of their tools does,
written by hand before anything was measured on them (`sets/refusal/unanswered.txt`); and the requests that were written
for the tools of servers that nothing was trained on (`../shared/data/retrieval/written`). Of both, every first request
chose weights and threshold (`training/doubt.py`), and every second one is measured here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.search.mixed import SETS, Reply, gateway_of
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.search.encoders.choose import load_encoder
from mcp_optimizer.search.engine import Encoder
from training import sets, written

REFUSAL = SETS / "refusal"


@dataclass(frozen=True)
class Request:
    """A request to one of the catalogs. `right`: the tool that does it, if any; `kind`: how it is worded, A to D."""

    text: str
    right: str = ""
    kind: str = ""
    chooses: bool = False
    """Whether weights and threshold were learned from it."""


def catalogs() -> Mapping[str, Mapping[str, str]]:
    """The servers of each catalog: their names, and the files with their definitions."""
    found: Mapping[str, Mapping[str, str]] = json.loads((REFUSAL / "catalogs.json").read_text(encoding="utf-8"))
    return found


def unanswered(catalog: str) -> list[Request]:
    """The requests that no tool of a catalog does."""
    text = (REFUSAL / "unanswered.txt").read_text(encoding="utf-8")
    lines = text.split(f"[{catalog}]\n", 1)[1].split("\n[", 1)[0].splitlines()
    return [Request(line, chooses=at % 2 == 0) for at, line in enumerate(lines)]


def answered(catalog: str) -> Iterator[Request]:
    """The requests written for the tools of a catalog's held-out servers."""
    by_server: dict[str, list[written.Written]] = {}
    for one in written.read(sets.data_folder() / "retrieval" / "written"):
        by_server.setdefault(one.server, []).append(one)
    for name, dump in catalogs()[catalog].items():
        for at, one in enumerate(by_server.get(dump, ()) if written.is_dev(dump) else ()):
            for kind, text in zip(written.KINDS, one.requests, strict=False):
                yield Request(text, f"{name}/{one.tool}", kind, at % 2 == 0)


def measure(gateway: Gateway, catalog: str, *, says_misses: bool) -> tuple[list[bool], list[bool]]:
    """Which of the unanswered and of the answered requests are refused."""
    refused = [(one, Reply.of(gateway, one.text)) for one in unanswered(catalog) if not one.chooses]
    kept = [(one, Reply.of(gateway, one.text)) for one in answered(catalog) if not one.chooses]
    if says_misses:
        for one, reply in (*refused, *kept):
            if reply.is_refused == bool(one.right):
                print("  ", "refused:" if one.right else "answered:", one.text, "|", *reply.tools, "| right", one.right)
    rows = [reply.is_refused for _, reply in refused], [reply.is_refused for _, reply in kept]
    five = np.mean([one.right in reply.tools[:5] for one, reply in kept])
    seen = np.mean([one.right in reply.tools for one, reply in kept if reply.is_refused] or [True])
    print(
        f"{catalog:10} unanswered: {len(rows[0])}, refused {np.mean(rows[0]):.3f}; answered: {len(rows[1])}, refused "
        f"{np.mean(rows[1]):.4f} (right tool still shown {seen:.2f}), right in five {five:.3f}"
    )
    return rows


async def run(encoder: Encoder | None, *, says_misses: bool) -> None:
    found = [
        measure(await gateway_of(servers, encoder), name, says_misses=says_misses)
        for name, servers in catalogs().items()
    ]
    unmet, met = (np.concatenate(rows) for rows in zip(*found, strict=True))
    print(f"together   unanswered refused {np.mean(unmet):.3f}; answered refused {np.mean(met):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="bundled")
    parser.add_argument("--misses", action="store_true", help="print every request that is not answered as wished")
    options = parser.parse_args()
    asyncio.run(run(load_encoder(options.encoder), says_misses=options.misses))


if __name__ == "__main__":
    main()
