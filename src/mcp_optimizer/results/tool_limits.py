"""Recognises limits that tools set themselves, by the parameters of calls and schemas and by keys in results.

Pure. Models write arguments, servers write schemas and results, so any value may occur anywhere. Only keys are
examined: no part of a result is parsed or searched for this. The parameter names are those of 10,638 tools of 433 real
servers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, NamedTuple

from mcp_optimizer.domain.json_schema import named, properties_of, reference_of
from mcp_optimizer.results.metadata import DataInfo


class Kind(Enum):
    """What a key in a result says about more rows."""

    MORE = auto()
    """True if there are more rows, false if not."""
    END = auto()
    """False if there are more rows, true if not."""
    NEXT = auto()
    """Where to read on; empty if there are no more rows."""
    TOTAL = auto()
    """How many rows there are."""
    AMOUNT = auto()
    """A number of rows or a sum of money: certainly a number of rows only next to signs of pages."""
    UNSURE = auto()
    """Where to read on, or where this part begins."""


def spelled(names: Iterable[str]) -> frozenset[str]:
    """All spellings of names: `has more` gives has_more, has-more, hasMore, HasMore, hasmore."""
    found = set()
    for name in names:
        first, *rest = words = name.split()
        titled = "".join(word[:1].upper() + word[1:] for word in words)
        found |= {"_".join(words), "-".join(words), "".join(words), titled}
        found.add(first + "".join(word[:1].upper() + word[1:] for word in rest))
    return frozenset(found)


_SAYING = {
    Kind.MORE: (
        *("truncated", "is truncated", "was truncated", "results truncated", "output truncated", "limit reached"),
        *("has more", "has more results", "has more items", "has next", "has next page", "more", "more available"),
        *("more results", "is partial", "exceeded transfer limit"),
    ),
    Kind.END: ("is last", "is last page", "last page", "is complete", "is end"),
    Kind.NEXT: (
        *("next", "next cursor", "next page", "next page token", "next page cursor", "next token", "next offset"),
        *("next link", "next url", "next page url", "next marker", "next start", "next start at", "next start at id"),
        *("continuation token", "continue token", "last evaluated key", "@odata.next link", "odata.next link"),
    ),
    Kind.TOTAL: (
        *("total count", "total results", "total items", "total records", "total rows", "total hits", "total matches"),
        *("total found", "total elements", "total entries", "total available", "total documents", "total issues"),
        *("count total", "num found", "records total", "result count total", "@odata.count"),
    ),
    Kind.AMOUNT: ("total",),
    Kind.UNSURE: ("cursor",),
}
SAYING: Mapping[str, Kind] = {key: kind for kind, names in _SAYING.items() for key in spelled(names)}
"""Keys of a result that say whether there are more rows."""

HOLDERS: Mapping[str, None] = dict.fromkeys(
    spelled(
        (
            *("pagination", "paging", "page info", "page", "meta", "metadata", "response metadata", "links", "_links"),
            *("_meta", "data", "result", "results", "response"),
        )
    )
)
"""Keys of objects that may contain the keys of `SAYING`, one level down."""

PAGES: Mapping[str, None] = dict.fromkeys(
    spelled(
        (
            *("page", "page number", "page size", "per page", "limit", "offset", "skip", "start at", "total pages"),
            *("pages", "count", "max results", "page count", "next page"),
        )
    )
)
"""Keys in the same object as a total that show that it counts rows."""

LIMITS: Mapping[str, None] = dict.fromkeys(
    spelled(
        (
            *("limit", "page size", "max results", "top", "per page", "count", "max items", "pagelen", "max records"),
            *("max count", "top k", "num results", "num", "max rows", "row limit", "max comments", "max events"),
            *("max findings", "max entries", "max matches", "max hits", "max nodes", "max documents", "max messages"),
            *("first", "take", "limit page length", "page limit", "result limit", "results limit", "row count"),
            *("items per page", "results per page", "hits per page", "number of results", "page length", "$top"),
        )
    )
)
"""Parameters that limit the rows of a result."""

OFFSETS: Mapping[str, None] = dict.fromkeys(spelled(("offset", "skip", "start at", "start index", "$skip")))
NUMBERED: Mapping[str, None] = dict.fromkeys(spelled(("page", "page number", "page num", "page no")))
CURSORS: Mapping[str, None] = dict.fromkeys(
    spelled(
        (
            *("cursor", "page token", "next token", "next cursor", "next page token", "continuation token", "marker"),
            *("starting after", "starting token", "max pages", "page cursor", "$skiptoken"),
        )
    )
)
"""Parameters that choose a part of the rows: a result may be incomplete whatever the limit is."""

WRAPPERS: Mapping[str, None] = dict.fromkeys(
    ("params", "request", "query", "options", "pagination", "paging", "input", "args", "body")
)
"""Parameters that are objects and may contain the limit."""


_LONGEST_NUMBER = 9
_NO_OBJECT: Mapping[str, Any] = {}
_NUMBERS = frozenset({"integer", "number", "string"})


class AskedLimits(NamedTuple):
    """The limits that a call sets: each parameter and its value, if known, and how many rows it skips."""

    limits: tuple[tuple[str, int | None], ...] = ()
    before: int | None = 0
    is_paged: bool = False
    """Whether the tool returns parts of its rows."""

    @property
    def is_limited(self) -> bool:
        return bool(self.limits) or self.is_paged


def asked_of(arguments: Any, schema: Any) -> AskedLimits:
    """The limits that a call sets, read from its arguments in the tool's own shape and from the schema's defaults."""
    limits: list[tuple[str, int | None]] = []
    before: int | None = 0
    page: int | None = None
    is_paged = False
    for given, declared in _levels(arguments, schema):
        if declared.keys().isdisjoint(_ASKING.keys()) and given.keys().isdisjoint(_ASKING.keys()):
            continue
        for name in sorted({*(given.keys() & _ASKING.keys()), *(declared.keys() & _ASKING.keys())}):
            value, about = given.get(name), declared.get(name)
            about = about if isinstance(about, dict) else _NO_OBJECT
            value = about.get("default") if value is None else value
            if name in LIMITS:
                if _is_number_of_rows(value, about):
                    limits.append((name, number_of_rows(value)))
                continue
            is_paged = True
            if name in OFFSETS and value is not None:
                before = number_of_rows(value, least=0)
            elif name in NUMBERED and value is not None:
                is_from_0 = 0 in (about.get("minimum"), about.get("default"))
                number = number_of_rows(value, least=0)
                page = None if number is None else number - (not is_from_0)
                before = None if page is None else before
            elif name in CURSORS and name in given:
                before = None
    if page is not None and page > 0 and before == 0:
        size = next((most for _, most in limits if most is not None), None)
        before = None if size is None else page * size
    return AskedLimits(tuple(limits), before, is_paged)


_ASKING: Mapping[str, None] = {**LIMITS, **OFFSETS, **NUMBERED, **CURSORS}


def _levels(arguments: Any, schema: Any) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Arguments with the schemas of their properties: those of the call, then those of its wrapper objects."""
    given = arguments if isinstance(arguments, dict) else _NO_OBJECT
    root = schema if isinstance(schema, dict) else _NO_OBJECT
    declared = properties_of(root)
    yield given, declared
    if given.keys().isdisjoint(WRAPPERS.keys()) and declared.keys().isdisjoint(WRAPPERS.keys()):
        return
    for name in {*(given.keys() & WRAPPERS.keys()), *(declared.keys() & WRAPPERS.keys())}:
        inner, about = given.get(name), _resolved(declared.get(name), root)
        if isinstance(inner, dict) or properties_of(about):
            yield inner if isinstance(inner, dict) else _NO_OBJECT, properties_of(about)


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or the definition that it refers to. Follows only one reference, so a cycle cannot loop."""
    if not isinstance(schema, dict):
        return _NO_OBJECT
    if (place := reference_of(schema)) is None:
        return schema
    _, _, name = place.rpartition("/")
    found = named(root, "$defs").get(name, named(root, "definitions").get(name))
    return found if isinstance(found, dict) else schema


def _is_number_of_rows(value: Any, declared: Mapping[str, Any]) -> bool:
    """Whether a parameter with the name of a limit can be one: `count` is sometimes a switch."""
    if isinstance(value, bool | list | dict):
        return False
    kind = declared.get("type")
    return kind in _NUMBERS if isinstance(kind, str) else True


def number_of_rows(value: Any, least: int = 1) -> int | None:
    """A value as a number of rows; None if it cannot be one."""
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER and value.isascii() and value.isdecimal():
        value = int(value)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else None


LINE_ROOM = 24
"""Tokens reserved for the line about a tool's limit."""

