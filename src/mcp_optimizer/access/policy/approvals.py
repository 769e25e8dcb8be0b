"""Builds the question for a rule that says `ask`, interprets the answer, and remembers approvals.

Called by the code that can reach the person; knows no transport. Only a clear yes counts as approval. Of what a model
supplies, only the arguments are read, to show them.
"""

from __future__ import annotations

import json
import time
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mcp_optimizer.domain.caller import Decision, Principal
from mcp_optimizer.runtime.patterns import regex

SHOWN_OF_ARGUMENTS: Final = 300
"""Maximum characters of arguments shown to a person."""
MOST_ARGUMENTS: Final = 40
"""Maximum arguments shown to a person; a call with more is refused if a person has to decide."""
MOST_ARGUMENTS_OF_MANY: Final = 100
"""The same for several calls in one question, all their arguments together."""
_OF_ONE_OF_MANY: Final = 40
_LEAST_OF_ONE: Final = 20
_LOOKED_AT: Final = 5_000
"""Characters examined of one text."""
_LOOKED_AT_PER_SHOWN: Final = 10
"""Characters examined of any other value, per character that may be shown: encoding deep values takes time."""
_ROOM_FOR_SIZE: Final = 60
_BLANKS: Final = regex(" {4,}")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, default=lambda other: f"<{type(other).__name__}>")
_SHOWN_OF_NAMES: Final = 120
_HOUR: Final = 3_600.0
_MOST_REMEMBERED: Final = 10_000

_FIELD: Final = "approve_for"


class Consent(StrEnum):
    """A person's answer. The values of the first two are shown to the person."""

    ONCE = "this call"
    HOUR = "this tool for an hour"
    NO = "no"


def question(
    principal: Principal, server: str, tool: str, decision: Decision, *calls: Mapping[str, Any]
) -> dict[str, Any]:
    """The parameters of the elicitation that asks a person to approve a call, or several of one tool."""
    called = "called" if len(calls) == 1 else f"called {len(calls)} times"
    lines = [
        f"mcp-optimizer asks: On server {_name(server)}, may {_name(tool)} be {called} for {_name(principal.name)}?",
        f"It counts as {decision.risk.risk}. {decision.because[:1].upper()}{decision.because[1:]} wants you to decide.",
        visible(decision.reason.strip()),
        *(
            f"Arguments{f' {number}' if len(calls) > 1 else ''}: {abbreviated(arguments)}"
            for number, arguments in enumerate(calls, 1)
        ),
    ]
    choices = [Consent.ONCE.value, Consent.HOUR.value]
    return {
        "message": "\n".join(filter(None, lines)),
        "requestedSchema": {
            "type": "object",
            "properties": {_FIELD: {"type": "string", "title": "Approve for", "enum": choices, "default": choices[0]}},
            "required": [_FIELD],
        },
    }


def consent_in(answer: object) -> Consent:
    """The meaning of an answer. Anything but a clear yes is a no.

    Clients that show a question without its form accept without content: their user agreed to this call only.
    """
    if not isinstance(answer, Mapping) or answer.get("action") != "accept":
        return Consent.NO
    content = answer.get("content")
    chosen = content.get(_FIELD, Consent.ONCE.value) if isinstance(content, Mapping) else None
    if content is None:
        return Consent.ONCE
    return next(
        (yes for yes in (Consent.ONCE, Consent.HOUR) if isinstance(chosen, str) and chosen == yes.value), Consent.NO
    )


