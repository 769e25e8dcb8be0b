"""What an expression selected, and what the model is told about it in a notice. Pure.

A notice never reads like a failed call: a model that believes so repeats a call that changed something.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from mcp_optimizer.results.reading import Text

SENT_WHOLE = 200
"""Tokens up to which a result is sent whole if an expression that does not fit it matched nothing."""

NOT_WORTH_KEEPING = 300
"""Tokens up to which the complete result behind a selection is not kept."""

SELECTED_ROOM = 100
"""Tokens reserved for the notice after a selection."""

_ALONE = 140
"""Tokens of a notice that stands alone."""

_MOST_KEYS = 60
"""Tokens of the outline that names the keys of a result."""

CANNOT_BE_APPLIED = "select cannot be applied to this result: "
_LONGEST_REASON = 80


@dataclass(frozen=True)
class Unmatched:
    """Why an expression, or a part of it, matched nothing."""

    why: str = ""
    is_empty: bool = False
    """Whether the expression fits the result, and there is just nothing in that place."""

    keys: tuple[str, ...] = ()
    """The keys that exist there, as outlines from long to short."""


@dataclass(frozen=True)
class Selection:
    """What was selected, as JSON text, and what it does not show."""

    text: Text
    nulls: int = 0
    """Nulls that projections left out of it, as JMESPath demands."""

    unmatched: Unmatched | None = None
    """Set if it holds no value."""

    lacking: Unmatched | None = None
    """Set if a key in it is null everywhere, because the result does not have it."""

    def remarks(self) -> bytes:
        """Everything but the text, on one line."""
        return json.dumps(asdict(replace(self, text=""))).encode()

    @classmethod
    def of(cls, text: Text, remarks: bytes) -> Selection:
        """The selection with the remarks that another process wrote."""
        said: dict[str, Any] = json.loads(remarks)
        reasons = {
            name: Unmatched(**{**said[name], "keys": tuple(said[name]["keys"])})
            for name in ("unmatched", "lacking")
            if said[name] is not None
        }
        return cls(text, said["nulls"], **reasons)

    @property
    def is_guess(self) -> bool:
        """Whether it holds no value because the expression does not fit the result."""
        return self.unmatched is not None and not self.unmatched.is_empty

    @property
    def shown(self) -> Text | None:
        """What the model is shown of it. A null looks like a failed call, so the notice says instead what is null."""
        is_null = self.unmatched is not None and self.text == "null"
        return None if is_null or self.is_guess else self.text

    def notice(self, tokens: Callable[[str], int], result_id: str = "", *, is_call: bool = False) -> str:
        """What the model is told; `result_id` is that of the complete result, if it is kept."""
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
        """What the model is told if it gets the complete result instead."""
        assert self.unmatched is not None
        said = " ".join(self._said(self.unmatched.why, is_call=True))
        return f"[{said} This is the complete result.]"


def not_selected(error: Exception) -> str:
    """What the model is told if an expression cannot be applied and the complete result stands before it."""
    reason = str(error).removeprefix(CANNOT_BE_APPLIED).encode("ascii", "replace").decode()
    return f"[Not selected: {reason[:_LONGEST_REASON]}]"
