"""What a tool's own limit cut from its result: what the result says of it, or whether it has as many rows as allowed.

Pure, and looks only at keys by name: no part of a result is parsed or gone through for this. Servers may write
any value anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mcp_optimizer.results.asked_limits import AskedLimits, number_of_rows
from mcp_optimizer.results.limit_names import HOLDERS, PAGES, SAYING, Kind
from mcp_optimizer.results.metadata import DataInfo

LINE_ROOM = 24
"""Tokens of the line about a tool's limit."""

_PAGE_NUMBERS = PAGES.keys() - {"count"}
_LOOKED_AT = 200
_NO_TOKEN = frozenset({"", "0", "-1", "null", "none", "undefined"})
_PLACES = frozenset({"href", "url", "cursor", "token"})


class ShownRows(NamedTuple):
    """What a result shows of a list: how many rows, and the objects that may say whether there are more."""

    rows: int | None = None
    objects: tuple[Mapping[str, Any], ...] = ()
    unit: str = "row"
    is_shown: bool = True
    """Whether a model reads those objects."""


@dataclass(frozen=True)
class Extent:
    """Whether a tool's own limit cut its result, None if that is not known; and the limit that was reached, if any."""

    is_cut: bool | None = None
    limit: int | None = None
    name: str = ""
    rows: int | None = None
    unit: str = "row"
    is_told: bool = False
    """Whether the model has to be told: it does not read it in the result."""

    @property
    def matters(self) -> bool:
        """Whether there are, or may be, more rows."""
        return self.is_cut is True or self.limit is not None

    @property
    def line(self) -> str:
        """What the model is told."""
        if not self.is_told or not self.matters:
            return ""
        count = "Only a part" if self.rows is None else f"{self.rows:,} {self.unit}{'' if self.rows == 1 else 's'}"
        if self.limit is None:
            return f"[{count}: the tool has more.]"
        if self.is_cut:
            return f"[{count}: the tool's limit ({self.name}); there are more.]"
        return f"[{count}, the tool's limit ({self.name}): there may be more.]"

    def of_a_part(self, *, is_guess: bool) -> Extent:
        """The same for what was selected, where the model does not read it. A wrong guess selects nothing."""
        return replace(self, is_told=self.matters and not is_guess)

    def remark(self) -> str:
        """The same as text, to be kept beside the result; "" if there is nothing to say."""
        return json.dumps([self.is_cut, self.limit, self.name, self.rows, self.unit]) if self.matters else ""

    @classmethod
    def of(cls, remark: str) -> Extent:
        """From a remark; without one, nothing is known."""
        if not remark:
            return cls()
        is_cut, limit, name, rows, unit = json.loads(remark)
        return cls(is_cut, limit, name, rows, unit, is_told=True)


COMPLETE = Extent(is_cut=False)
UNKNOWN = Extent()
CUT = Extent(is_cut=True)
Judge = Callable[[ShownRows], Extent]
"""Says of what a result shows whether it is all."""


def no_limit(around: ShownRows) -> Extent:
    """The judge of a result that no tool's limit concerns, unless it says so itself."""
    return extent_of(around, AskedLimits())


def extent_of(around: ShownRows, asked: AskedLimits) -> Extent:
    """Whether there are more rows. What the result says counts more than what its number of rows suggests."""
    said = _said(around, asked) if around.objects else None
    if said is False:
        return COMPLETE
    rows = around.rows
    if asked.limits and rows is not None:
        for name, most in asked.limits:
            if most == rows:
                return Extent(said, rows, name, rows, around.unit, is_told=not said or not around.is_shown)
    if said:
        return Extent(said, rows=rows, unit=around.unit, is_told=not around.is_shown)
    if not asked.is_limited and not _is_unsure(around):
        return COMPLETE
    is_below = rows is not None and all(most is not None and rows < most for _, most in asked.limits)
    return COMPLETE if asked.limits and is_below and not _is_unsure(around) else UNKNOWN