def abbreviated(arguments: Mapping[str, Any], most: int = SHOWN_OF_ARGUMENTS) -> str:
    """The arguments in one line. Each gets an equal share of the room, so a long one cannot hide those after it.

    Names are quoted as in JSON, so a name cannot look like an argument with its value.
    """
    if not arguments:
        return "none"
    # Leave no argument out, up to the number that a person can read.
    most = max(most, (_OF_ONE_OF_MANY + 2) * len(arguments)) if can_be_shown(arguments) else most
    share = max(_LEAST_OF_ONE, most // len(arguments) - 2)
    shown: list[str] = []
    length = 0
    for key, value in arguments.items():
        name = _written(str(key), share // 2)
        one = f"{name}: {_written(value, share - len(name) - 2)}"
        if length + len(one) > most:
            shown.append(f"… and {len(arguments) - len(shown):,} more")
            break
        shown.append(one)
        length += len(one) + 2
    return ", ".join(shown)


def can_be_shown(arguments: Mapping[str, Any]) -> bool:
    """Whether every argument can be shown to a person: one that is only counted might be the one that matters."""
    return len(arguments) <= MOST_ARGUMENTS


def can_all_be_shown(calls: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a person can read the arguments of several calls in one question."""
    return all(map(can_be_shown, calls)) and sum(max(1, len(one)) for one in calls) <= MOST_ARGUMENTS_OF_MANY


def visible(text: str) -> str:
    """A text with hidden characters spelt out: those that print nothing, or move or reorder others."""
    return "".join(f"<U+{ord(letter):04X}>" if _is_hidden(letter) else letter for letter in text)


def _is_hidden(letter: str) -> bool:
    # Other spaces look like the plain one; Hangul fillers, empty Braille cells and variation selectors print nothing.
    return letter != " " and (
        unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
        or letter in "\u115f\u1160\u2800\u3164\uffa0\u034f"
        or "\ufe00" <= letter <= "\ufe0f"
        or "\U000e0100" <= letter <= "\U000e01ef"
    )


def _name(text: str) -> str:
    """A name quoted as in JSON: a quotation mark in it does not end it, so it cannot forge the rest of a question."""
    return visible(_json(_cut(text[: _SHOWN_OF_NAMES + 1], _SHOWN_OF_NAMES)))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _written(value: Any, most: int) -> str:
    """The beginning and end of a value as JSON. Examines only a part of a large or deep value."""
    if isinstance(value, str) and len(value) > _LOOKED_AT:
        half = _LOOKED_AT // 2
        beginning, end = _plain(_json(value[:half])[:-1]), _plain(_json(value[-half:])[1:])
        return _ends(beginning, end, most, f"{len(value):,} characters")
    is_text = isinstance(value, str)
    written, is_whole = (_json(value), True) if is_text else _beginning(value, most * _LOOKED_AT_PER_SHOWN)
    shown = _plain(written)
    if not is_whole:
        return _ends(shown, "", most, f"more than {len(written):,} characters")
    return shown if len(shown) <= most else _ends(shown, shown, most, f"{len(written):,} characters")


def _ends(beginning: str, end: str, most: int, size: str) -> str:
    """As much of both ends as there is room for, with the total size in between if there is room for that too."""
    between = f" … {size} … " if most >= _ROOM_FOR_SIZE else "…"
    room = max(2, most - len(between))
    of_end = min(len(end), room // 2)
    # A quotation mark cut off from its backslash would look like the end of the text.
    tail = end[len(end) - of_end :]
    tail = tail[1:] if tail.startswith('"') and len(tail) > 1 else tail
    return f"{beginning[: room - of_end]}{between}{tail}"


def _beginning(value: Any, most: int) -> tuple[str, bool]:
    """The examined beginning of a value as JSON, and whether it is the whole value."""
    written: list[str] = []
    length = 0
    try:
        for piece in _ENCODER.iterencode(value):
            written.append(piece[: most + 1])
            length += len(piece)
            if length > most:
                return "".join(written), False
    except (RecursionError, ValueError):
        # Nested too deeply, or circular.
        return "".join(written), False
    return "".join(written), True


def _json(text: str) -> str:
    return _ENCODER.encode(text)


def _plain(text: str) -> str:
    """A text with hidden characters spelt out, and long runs of blanks, which could push text out of sight, counted."""
    return _BLANKS.sub(lambda found: f"␣×{len(found[0]):,}", visible(text))


@dataclass(frozen=True)
class Approved:
    """What an approval for an hour covers. Another caller, conversation or tool definition needs a new approval."""

    principal: str
    conversation: str
    server: str
    tool: str
    definition_hash: str


class Approvals:
    """The approvals that still hold. Their number is bounded: beyond it, the oldest are forgotten."""

    def __init__(
        self,
        *,
        seconds: float = _HOUR,
        clock: Callable[[], float] = time.monotonic,
        most: int = _MOST_REMEMBERED,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._most = most
        self._until: OrderedDict[Approved, float] = OrderedDict()

    def remember(self, approved: Approved) -> None:
        """A person approved this for an hour from now."""
        self._until.pop(approved, None)
        self._until[approved] = self._clock() + self._seconds
        if len(self._until) > self._most:
            self._until.popitem(last=False)

    def holds(self, approved: Approved) -> bool:
        """Whether an approval of this still holds."""
        until = self._until.get(approved)
        if until is None:
            return False
        if self._clock() < until:
            return True
        del self._until[approved]
        return False

    def forget(self, principal: str) -> None:
        """Drop all approvals for this caller."""
        for approved in [approved for approved in self._until if approved.principal == principal]:
            del self._until[approved]

    def forget_server(self, server: str) -> None:
        """Drop all approvals for a server that was removed, or whose name now means another server."""
        for approved in [approved for approved in self._until if approved.server == server]:
            del self._until[approved]
