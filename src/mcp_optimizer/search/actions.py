"""Classifies actions: what a request asks for, and what a tool's name says it does (read, create, delete, ...). Pure.

Tools of one server share their nouns and differ in their verbs: `write_file` does not delete. The ranker compares
requests and tools by these classes. They are broad, so that every common word for an action belongs to one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from mcp_optimizer.domain import verbs

_WORDS: Final = {
    "read": "get read show view fetch retrieve open display see look print check describe inspect info details status "
    "what which who when where whose current tell give pull download export load",
    "list": "list all every enumerate overview browse",
    "search": "search find query lookup locate grep match filter hunt discover seek",
    "create": "create add new make generate insert build register open start setup post compose draft write author "
    "put init initialize scaffold provision invite book schedule file log record save store remember upload",
    "update": "update edit change modify set rename patch replace adjust alter rewrite assign mark move configure "
    "toggle switch fix correct reschedule overwrite",
    "delete": verbs.DELETING,
    "send": "send reply forward email message notify share publish post submit deliver push broadcast comment",
    "run": "run execute launch start trigger invoke call perform deploy restart play exec",
    "stop": "stop cancel abort kill pause halt close disable end terminate shutdown quit suspend unsubscribe off",
    "convert": "convert transform translate turn parse format render encode decode export compile",
    "move": "move transfer copy duplicate clone migrate merge rename restore",
    "compare": "compare diff difference changed changes versus",
    "check": "validate verify check test lint analyze audit review scan diagnose inspect",
    "count": "count sum calculate compute total average aggregate measure estimate many much",
    "navigate": "navigate visit open go goto browse click tap press type scroll",
}

CLASSES: Final[dict[str, int]] = {}
for _bit, _words in enumerate(_WORDS.values()):
    for _word in _words.split():
        CLASSES[_word] = CLASSES.get(_word, 0) | 1 << _bit

DELETING: Final = 1 << list(_WORDS).index("delete")
CHANGING: Final = sum(1 << list(_WORDS).index(name) for name in ("create", "update", "delete", "send", "run", "stop"))

_DESTROYING: Final = frozenset((_WORDS["delete"] + " reset overwrite truncate empty unstage deactivate").split())
_ASKS_TO_DESTROY: Final = _DESTROYING | frozenset(
    _WORDS["stop"].split()
    + "undo revert clean cleanup unwanted anymore longer never without obsolete outdated stale old unneeded unused "
    "gone take out away vanish disappear del kick expire dismiss leave eliminate rollback scratch throw strip exclude "
    "withdraw shred".split()
)
"""Words of a request that something should go away. Many, because asking in other words must not hide the tool."""

_NEGATION = re.compile(
    r"\b(?:not|no|never|without|isn't|aren't|haven't|hasn't|don't|didn't|un|non)[\s-]+(?:yet\s+|been\s+)?(\w+)"
)


@lru_cache(maxsize=50_000)
def _bits(word: str) -> int:
    return next((CLASSES[form] for form in _forms(word) if form in CLASSES), 0)


def _forms(word: str) -> tuple[str, ...]:
    """The word, and what it would be without its ending."""
    return (
        word,
        word.removesuffix("s"),
        word.removesuffix("es"),
        word.removesuffix("d"),
        word.removesuffix("ed"),
        word.removesuffix("ing"),
        f"{word.removesuffix('ing')}e",
    )


def actions(words: list[str]) -> int:
    """The action classes of all these words, as a bit mask."""
    found = 0
    for word in words:
        found |= _bits(word)
    return found


def name_actions(words: list[str]) -> int:
    """The action classes of a tool's name. Only its first word for an action counts; the others are mostly nouns."""
    for word in words:
        if bits := _bits(word):
            return bits
    return 0


def destroys(words: list[str]) -> bool:
    """Whether a tool's name says that it deletes or overwrites: its first word for an action does."""
    for word in words:
        if is_one_of(word, _DESTROYING):
            return True
        if _bits(word):
            return False
    return False


def asks_to_destroy(words: list[str]) -> bool:
    """Whether a request may want something deleted or overwritten."""
    return any(is_one_of(word, _ASKS_TO_DESTROY) for word in words)


def is_one_of(word: str, known: frozenset[str]) -> bool:
    """Whether a word, in any of its forms, is one of these."""
    return any(form in known for form in _forms(word))


def negated(query: str) -> frozenset[str]:
    """The words that a request negates, such as `staged` in "what is not staged yet"."""
    return frozenset(_NEGATION.findall(query.lower()))
