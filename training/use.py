"""Measures learning from use: `python -m training.use [--encoder NAME]`.

A made-up user of the `written_dev` servers. For each tool, three of its four requests were searched before; where the
product returned the tool, it was called. The fourth request is then searched, without and with what was learned.
`others` is the same with nothing learned about the request's own tool, so that use can only do harm.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mcp_optimizer.catalog.learned_use import UseTable
from mcp_optimizer.search.encoders.choose import load_encoder
from mcp_optimizer.search.engine import Encoder, SearchIndex
from mcp_optimizer.search.lexical import Floats
from mcp_optimizer.search.words import terms
from training import lists, sets, written

LIMIT = 8
MOST_PAIRS = 100_000


@dataclass(frozen=True)
class Searched:
    """One request, the position of its tool, and the tools that the product returns for it."""

    text: str
    tool: int
    kind: str
    found: tuple[int, ...]


class User:
    """Searches one catalog, and remembers what was called."""

    def __init__(self, where: lists.Catalog) -> None:
        self.index: SearchIndex = where.index
        self.names = [(identity.split("::")[0], identity.split("::")[1]) for identity in where.ids]
        self.table = UseTable(b"measured", MOST_PAIRS)
        self._allowed = np.ones(len(where.ids), dtype=np.bool_)

    def search(self, text: str, *, with_use: bool) -> tuple[int, ...]:
        def prior(positions: Sequence[int]) -> Floats | None:
            return self.table.prior(terms(text), [self.names[at] for at in positions])

        found = self.index.search(text, "", self._allowed, LIMIT, prior if with_use else None)
        return tuple(hit.position for hit in found.hits)

    def call(self, searched: Searched) -> None:
        if searched.tool in searched.found:
            self.table.count(terms(searched.text), self.table.tool(*self.names[searched.tool]))


def requests(where: lists.Catalog, user: User) -> list[Searched]:
    """Every written request of the catalog."""
    at = {identity: position for position, identity in enumerate(where.ids)}
    found = []
    for one in written.read(sets.written_folder()):
        position = at.get(f"{one.server}::{one.tool}")
        if written.is_dev(one.server) and position is not None:
            found += [
                Searched(text, position, kind, user.search(text, with_use=False))
                for kind, text in zip(written.KINDS, one.requests, strict=False)
            ]
    return found


def shares(found: Sequence[tuple[int, tuple[int, ...]]]) -> dict[str, float]:
    """How often the tool is first, and among the first five."""
    first = np.mean([bool(hits) and hits[0] == tool for tool, hits in found])
    five = np.mean([tool in hits[:5] for tool, hits in found])
    return {"first": round(float(first), 4), "five": round(float(five), 4)}


def measure(encoder: Encoder | None) -> dict[str, dict[str, float]]:
    """Without use, with it, and with use of other tools only; over all kinds of requests left out in turn."""
    servers = sorted({one.server for one in written.read(sets.written_folder()) if written.is_dev(one.server)})
    where = lists.catalog(servers, encoder)
    asked = requests(where, User(where))
    rows: dict[str, list[tuple[int, tuple[int, ...]]]] = {"without": [], "with use": [], "others": []}
    for kind in written.KINDS:
        user, left_out = User(where), [one for one in asked if one.kind == kind]
        for one in asked:
            if one.kind != kind:
                user.call(one)
        rows["without"] += [(one.tool, one.found) for one in left_out]
        rows["with use"] += [(one.tool, user.search(one.text, with_use=True)) for one in left_out]
    rows["others"] = _with_others(where, asked)
    return {name: shares(found) for name, found in rows.items()}


def _with_others(where: lists.Catalog, asked: Sequence[Searched]) -> list[tuple[int, tuple[int, ...]]]:
    """Half of the tools were used, and the requests for the other half are searched; then the other way round."""
    found = []
    for half in (0, 1):
        user = User(where)
        for one in asked:
            if one.tool % 2 != half:
                user.call(one)
        found += [(one.tool, user.search(one.text, with_use=True)) for one in asked if one.tool % 2 == half]
    return found


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="bundled")
    options = parser.parse_args()
    print(json.dumps(measure(load_encoder(options.encoder)), indent=1))


if __name__ == "__main__":
    main()
