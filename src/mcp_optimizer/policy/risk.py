"""The risk class of a tool: what it may do at worst, and what says so. Called by `access` for every decision.

The operator's word counts first, then the server's annotations, then the verbs of the name. A server may make its tool
look worse, but not better than a name that plainly deletes. Pure, with a bounded memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from mcp_optimizer.domain.decisions import RiskClass
from mcp_optimizer.domain.globs import glob
from mcp_optimizer.domain.naming import SEPARATOR
from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.policy.verbs_of_names import LONGEST_READ, said_by

LONGEST_REMEMBERED = 300
"""Characters of a name that is worth remembering. A server may not fill the memory with longer ones."""

UNKNOWN = RiskClass(Risk.WRITE, "default")


def risk_of(server: str, name: str, annotations: object, overrides: Mapping[str, Risk]) -> RiskClass:
    """The class of a server's tool."""
    return overridden(server, name, overrides) or risk_by_definition(name, annotations)


def overridden(server: str, name: str, overrides: Mapping[str, Risk]) -> RiskClass | None:
    """The class that the operator gave the tool: that of the first pattern that matches.

    A pattern with `__` is about `server__tool`, any other about the tool's own name. So no server can use a setting
    that was meant for another one by putting that server's name into its tool's. But `a__b__c` is about the tool `b__c`
    of server `a` as well as about `c` of `a__b`.
    """
    qualified = f"{server}{SEPARATOR}{name}"
    for pattern, risk in overrides.items():
        if glob(pattern).matches(qualified if SEPARATOR in pattern else name):
            return RiskClass(risk, "override")
    return None


def risk_by_definition(name: str, annotations: object) -> RiskClass:
    """The class that a tool's own definition gives it."""
    read_only = destructive = None
    if annotations and isinstance(annotations, Mapping):
        read_only, destructive = _flag(annotations.get("readOnlyHint")), _flag(annotations.get("destructiveHint"))
    decided = _remembered if len(name) <= LONGEST_REMEMBERED else by_definition
    return decided(name, read_only, destructive)


def by_definition(name: str, read_only: bool | None, destructive: bool | None) -> RiskClass:
    """The class that name and hints give; None is a hint that was not given.

    A name that is too long to be read may say anything at its end, so its tool does not count as one that only reads.
    """
    found = _by_what_is_read(name, read_only, destructive)
    return UNKNOWN if len(name) > LONGEST_READ and found.risk is Risk.READ else found


def _by_what_is_read(name: str, read_only: bool | None, destructive: bool | None) -> RiskClass:
    said = said_by(name)
    claimed = _claimed(read_only, destructive)
    if claimed is None:
        return _unclaimed(said.risk if said else None, read_only, destructive)
    if said is not None and claimed is not Risk.DESTRUCTIVE:
        contradicts = said.removes if claimed is Risk.READ else said.plainly_deletes
        if contradicts:
            return RiskClass(Risk.DESTRUCTIVE, "name")
    return RiskClass(claimed, "annotations")


_remembered = lru_cache(maxsize=50_000)(by_definition)


def _claimed(read_only: bool | None, destructive: bool | None) -> Risk | None:
    """What the annotations alone say; None if they leave it open."""
    if read_only:
        # The protocol gives destructiveHint no meaning for a tool that only reads.
        return Risk.READ
    if destructive:
        return Risk.DESTRUCTIVE
    return Risk.WRITE if read_only is False and destructive is False else None


def _unclaimed(said: Risk | None, read_only: bool | None, destructive: bool | None) -> RiskClass:
    if read_only is False:
        return RiskClass(Risk.DESTRUCTIVE, "name") if said is Risk.DESTRUCTIVE else RiskClass(Risk.WRITE, "annotations")
    if said is not None:
        return RiskClass(said, "name")
    return UNKNOWN if destructive is None else RiskClass(Risk.WRITE, "annotations")


def _flag(value: object) -> bool | None:
    """A hint as the protocol defines it; anything but true and false is as good as none."""
    return value if isinstance(value, bool) else None
