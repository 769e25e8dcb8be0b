"""Determines the risk class of a tool, the worst it may do, and its source. Called by `policy` for each decision. Pure.

The operator's setting counts first, then the server's annotations, then the verbs in the name. Annotations may make a
tool look worse than its name, but not better. Words that are nearly always verbs decide first; words that are as often
nouns (`run`, `status`) decide only if the name has no other verb.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mcp_optimizer.domain.caller import Risk, RiskClass
from mcp_optimizer.domain.globs import glob
from mcp_optimizer.domain.naming import SEPARATOR
from mcp_optimizer.domain.verbs import DELETING
from mcp_optimizer.runtime.patterns import regex

LONGEST_READ: Final = 1_000
"""Characters read of a name."""

_READ: Final = frozenset(
    "get list read show view fetch retrieve describe inspect search find query lookup locate grep browse enumerate "
    "count calculate compute compare diff validate verify lint analyze analyse diagnose summarize explain detect "
    "extract discover download check ping peek introspect estimate suggest recommend aggregate scrape crawl observe "
    "classify decode explore".split()
)
_WRITE: Final = frozenset(
    "create add make generate insert register compose write author put init initialize provision invite save store "
    "remember upload update edit change modify set rename replace adjust assign unassign move configure reconfigure "
    "toggle send reply notify publish unpublish submit execute launch invoke perform deploy redeploy restart manage "
    "import copy clone duplicate restore apply install upgrade enable disable approve attach detach click press fill "
    "navigate connect disconnect subscribe unsubscribe append resize sync start stop pause resume suspend upsert post "
    "patch convert close reopen archive unarchive reject mute unmute follow unfollow join leave pin unpin lock unlock "
    "grant merge commit push rebase checkout stage unstage buy sell pay transfer refund enqueue forget mark retry fork "
    "stash split suppress rebuild login logout untag".split()
)
_PLAIN_DELETES: Final = frozenset("delete erase purge destroy drop uninstall wipe trash truncate shred del rm".split())
"""Verbs that no harmless tool has. `remove` is not one of them: a label may be removed."""
_REMOVES: Final = (_PLAIN_DELETES | frozenset(DELETING.split())) - _WRITE
_DESTRUCTIVE: Final = _REMOVES | frozenset(
    "overwrite empty reset kill terminate cancel eval exec bash shell terminal".split()
)
_NOUNS_AT_THE_END: Final = frozenset({"trash", "drop", "reset", "shell", "terminal"})
"""Verbs that are nouns at the end of a name: `list_trash`."""
_NOUNS_IN_THE_MIDDLE: Final = frozenset({"list", "view", "query", "store", "post", "set"})
"""Verbs that are nouns if another verb follows: `shopping_list_delete_item`."""

_NOUNS_TOO: Final = {
    Risk.READ: frozenset(
        "display print info details status preview overview history stats statistics health log logs export load "
        "filter match sum total monitor watch wait tail review audit scan trace screenshot report summary help version "
        "schema metrics usage parse translate geocode who what which all me my whoami current latest top trending "
        "directions weather forecast time price quote docs documentation guide instructions tree blame ask research "
        "getter searcher explorer reader".split()
    ),
    Risk.WRITE: frozenset(
        "new build setup draft book schedule switch fix forward email share broadcast comment run trigger call play "
        "link block type refresh power tag label message chat tweet mail record request action bulk batch drag hover "
        "select tap swipe scroll open resolve".split()
    ),
}
_EXECUTES: Final = frozenset({"run", "execute", "invoke", "call", "send", "use"})
_PROGRAMS: Final = frozenset(
    "command commands cmd shell bash terminal script scripts code python javascript js sql cypher powershell "
    "applescript osascript tool tools".split()
)
_JOINS: Final = frozenset({"and", "or", "then"})

_WORD = regex(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


@dataclass(frozen=True)
class NameRisk:
    """The class that the verbs in a name imply."""

    risk: Risk
    removes: bool = False
    """Whether a verb says that something is removed. No tool that only reads has such a verb."""
    plainly_deletes: bool = False
    """Whether the name leaves no doubt that the tool deletes."""


def risk_of_name(name: str) -> NameRisk | None:
    """The class that a name implies, or None if it has no known word."""
    words = [word.lower() for word in _WORD.findall(_as_read(name[:LONGEST_READ]))]
    verbs = set(_verbs(words))
    if _runs_a_program(words):
        return NameRisk(Risk.DESTRUCTIVE, bool(verbs & _REMOVES), bool(verbs & _PLAIN_DELETES))
    if not verbs:
        weak = _weak(words)
        return NameRisk(weak) if weak is not None else None
    worst = max((risk for verb in verbs if (risk := _strong(verb)) is not None), key=lambda risk: risk.rank)
    return NameRisk(worst, bool(verbs & _REMOVES), bool(verbs & _PLAIN_DELETES))


def _as_read(name: str) -> str:
    """A name as a person reads it: without invisible characters, and with a full-width "delete" as "delete"."""
    if name.isascii():
        return name
    visible = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", visible)


def _verbs(words: list[str]) -> Iterator[str]:
    """The verbs that count: the first, one at the end of the name, and those after "and", "or" or "then"."""
    places = [place for place, word in enumerate(words) if _strong(word) is not None]
    if "drag" in words:
        places = [place for place in places if words[place] != "drop"]
    if len(places) > 1 and places[-1] == len(words) - 1 and words[-1] in _NOUNS_AT_THE_END:
        places.pop()
    if not places:
        return
    first = next((at for at in places if at == 0 or words[at] not in _NOUNS_IN_THE_MIDDLE), places[0])
    yield words[first]
    # `get_data_set` only reads, `mailing_list_add` does not: a name that starts with its verb may end in a noun.
    if places[-1] == len(words) - 1 and (first > 0 or words[-1] in _DESTRUCTIVE):
        yield words[-1]
    for at in places:
        if at > 0 and words[at - 1] in _JOINS:
            yield words[at]


def _strong(word: str) -> Risk | None:
    if word in _READ:
        return Risk.READ
    if word in _WRITE:
        return Risk.WRITE
    return Risk.DESTRUCTIVE if word in _DESTRUCTIVE else None


def _runs_a_program(words: list[str]) -> bool:
    """Whether a tool runs any command it is given, as `run_command`, `execute_sql` or another gateway's `call_tool` do:
    it counts as destructive.
    """
    place = next((at for at, word in enumerate(words) if word in _EXECUTES), None)
    return place is not None and any(word in _PROGRAMS for word in words[place + 1 :])


def _weak(words: list[str]) -> Risk | None:
    """The class by words that may be nouns: read if the name ends in something to read, otherwise the worst of all."""
    if words and words[-1] in _NOUNS_TOO[Risk.READ]:
        return Risk.READ
    return next((risk for risk in (Risk.WRITE, Risk.READ) if not _NOUNS_TOO[risk].isdisjoint(words)), None)


LONGEST_REMEMBERED = 300
"""Maximum characters of a name whose class is cached: a server must not fill the memory with longer names."""

UNKNOWN = RiskClass(Risk.WRITE, "default")


def risk_of(server: str, name: str, annotations: object, overrides: Mapping[str, Risk]) -> RiskClass:
    """The class of a server's tool."""
    return overridden(server, name, overrides) or risk_by_definition(name, annotations)


