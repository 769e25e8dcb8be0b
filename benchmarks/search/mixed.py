"""Measures find_tool where servers overlap, where nothing fits, and in other languages.

    python -m benchmarks.search.mixed [--encoder NAME] [--misses] [--only overlap refusal languages]

The catalog is that of a person with 28 servers (568 tools, real definitions from ../shared/data); the requests in
`sets/` were written by hand for this project, and nothing is trained on them. Requests go through the gateway as a
model's do, and what counts is the reply that the model reads: a tool is in sight if the reply shows or names it.

In `languages.jsonl`, every second line was not looked at while the lexicon was written ("held out").
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.catalogs import new_catalog, new_gateway, running

from benchmarks.paths import DUMPS
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.gateway.found_tools import FoundTools
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.search.actions import asks_to_destroy, destroys
from mcp_optimizer.search.encoders.choose import load_encoder
from mcp_optimizer.search.engine import Encoder
from mcp_optimizer.search.words import words

SETS = Path(__file__).parent / "sets"
LANGUAGES = ("en", "de", "es", "fr", "pt", "ja", "zh")
FIVE = 5


async def gateway_of_many_servers(encoder: Encoder | None) -> Gateway:
    """The gateway over the servers of `sets/catalog.json`."""
    return await gateway_of(json.loads((SETS / "catalog.json").read_text(encoding="utf-8")), encoder)


async def gateway_of(servers: Mapping[str, str], encoder: Encoder | None) -> Gateway:
    """A gateway over servers, given by name with the files of their definitions."""
    catalog = new_catalog()
    for name, dump in servers.items():
        listed = json.loads((DUMPS / f"{dump}.json").read_text(encoding="utf-8"))["tools"]
        catalog.on_state(running(name, *map(McpTool.model_validate, listed)))
    await catalog.use_encoder(encoder)
    await catalog.caught_up()
    return new_gateway(catalog)


def lines(name: str) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, (SETS / name).read_text(encoding="utf-8").splitlines())


def unanswered() -> list[str]:
    """The requests that no tool of the catalog does."""
    read = (SETS / "unanswered.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in read if line and not line.startswith("#")]


@dataclass(frozen=True)
class Reply:
    """What a model reads: the tools, best first, and further ones that are only named."""

    request: str
    tools: tuple[str, ...]
    named: frozenset[str]
    note: str
    text: str
    is_refused: bool
    """Whether it says that no tool fits; the nearest are shown all the same."""

    @classmethod
    def of(cls, gateway: Gateway, request: str) -> Reply:
        found = gateway.find(request, detail=Detail.SIGNATURE)
        tools = tuple(f"{hit.tool.server}/{hit.tool.record.name}" for hit in found.tools)
        return cls(request, tools, frozenset(_named(found)), found.note, found.text, not found.fits)

    @property
    def in_sight(self) -> frozenset[str]:
        return self.named | frozenset(self.tools)

    @property
    def destroys_unasked(self) -> bool:
        """Whether a tool that deletes is first although the request does not ask for it."""
        asked = asks_to_destroy(words(self.request))
        return bool(self.tools) and not asked and destroys(words(self.tools[0].split("/", 1)[1]))


def _named(found: FoundTools) -> Iterator[str]:
    """The further tools that the text names."""
    line = next((line for line in found.text.splitlines() if line.startswith("more: ")), "")
    said = frozenset(re.findall(r"[^\s,()\[\]]+", line))
    yield from (
        f"{tool.server}/{tool.record.name}" for tool in (*found.counterparts, *found.further) if tool.name in said
    )


def overlap(gateway: Gateway, *, says_misses: bool) -> None:
    shares, whole, first, destroying, count = [], [], [], 0, 0
    for line in lines("overlap.jsonl"):
        reply = Reply.of(gateway, line["request"])
        met = [bool(reply.in_sight.intersection(group)) for group in line["meant"]]
        any_meant = {tool for group in line["meant"] for tool in group}
        right = set(line.get("first") or any_meant)
        shares.append(sum(met) / len(met))
        whole.append(all(met))
        first.append(bool(reply.tools) and reply.tools[0] in right)
        destroying += reply.destroys_unasked
        count += 1
        if says_misses and not (whole[-1] and first[-1]):
            unseen = [group[0] for group, is_met in zip(line["meant"], met, strict=True) if not is_met]
            print("  ", line["request"], "|", *reply.tools, "| named", *sorted(reply.named), "| unseen", *unseen)
    print(
        f"overlap: {count} requests; right first {np.mean(first):.3f}; servers that could be meant in sight "
        f"{np.mean(shares):.3f}, all of them {np.mean(whole):.3f}; deleting tool first unasked {destroying}"
    )


def refusal(gateway: Gateway, *, says_misses: bool) -> None:
    replies = [Reply.of(gateway, request) for request in unanswered()]
    kept = [reply for reply in replies if not reply.is_refused]
    as_general = sum("No special tool" in reply.text for reply in kept)
    print(
        f"refusal: {len(replies)} requests that no tool does; refused {1 - len(kept) / len(replies):.3f}; "
        f"answered with general-purpose tools {as_general}, plainly {len(kept) - as_general}; deleting tool first "
        f"{sum(destroys(words(r.tools[0].split('/', 1)[1])) for r in replies if r.is_refused and r.tools)}"
    )
    if says_misses:
        for reply in kept:
            print("  ", reply.request, "|", *reply.tools, "|", "general" if "No special tool" in reply.text else "")
    rows = [(line, Reply.of(gateway, line["request"])) for line in lines("answered.jsonl")]
    refused = [reply.request for _, reply in rows if reply.is_refused]
    first = np.mean([{*reply.tools[:1]} <= {*line["right"]} and bool(reply.tools) for line, reply in rows])
    five = np.mean([bool({*reply.tools[:FIVE]} & {*line["right"]}) for line, reply in rows])
    print(
        f"answered: {len(rows)} requests that a tool does; refused {len(refused) / len(rows):.3f}; right first "
        f"{first:.3f}, in five {five:.3f}; deleting tool first unasked {sum(r.destroys_unasked for _, r in rows)}"
    )
    if says_misses:
        for line, reply in rows:
            if reply.is_refused or not {*reply.tools[:FIVE]} & {*line["right"]}:
                print("  ", "refused" * reply.is_refused, line["request"], "|", *reply.tools, "| right", *line["right"])


def languages(gateway: Gateway, *, says_misses: bool) -> None:
    rows: dict[tuple[str, bool], list[tuple[bool, bool, bool]]] = defaultdict(list)
    for number, line in enumerate(lines("languages.jsonl")):
        held_out = number % 2 == 1
        for language in LANGUAGES:
            reply, right = Reply.of(gateway, line[language]), set(line["right"])
            row = (reply.tools[:1] != () and reply.tools[0] in right, bool(right & {*reply.tools[:FIVE]}))
            rows[language, held_out].append((*row, reply.is_refused))
            if says_misses and not held_out and language != "en" and not row[0]:
                print("  ", language, line[language], "|", *reply.tools, "| right", *line["right"])
    print(f"{'language':10}{'first':>8}{'in five':>9}{'refused':>9}   held out: first, in five")
    for language in LANGUAGES:
        every, held = rows[language, False] + rows[language, True], rows[language, True]
        figures, apart = np.mean(every, axis=0), np.mean(held, axis=0)
        print(
            f"{language:10}{figures[0]:8.3f}{figures[1]:9.3f}{figures[2]:9.3f}   {apart[0]:.3f} {apart[1]:.3f} "
            f"({len(every)} requests, {len(held)} held out)"
        )


PARTS = {"overlap": overlap, "refusal": refusal, "languages": languages}


async def measure(encoder: Encoder | None, parts: Sequence[str], *, says_misses: bool) -> None:
    gateway = await gateway_of_many_servers(encoder)
    for part in parts:
        PARTS[part](gateway, says_misses=says_misses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="bundled")
    parser.add_argument("--misses", action="store_true", help="print every request that is not answered as wished")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    asyncio.run(measure(load_encoder(options.encoder), options.only, says_misses=options.misses))


if __name__ == "__main__":
    main()
