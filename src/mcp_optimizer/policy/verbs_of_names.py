"""What a tool's name says about its risk, by its verbs. Called by `risk`; knows nothing of annotations. Pure.

Words that are verbs and hardly ever anything else decide first. Words that are as often nouns (`run`, `status`) decide
only where there is no other verb. Verbs count in their plain form: `get_deleted_items` deletes nothing.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.domain.verbs import DELETING

_LONGEST: Final = 1_000
"""Characters of a name that are read."""

_READ: Final = frozenset(
    "get list read show view fetch retrieve describe inspect search find query lookup locate grep browse enumerate "
    "count calculate compute compare diff validate verify lint analyze analyse diagnose summarize explain detect "
    "extract discover download check ping peek introspect estimate evaluate suggest recommend".split()
)
_WRITE: Final = frozenset(
    "create add make generate insert register compose write author put init initialize provision invite save store "
    "remember upload update edit change modify set rename replace adjust assign unassign move configure reconfigure "
    "toggle send reply notify publish unpublish submit execute launch invoke perform deploy restart manage import copy "
    "clone duplicate restore apply install upgrade enable disable approve attach detach click press fill navigate "
    "connect disconnect subscribe unsubscribe append resize sync start stop pause resume suspend upsert post patch "
    "convert close reopen archive unarchive reject mute unmute follow unfollow join leave pin unpin lock unlock grant "
    "merge commit push rebase checkout stage unstage buy sell pay transfer refund enqueue forget".split()
)
_PLAIN_DELETES: Final = frozenset(
    "delete erase purge destroy drop uninstall wipe trash truncate shred del rm rmdir deletes deleting".split()
)
"""Nobody calls something harmless by these. `remove` is not one of them: a label may be removed."""
_DESTRUCTIVE: Final = (
    _PLAIN_DELETES
    | frozenset(DELETING.split())
    | frozenset("overwrite empty reset kill terminate cancel factoryreset format eval exec bash shell terminal".split())
) - _WRITE

_NOUNS_TOO: Final = {
    Risk.READ: frozenset(
        "open display print info details status preview overview history stats statistics health log logs export load "
        "filter match sum total monitor watch wait tail review audit scan test trace screenshot snapshot report "
        "summary help version schema metrics usage parse translate geocode resolve who what which all me my "
        "whoami current latest top trending directions weather forecast time price quote".split()
    ),
    Risk.WRITE: frozenset(
        "new build setup draft book schedule mark switch fix forward email share broadcast comment run trigger call "
        "play link block type refresh power tag label message chat tweet mail record request action bulk batch "
        "drag drop hover select tap swipe scroll lift plan".split()
    ),
}
_EXECUTES: Final = frozenset({"run", "execute", "invoke", "call", "send"})
_PROGRAMS: Final = frozenset(
    "command commands cmd shell bash terminal script scripts code python javascript js sql cypher powershell "
    "applescript osascript".split()
)
_JOINS: Final = frozenset({"and", "or", "then"})

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


@dataclass(frozen=True)
class SaidByName:
    """The class that a name's verbs stand for, and whether the name leaves no doubt that the tool deletes."""

    risk: Risk
    plainly_deletes: bool = False


def said_by(name: str) -> SaidByName | None:
    """What a name says, or None if it has no word that we know."""
    # Compatibility forms are the same word to a reader: "ｄｅｌｅｔｅ" deletes, too.
    words = [word.lower() for word in _WORD.findall(unicodedata.normalize("NFKC", name[:_LONGEST]))]
    verbs = _verbs(words)
    if verbs:
        risk = max((_strong(verb) or Risk.READ for verb in verbs), key=lambda risk: risk.rank)
        if _runs_a_program(words):
            risk = Risk.DESTRUCTIVE
        return SaidByName(risk, any(verb in _PLAIN_DELETES for verb in verbs))
    if _runs_a_program(words):
        return SaidByName(Risk.DESTRUCTIVE)
    weak = _weak(words)
    return SaidByName(weak) if weak is not None else None


def _verbs(words: list[str]) -> list[str]:
    """The words that count: the first verb, a verb that the name ends in, and those after "and"."""
    at = next((place for place, word in enumerate(words) if _strong(word) is not None), None)
    if at is None:
        return []
    found = [words[at]]
    last = words[-1]
    # `get_data_set` only reads, `mailing_list_add` does not: a name that opens with its verb may end in a noun.
    if last in _DESTRUCTIVE or (at > 0 and _strong(last) is not None):
        found.append(last)
    for join, word in pairwise(words):
        if join in _JOINS and _strong(word) is not None:
            found.append(word)
    return found


def _strong(word: str) -> Risk | None:
    if word in _READ:
        return Risk.READ
    if word in _WRITE:
        return Risk.WRITE
    return Risk.DESTRUCTIVE if word in _DESTRUCTIVE else None


def _runs_a_program(words: list[str]) -> bool:
    """`run_command` and `execute_sql` do whatever they are told, so the worst counts."""
    place = next((at for at, word in enumerate(words) if word in _EXECUTES), None)
    return place is not None and any(word in _PROGRAMS for word in words[place + 1 :])


def _weak(words: list[str]) -> Risk | None:
    """By words that may be nouns: what the name ends in if that is something to read, else what it begins with."""
    if words and words[-1] in _NOUNS_TOO[Risk.READ]:
        return Risk.READ
    for word in words:
        for risk, known in _NOUNS_TOO.items():
            if word in known:
                return risk
    return None