def overridden(server: str, name: str, overrides: Mapping[str, Risk]) -> RiskClass | None:
    """The class that the operator gave the tool: that of the first pattern that matches.

    A pattern with `__` matches `server__tool`, any other matches the tool's own name. A server therefore cannot use a
    setting meant for another server by putting that server's name into a tool's name. But `a__b__c` matches both the
    tool `b__c` of server `a` and `c` of `a__b`.
    """
    qualified = f"{server}{SEPARATOR}{name}"
    for pattern, risk in overrides.items():
        if glob(pattern).matches(qualified if SEPARATOR in pattern else name):
            return RiskClass(risk, "override")
    return None


def risk_by_definition(name: str, annotations: object) -> RiskClass:
    """The class by the tool's own definition."""
    read_only = destructive = None
    if annotations and isinstance(annotations, Mapping):
        read_only, destructive = _flag(annotations.get("readOnlyHint")), _flag(annotations.get("destructiveHint"))
    decided = _remembered if len(name) <= LONGEST_REMEMBERED else by_definition
    return decided(name, read_only, destructive)


def by_definition(name: str, read_only: bool | None, destructive: bool | None) -> RiskClass:
    """The class by name and hints; None stands for a hint that was not given.

    A name too long to be read completely may contain any verb in its unread part, so its tool never counts as read.
    """
    found = _by_what_is_read(name, read_only, destructive)
    return UNKNOWN if len(name) > LONGEST_READ and found.risk is Risk.READ else found


def _by_what_is_read(name: str, read_only: bool | None, destructive: bool | None) -> RiskClass:
    said = risk_of_name(name)
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
    """The class by the annotations alone; None if they leave it open."""
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
    """A hint as the protocol defines it; any value but true and false counts as not given."""
    return value if isinstance(value, bool) else None