_PAGE_NUMBERS = PAGES.keys() - {"count"}
_LOOKED_AT = 200
_NO_TOKEN = frozenset({"", "0", "-1", "null", "none", "undefined"})
_PLACES = frozenset({"href", "url", "cursor", "token"})


class ShownRows(NamedTuple):
    """The rows that a result shows: how many, and the objects that may say whether there are more."""

    rows: int | None = None
    objects: tuple[Mapping[str, Any], ...] = ()
    unit: str = "row"
    is_shown: bool = True
    """Whether a model reads those objects."""


@dataclass(frozen=True)
class Extent:
    """Whether a tool's own limit cut its result (None if unknown), and the limit that was reached, if any."""

    is_cut: bool | None = None
    limit: int | None = None
    name: str = ""
    rows: int | None = None
    unit: str = "row"
    is_told: bool = False
    """Whether the model needs a line about it, because it cannot see it in the result."""

    @property
    def matters(self) -> bool:
        """Whether there are, or may be, more rows."""
        return self.is_cut is True or self.limit is not None

    @property
    def line(self) -> str:
        """The line for the model; "" if it needs none."""
        if not self.is_told or not self.matters:
            return ""
        count = "Only a part" if self.rows is None else f"{self.rows:,} {self.unit}{'' if self.rows == 1 else 's'}"
        if self.limit is None:
            return f"[{count}: the tool has more.]"
        if self.is_cut:
            return f"[{count}: the tool's limit ({self.name}); there are more.]"
        return f"[{count}, the tool's limit ({self.name}): there may be more.]"

    def of_a_part(self, *, is_guess: bool) -> Extent:
        """The extent for a selection, in which the model cannot see it. A wrong guess selects nothing: no line."""
        return replace(self, is_told=self.matters and not is_guess)

    def remark(self) -> str:
        """The extent as text, to be kept with the result; "" if there is nothing to say."""
        return json.dumps([self.is_cut, self.limit, self.name, self.rows, self.unit]) if self.matters else ""

    @classmethod
    def of(cls, remark: str) -> Extent:
        """The extent in a remark; unknown if the remark is empty."""
        if not remark:
            return cls()
        is_cut, limit, name, rows, unit = json.loads(remark)
        return cls(is_cut, limit, name, rows, unit, is_told=True)


