"""Recognises requests that ask for several actions: "stage everything, commit, and show the log". Pure.

A request is split only where a new action begins, so that "compare apples, oranges and pears" stays one. Called by the
gateway, which searches for each part and decides whether that answers the request better.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mcp_optimizer.search.actions import actions
from mcp_optimizer.search.words import words

MOST_PARTS: Final = 16
LONGEST: Final = 60
"""Words of a request that may be several without saying so. A longer one tells a story, not a list of requests."""

LONGEST_CERTAIN: Final = 200
"""Words of a request whose parts are separated by semicolons."""

_LONGEST_REST = 300

_BULLET = re.compile(r"^(?:[-*•]|\d{1,2}[.)]) ")
_NUMBERED = re.compile(r"(?:^| )\d{1,2}[.)] ")
_POSSIBLE = re.compile(r"(?<=[^ .][.!?]) |,(?: (?:and|then|also)\b)* ?| (?:and then|and also|and|then) ", re.I)
_POLITE = frozenset(
    "please then also and now next finally first afterwards kindly can could you i want need to".split()
)
_FURTHER_ACTIONS = frozenset(
    "stage commit push pull merge rebase tag branch archive approve reject star fork summarize summarise translate "
    "explain extract plot draw chart resize crop rotate compress zip unzip encrypt decrypt sign login pay refund buy "
    "sell reserve remind remember note subscribe follow tell ask wait sort group plan".split()
)
"""Words for actions that the classes of `actions` lack."""

_QUESTIONS = frozenset("what which who whose when where how why is are was does do did".split())


@dataclass(frozen=True)
class Several:
    """The parts of a request, in order. `is_certain`: whoever asked separated them; otherwise only the words say so."""

    parts: tuple[str, ...]
    is_certain: bool
    rest: str = ""
    """The parts beyond the first `MOST_PARTS`, which are not looked for."""


def several(request: str) -> Several | None:
    """The actions that a request asks for; None if it asks for one."""
    lines = [" ".join(line.split()) for line in request.split("\n")]
    # One blank between two words from here on, so that no text takes long to be looked through.
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


def _first(parts: list[str], *, is_certain: bool) -> Several:
    return Several(tuple(parts[:MOST_PARTS]), is_certain, "; ".join(parts[MOST_PARTS:])[:_LONGEST_REST])


def _has_action(piece: str) -> bool:
    """Whether any of its words is one for an action or a question: before it may stand where ("in the repository")."""
    return any(map(_is_action, words(piece)))


def _begins_action(piece: str) -> bool:
    """Whether it begins with a word for an action or a question, politeness aside."""
    said = next((word for word in words(piece)[:6] if word not in _POLITE), "")
    return _is_action(said)


def _is_action(word: str) -> bool:
    return word in _FURTHER_ACTIONS or word in _QUESTIONS or bool(actions([word]))
