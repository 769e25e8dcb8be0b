"""Writes the notices that the gateway adds to results: how a result was cut, and what an expression selected. Pure.

Notices are for models and not part of the data; a result with a notice has only text, because a client may show its
model the structured content without the notice. A notice must never read like a failed call: the model would repeat a
call that changed something.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from mcp_optimizer.results.pages import Pieces
from mcp_optimizer.results.result_texts import Reading, Text
from mcp_optimizer.results.tool_limits import Extent

SENT_WHOLE = 200
"""Maximum tokens of a result that is sent whole after an expression that does not fit it matched nothing."""

NOT_WORTH_KEEPING = 300
"""Maximum tokens of a result that is not kept after something was selected from it."""

SELECTED_ROOM = 100
"""Tokens reserved for the notice after a selection."""

_ALONE = 140
"""Maximum tokens of a notice without a selection before it."""

_MOST_KEYS = 60
"""Maximum tokens of the outline that names the keys of a result."""

CANNOT_BE_APPLIED = "select cannot be applied to this result: "
_LONGEST_REASON = 80


@dataclass(frozen=True)
class Unmatched:
    """Why an expression, or a part of it, matched nothing."""

    why: str = ""
    is_empty: bool = False
    """Whether the expression fits the result but the place it names is empty."""

    keys: tuple[str, ...] = ()
    """The keys that exist in that place, as outlines from long to short."""


@dataclass(frozen=True)
class Selection:
    """What was selected, as JSON text, and what a reader should know about it."""

    text: Text
    nulls: int = 0
    """Nulls that projections left out of the selection, as JMESPath demands."""

    unmatched: Unmatched | None = None
    """Set if the selection holds no value."""

    lacking: Unmatched | None = None
    """Set if a key in the selection is always null because the result does not have that key."""

    def remarks(self) -> bytes:
        """Everything but the text, on one line."""
        return json.dumps(asdict(replace(self, text=""))).encode()

    @classmethod
    def of(cls, text: Text, remarks: bytes) -> Selection:
        """Rebuild a selection from the remarks that another process wrote."""
        said: dict[str, Any] = json.loads(remarks)
        reasons = {
            name: Unmatched(**{**said[name], "keys": tuple(said[name]["keys"])})
            for name in ("unmatched", "lacking")
            if said[name] is not None
        }
        return cls(text, said["nulls"], **reasons)

    @property
    def is_guess(self) -> bool:
        """Whether the selection is empty because the expression does not fit the result."""
        return self.unmatched is not None and not self.unmatched.is_empty

    @property
    def shown(self) -> Text | None:
        """The text that the model sees. A null looks like a failed call, so the notice explains the null instead."""
        is_null = self.unmatched is not None and self.text == "null"
        return None if is_null or self.is_guess else self.text

    def notice(self, tokens: Callable[[str], int], result_id: str = "", *, is_call: bool = False) -> str:
        """The notice after a selection, "" if none is needed; `result_id` names the complete result, if it is kept."""
        place = "Select again" if self.is_guess else "All of it"
        more = [f'{place}: read_result(result_id="{result_id}")'] if result_id else []
        room = SELECTED_ROOM if self.shown is not None else _ALONE
        about = self.unmatched or self.lacking or Unmatched()
        fitting = (keys for keys in about.keys if tokens(keys) <= _MOST_KEYS)
        for why, keys in (*((about.why, keys) for keys in fitting), (about.why, ""), ("", "")):
            said = [*self._said(why, is_call=is_call), *([f"Keys: {keys}."] if keys else []), *more]
            notice = f"[{' '.join(said)}]" if said else ""
            if tokens(notice) <= room:
                break
        return notice

    def _said(self, why: str, *, is_call: bool) -> Iterator[str]:
        if self.unmatched is not None:
            yield f"{'The call succeeded. ' if is_call else ''}select matched nothing{f': {why}' if why else ''}."
            return
        if self.nulls:
            yield f"{self.nulls:,} null{'s' if self.nulls > 1 else ''} left out."
        if why:
            yield f"{why[:1].upper()}{why[1:]}."

    @property
    def whole(self) -> str:
        """The notice for a model that gets the complete result instead."""
        assert self.unmatched is not None
        said = " ".join(self._said(self.unmatched.why, is_call=True))
        return f"[{said} This is the complete result.]"


def not_selected(error: Exception) -> str:
    """The notice after a complete result to which an expression could not be applied."""
    reason = str(error).removeprefix(CANNOT_BE_APPLIED).encode("ascii", "replace").decode()
    return f"[Not selected: {reason[:_LONGEST_REASON]}]"


class Notice(dict[str, Any]):
    """A text block that the gateway wrote. On the wire it looks like any other; no server can send this type."""


def notice_block(text: str) -> Notice:
    return Notice(type="text", text=text)


def cut_notice(pieces: Pieces, next_offset: int, result_id: str) -> str:
    """One line that tells a model how much of a result it sees and how to read on."""
    return (
        f"[Cut: {next_offset:,} of {pieces.count:,} {pieces.unit} shown. Read on with read_result("
        f'result_id="{result_id}", offset={next_offset}); its select (JMESPath) or search narrows it. As an argument: '
        f'{{"$result": result_id}}]'
    )


def and_told(result: Mapping[str, Any], notice: str) -> dict[str, Any]:
    """The result as text with a notice after it. The structured content is written as text too: many clients show a
    model only the structured content, so it would not read the notice.
    """
    in_text = Reading(result).in_text()
    return {**in_text, "content": [*in_text.get("content", ()), notice_block(notice)]}


def with_line(result: Mapping[str, Any], extent: Extent) -> dict[str, Any]:
    """The result, followed by a line about its tool's limit if the model needs it."""
    return and_told(result, line) if (line := extent.line) else dict(result)