def objects_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """The objects of a result that may say whether there is more: itself, and those for this one level down."""
    if not isinstance(value, dict):
        return
    # Asked first, because it makes no set, and most results say nothing.
    if not value.keys().isdisjoint(SAYING.keys()):
        yield value
    if value.keys().isdisjoint(HOLDERS.keys()):
        return
    for key in value.keys() & HOLDERS.keys():
        if isinstance(inner := value[key], dict) and not inner.keys().isdisjoint(SAYING.keys()):
            yield inner


def only_list(value: Any) -> int | None:
    """How many elements the list has that a result is, or the only one in it."""
    if isinstance(value, dict) and len(value) <= _LOOKED_AT:
        lists = [inner for inner in value.values() if isinstance(inner, list)]
        value = lists[0] if len(lists) == 1 else None
    return len(value) if isinstance(value, list) else None


def _said(around: ShownRows, asked: AskedLimits) -> bool | None:
    """Whether the result says that there is more. Where it contradicts itself, there may be: that is the safe side."""
    found: set[bool | None] = set()
    for said in around.objects:
        for key in said.keys() & SAYING.keys():
            kind, value = SAYING[key], said[key]
            if kind in (Kind.TOTAL, Kind.AMOUNT):
                is_certain = kind is Kind.TOTAL or asked.is_limited or not said.keys().isdisjoint(PAGES)
                is_paged = not said.keys().isdisjoint(_PAGE_NUMBERS)
                found.add(_of_total(value, around.rows, asked, is_paged=is_paged) if is_certain else None)
            else:
                found.add(_of_flag(kind, value))
    return True if True in found else False if False in found else None


def _is_unsure(around: ShownRows) -> bool:
    """Whether something in the result may mean that there is more."""
    for said in around.objects:
        for key in said.keys() & SAYING.keys():
            kind, value = SAYING[key], said[key]
            if kind in (Kind.UNSURE, Kind.NEXT) and _is_token(value) is not False:
                return True
            total = number_of_rows(value) if kind in (Kind.TOTAL, Kind.AMOUNT) else None
            if total is not None and around.rows is not None and total > around.rows:
                return True
    return False


def _of_flag(kind: Kind, value: Any) -> bool | None:
    if kind is Kind.NEXT:
        return _is_token(value)
    if not isinstance(value, bool):
        return None
    if kind is Kind.MORE:
        return value
    return not value if kind is Kind.END else None


def _of_total(value: Any, rows: int | None, asked: AskedLimits, *, is_paged: bool) -> bool | None:
    total = number_of_rows(value, least=0)
    if total is None or rows is None or asked.before is None or total < rows:
        # Below what is shown it is no number of rows.
        return None
    if total == rows and not is_paged and any(most == rows for _, most in asked.limits):
        # Many tools count what they return, so that this total is the limit once more; but not beside a page's number.
        return None
    return total > rows + asked.before


def _is_token(value: Any) -> bool | None:
    """Whether this is where to read on. A sentence is something else: what to do next."""
    if value is None or value is False:
        return False
    if isinstance(value, str):
        start = value[:_LOOKED_AT].strip()
        return start.lower() not in _NO_TOKEN if " " not in start else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value > 0
    if isinstance(value, dict | list):
        return False if not value else True if isinstance(value, dict) and value.keys() & _PLACES else None
    return None


def with_extent(data: DataInfo | None, extent: Extent, max_rows: int, *, is_cut: bool) -> DataInfo | None:
    """What is said of a result's rows. `is_cut`: by the gateway, whose limit is then the one that counts."""
    if data is None:
        if not extent.matters:
            return None
        data = DataInfo()
    own = max_rows if data.row_count is not None and max_rows else None
    limit = own if is_cut or extent.limit is None else extent.limit
    return replace(data, truncated=True if is_cut else extent.is_cut, max_rows_limit=limit)
