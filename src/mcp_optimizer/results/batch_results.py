"""Writes the results of many calls of one tool as one: a JSON list in the order of the calls, or a text for each.

Called by the pipeline, which limits, keeps and selects from it as from any result. Pure. Objects that all have the same
keys become one table. A call without a result has its error in its place, so a place in the list is a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from mcp_optimizer.largejson.raw import RawJson
from mcp_optimizer.results.result_texts import NO_JSON, Reading, compact, json_value
from mcp_optimizer.results.selecting import selectable, unwrapped


class Made(Enum):
    """What became of one call of many."""

    DONE = "done"
    FAILED = "failed"
    """Its tool or server answered with an error."""
    NOT_MADE = "not made"
    """It never reached its server."""
    UNSURE = "unsure"
    """It was sent, and no answer came."""


@dataclass(frozen=True)
class OneOfMany:
    """One call of many: its result, or why it has none."""

    made: Made
    result: Mapping[str, Any] | None = None
    problem: str = ""


_LEAST_ROWS = 3
"""Results from which on a table is shorter than a list of objects."""

_LONGEST_PROBLEM = 160
"""Characters of the first error in the note, after a selection."""


def combined(calls: Sequence[OneOfMany]) -> dict[str, Any]:
    """One result for all calls; it reports an error if none was done."""
    is_error = not any(call.made is Made.DONE for call in calls)
    values = None if is_error else values_of(calls)
    if values is None:
        return {"content": [*_blocks(calls)], "isError": is_error}
    return {"content": [{"type": "text", "text": compact(_table(values) or values)}], "isError": is_error}


def values_of(calls: Sequence[OneOfMany]) -> list[Any] | None:
    """What each call returned, as JSON; None if something is neither JSON nor a line of text."""
    values = [_value(call) for call in calls]
    return None if any(value is NO_JSON for value in values) else values


def note_on(calls: Sequence[OneOfMany], *, says_why: bool) -> str:
    """The line after a reply in which not all is well; "" if all is. `says_why`: the errors are not shown elsewhere."""
    places = {made: [at for at, call in enumerate(calls) if call.made is made] for made in Made}
    if len(places[Made.DONE]) == len(calls):
        return ""
    said = [f"{len(calls)} calls: {len(places[Made.DONE])} done"]
    said += [f"{_listed(places[made])} {made.value}" for made in (Made.FAILED, Made.NOT_MADE) if places[made]]
    if unsure := places[Made.UNSURE]:
        said.append(f"{_listed(unsure)} unsure, look before you repeat")
    text = f"{'; '.join(said)}."
    if places[Made.DONE]:
        text += " Repeat none that is done."
    if says_why:
        first = next(call.problem for call in calls if call.made is not Made.DONE)
        text += f" {first[:_LONGEST_PROBLEM]}"
    return f"[{text}]"


def _value(call: OneOfMany) -> Any:
    if call.result is None:
        return {"error": call.problem}
    reading = Reading(call.result)
    if reading.has_uncounted:
        return NO_JSON
    chosen = unwrapped(reading) or selectable(reading)
    if chosen.structured is not NO_JSON:
        return _parsed(chosen.structured)
    texts = [_parsed(text) for text in chosen.texts]
    if len(texts) != 1:
        return NO_JSON if texts else None
    found = json_value(texts[0])
    # A text of several lines is easier to read as it is than as a JSON string.
    return texts[0] if found is NO_JSON and "\n" not in texts[0] else found


def _parsed(value: Any) -> Any:
    return value.parsed() if isinstance(value, RawJson) else value


def _table(values: Sequence[Any]) -> dict[str, Any] | None:
    """The values as a table, if they are objects with the same keys."""
    first = values[0]
    if len(values) < _LEAST_ROWS or not isinstance(first, dict) or not first:
        return None
    if any(not isinstance(value, dict) or value.keys() != first.keys() for value in values):
        return None
    return {"columns": list(first), "rows": [[value[key] for key in first] for value in values]}


def _blocks(calls: Sequence[OneOfMany]) -> Iterable[Any]:
    """The content of all results, each after its place in the list of arguments."""
    for at, call in enumerate(calls):
        if call.result is None:
            yield _text(f"[{at}] {call.problem}")
            continue
        content = Reading(call.result).in_text().get("content")
        yield _text(f"[{at}]")
        yield from content if isinstance(content, list) else ()


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _listed(places: Sequence[int]) -> str:
    """Places in a list, runs of them from first to last: `[2], [5] to [9]`."""
    ends = [at for at, following in pairwise([*places, -1]) if following != at + 1]
    starts = [at for before, at in pairwise([-2, *places]) if at != before + 1]
    runs = [f"[{a}]" if a == b else f"[{a}] to [{b}]" for a, b in zip(starts, ends, strict=True)]
    most = 8
    return ", ".join(runs[:most]) + (f" and {len(runs) - most} more" if len(runs) > most else "")
