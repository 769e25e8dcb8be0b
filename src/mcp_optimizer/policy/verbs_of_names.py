"""What a tool's name says about its risk, by its verbs. Called by `risk`; knows nothing of annotations. Pure.

Words that are verbs and hardly ever anything else decide first. Words that are as often nouns (`run`, `status`) decide
only where there is no other verb. Verbs count in their plain form: `get_deleted_items` deletes nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.domain.verbs import DELETING

LONGEST_READ: Final = 1_000
"""Characters of a name that are read."""

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
"""Nobody calls something harmless by these. `remove` is not one of them: a label may be removed."""
_REMOVES: Final = (_PLAIN_DELETES | frozenset(DELETING.split())) - _WRITE
_DESTRUCTIVE: Final = _REMOVES | frozenset(
    "overwrite empty reset kill terminate cancel eval exec bash shell terminal".split()
)
_NOUNS_AT_THE_END: Final = frozenset({"trash", "drop", "reset", "shell", "terminal"})
"""Verbs that are things where a name ends in them: `list_trash`."""
_NOUNS_IN_THE_MIDDLE: Final = frozenset({"list", "view", "query", "store", "post", "set"})
"""Verbs that are things where another verb follows: `shopping_list_delete_item`."""

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

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


@dataclass(frozen=True)
class SaidByName:
    """The class that a name's verbs stand for."""

    risk: Risk
    removes: bool = False
    """Whether a verb says that something goes away. No tool that only reads has one."""
    plainly_deletes: bool = False
    """Whether the name leaves no doubt that the tool deletes."""


def said_by(name: str) -> SaidByName | None:
    """What a name says, or None if it has no word that we know."""
    words = [word.lower() for word in _WORD.findall(_as_read(name[:LONGEST_READ]))]
    verbs = set(_verbs(words))
    if _runs_a_program(words):
        return SaidByName(Risk.DESTRUCTIVE, bool(verbs & _REMOVES), bool(verbs & _PLAIN_DELETES))
    if not verbs:
        weak = _weak(words)
        return SaidByName(weak) if weak is not None else None
    worst = max((risk for verb in verbs if (risk := _strong(verb)) is not None), key=lambda risk: risk.rank)
    return SaidByName(worst, bool(verbs & _REMOVES), bool(verbs & _PLAIN_DELETES))


def _as_read(name: str) -> str:
    """A name as a person would read it: nothing invisible in a word, and a wide "delete" is a "delete"."""
    if name.isascii():
        return name
    visible = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", visible)


def _verbs(words: list[str]) -> Iterator[str]:
    """The words that count: the first verb, a verb that the name ends in, and those after "and"."""
    places = [place for place, word in enumerate(words) if _strong(word) is not None]
    if "drag" in words:
        places = [place for place in places if words[place] != "drop"]
    if len(places) > 1 and places[-1] == len(words) - 1 and words[-1] in _NOUNS_AT_THE_END:
        places.pop()
    if not places:
        return
    first = next((at for at in places if at == 0 or words[at] not in _NOUNS_IN_THE_MIDDLE), places[0])
    yield words[first]
    # `get_data_set` only reads, `mailing_list_add` does not: a name that opens with its verb may end in a noun.
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
    """`run_command`, `execute_sql` and another gateway's `call_tool` do whatever they are told, so the worst counts."""
    place = next((at for at, word in enumerate(words) if word in _EXECUTES), None)
    return place is not None and any(word in _PROGRAMS for word in words[place + 1 :])


def _weak(words: list[str]) -> Risk | None:
    """By words that may be nouns: what the name ends in if that is something to read, else the worst of all."""
    if words and words[-1] in _NOUNS_TOO[Risk.READ]:
        return Risk.READ
    return next((risk for risk in (Risk.WRITE, Risk.READ) if not _NOUNS_TOO[risk].isdisjoint(words)), None)
