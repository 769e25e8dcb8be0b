"""Writes what several signatures of one reply have in common only once. Pure.

A note on a parameter is dropped if an earlier tool has it word for word, and so is a named type that an earlier tool
spells out and no tool in the reply spells differently. Names and types of parameters are never dropped. JSON Schemas
cannot share this way: a `$ref` may only point inside its own document.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from mcp_optimizer.compression.signature import NOTE_MARK

_TYPE = re.compile(r"(\w+) = ")
_AS_ABOVE = "as above"


def say_once(signatures: Sequence[str]) -> list[str]:
    """The same signatures, without what an earlier one has said."""
    spelled: dict[str, set[str]] = defaultdict(set)
    for signature in signatures:
        for name, block in _named_types(signature):
            spelled[name].add(block)
    said: set[str] = set()
    written = []
    for signature in signatures:
        parts = []
        for name, block in _parts(signature):
            if name and block in said and len(spelled[name]) == 1:
                parts.append(f"{name} = {_AS_ABOVE}")
            else:
                lines = block.split("\n")
                parts += [line.partition(NOTE_MARK)[0] if line in said else line for line in lines]
                said.update(line for line in lines if NOTE_MARK in line)
            if name:
                said.add(block)
        written.append("\n".join(parts))
    return written


def _named_types(signature: str) -> list[tuple[str, str]]:
    return [(name, block) for name, block in _parts(signature) if name]


def _parts(signature: str) -> list[tuple[str, str]]:
    """The lines, with those of a named type grouped under its name."""
    parts: list[tuple[str, str]] = []
    # The first line is the description, or begins with it.
    for number, line in enumerate(signature.split("\n")):
        name = match.group(1) if number and (match := _TYPE.match(line)) else ""
        if parts and parts[-1][0] and line.startswith(" "):
            parts[-1] = (parts[-1][0], f"{parts[-1][1]}\n{line}")
        else:
            parts.append((name, line))
    return parts


def fair_share(costs: Sequence[int], most: int) -> int:
    """The maximum cost per form so that all together cost at most `most`; small ones stay unchanged."""
    left = most
    for taken, cost in enumerate(sorted(costs)):
        share = left // (len(costs) - taken)
        if cost > share:
            return share
        left -= cost
    return most