COMPLETE = Extent(is_cut=False)
UNKNOWN = Extent()
CUT = Extent(is_cut=True)
Judge = Callable[[ShownRows], Extent]
"""Decides whether the rows that a result shows are all rows."""


def no_limit(around: ShownRows) -> Extent:
    """The judge for a result without limits in its call: only the result itself can say that there are more rows."""
    return extent_of(around, AskedLimits())


def extent_of(around: ShownRows, asked: AskedLimits) -> Extent:
    """Whether there are more rows. What the result says takes precedence over what its number of rows suggests."""
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
    """The objects of a result that may say whether there are more rows: the result itself and its `HOLDERS`."""
    if not isinstance(value, dict):
        return
    # Checked first, because `isdisjoint` builds no set and most results say nothing.
    if not value.keys().isdisjoint(SAYING.keys()):
        yield value
    if value.keys().isdisjoint(HOLDERS.keys()):
        return
    for key in value.keys() & HOLDERS.keys():
        if isinstance(inner := value[key], dict) and not inner.keys().isdisjoint(SAYING.keys()):
            yield inner


def only_list(value: Any) -> int | None:
    """The length of a result that is a list, or of the only list in an object."""
    if isinstance(value, dict) and len(value) <= _LOOKED_AT:
        lists = [inner for inner in value.values() if isinstance(inner, list)]
        value = lists[0] if len(lists) == 1 else None
    return len(value) if isinstance(value, list) else None


def _said(around: ShownRows, asked: AskedLimits) -> bool | None:
    """Whether the result says that there are more rows. If it contradicts itself, assume more, to be safe."""
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
    """Whether something in the result may mean that there are more rows."""
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
        # A total below the rows shown does not count rows.
        return None
    if total == rows and not is_paged and any(most == rows for _, most in asked.limits):
        # Many tools count only the rows they return, so this total just repeats the limit, except next to page numbers.
        return None
    return total > rows + asked.before


def _is_token(value: Any) -> bool | None:
    """Whether a value says where to read on; None if unclear, such as a sentence that says what to do next."""
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
    """The reported data with the tool's limit. `is_cut`: the gateway cut the result, so its own limit is reported."""
    if data is None:
        if not extent.matters:
            return None
        data = DataInfo()
    own = max_rows if data.row_count is not None and max_rows else None
    limit = own if is_cut or extent.limit is None else extent.limit
    return replace(data, truncated=True if is_cut else extent.is_cut, max_rows_limit=limit)
