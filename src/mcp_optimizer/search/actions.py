"""Classifies actions (read, create, delete, ...) in requests and tool names; splits requests for several actions. Pure.

Tools of one server share their nouns and differ in their verbs: `write_file` does not delete. The ranker compares
requests and tools by these classes. The gateway searches separately for each part of "stage everything, commit, and
show the log"; a request is split only where a new action begins, so "compare apples, oranges and pears" stays whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mcp_optimizer.domain import verbs
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.words import words

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
"""Words by which a request asks that something go away. Many, because an unusual word must not hide the tool."""

_NEGATION = regex(
    r"\b(?:not|no|never|without|isn't|aren't|haven't|hasn't|don't|didn't|un|non)[\s-]+(?:yet\s+|been\s+)?(\w+)"
)


@lru_cache(maxsize=50_000)
def _bits(word: str) -> int:
    return next((CLASSES[form] for form in _forms(word) if form in CLASSES), 0)


def _forms(word: str) -> tuple[str, ...]:
    """The word, and its possible forms without an ending."""
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
    """Whether a tool's name says that it deletes or overwrites, judged by its first word for an action."""
    for word in words:
        if is_one_of(word, _DESTROYING):
            return True
        if _bits(word):
            return False
    return False


def asks_to_destroy(words: list[str]) -> bool:
    """Whether a request may ask to delete or overwrite something."""
    return any(is_one_of(word, _ASKS_TO_DESTROY) for word in words)


@lru_cache(maxsize=10_000)
def is_one_of(word: str, known: frozenset[str]) -> bool:
    """Whether a word, in any of its forms, is one of these."""
    return any(form in known for form in _forms(word))


def negated(query: str) -> frozenset[str]:
    """The words that a request negates, such as `staged` in "what is not staged yet"."""
    return frozenset(_NEGATION.findall(query.lower()))


MOST_PARTS: Final = 16
LONGEST: Final = 60
"""Maximum words of a request that is split without explicit separators; a longer one is rarely a list of actions."""

LONGEST_CERTAIN: Final = 200
"""Maximum words of a request that is split at semicolons."""

_LONGEST_REST = 300

_BULLET = regex(r"^(?:[-*•]|\d{1,2}[.)]) ")
_NUMBERED = regex(r"(?:^| )\d{1,2}[.)] ")
_POSSIBLE = regex(r"(?<=[^ .][.!?]) |,(?: (?:and|then|also)\b)* ?| (?:and then|and also|and|then) ", re.I)
_POLITE = frozenset(
    "please then also and now next finally first afterwards kindly can could you i want need to".split()
)
_FURTHER_ACTIONS = frozenset(
    "stage commit push pull merge rebase tag branch archive approve reject star fork summarize summarise translate "
    "explain extract plot draw chart resize crop rotate compress zip unzip encrypt decrypt sign login pay refund buy "
    "sell reserve remind remember note subscribe follow tell ask wait sort group plan".split()
)
"""Words for actions that `CLASSES` lacks."""

_QUESTIONS = frozenset("what which who whose when where how why is are was does do did".split())


@dataclass(frozen=True)
class SeveralActions:
    """The parts of a request, in order. `is_certain`: the request separates them explicitly, not only by its words."""

    parts: tuple[str, ...]
    is_certain: bool
    rest: str = ""
    """The parts beyond the first `MOST_PARTS`, for which no search is made."""


def several(request: str) -> SeveralActions | None:
    """The actions that a request asks for; None if it asks for one."""
    lines = [" ".join(line.split()) for line in request.split("\n")]
    # From here on words are separated by one blank, so the regular expressions are fast on any text.
    request = " ".join(line for line in lines if line)
    certain = [part.strip() for part in request.split(";") if words(part)]
    if len(certain) > 1 and request.count(" ") < LONGEST_CERTAIN:
        return _first(certain, is_certain=True)
    if request.count(" ") >= LONGEST:
        return None
    listed = [_BULLET.sub("", line) for line in lines if words(line)]
    listed = listed if len(listed) > 1 else [part for part in _NUMBERED.split(request) if words(part)]
    if len(listed) > 1 and all(map(_begins_action, listed)):
        return _first(listed, is_certain=True)
    parts: list[str] = []
    for piece in _POSSIBLE.split(request):
        if not words(piece):
            continue
        if parts and not _begins_action(piece):
            parts[-1] = f"{parts[-1]}, {piece}"
        else:
            parts.append(piece)
    if len(parts) < 2 or not _has_action(parts[0]):
        return None
    return _first(parts, is_certain=False)


def _first(parts: list[str], *, is_certain: bool) -> SeveralActions:
    return SeveralActions(tuple(parts[:MOST_PARTS]), is_certain, "; ".join(parts[MOST_PARTS:])[:_LONGEST_REST])


def _has_action(piece: str) -> bool:
    """Whether a piece contains a word for an action or a question; a place may precede it ("in the repository")."""
    return any(map(_is_action, words(piece)))


def _begins_action(piece: str) -> bool:
    """Whether a piece begins with a word for an action or a question, politeness aside."""
    said = next((word for word in words(piece)[:6] if word not in _POLITE), "")
    return _is_action(said)


def _is_action(word: str) -> bool:
    return word in _FURTHER_ACTIONS or word in _QUESTIONS or bool(actions([word]))
