"""What tools call their limits: in arguments, and in results that say whether there is more. Only words.

Read by `tool_limits`. The names of parameters are those of 10,638 tools of 433 real servers that limit rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto


class Kind(Enum):
    """What a key in a result says."""

    MORE = auto()
    """True: there is more; false: there is not."""
    END = auto()
    """The other way round."""
    NEXT = auto()
    """Where to read on; empty: there is no more."""
    TOTAL = auto()
    """How many rows there are."""
    AMOUNT = auto()
    """The same, or a sum of money: only beside signs of pages it is surely a number of rows."""
    UNSURE = auto()
    """Where to read on, or where this begins."""


def spelled(names: Iterable[str]) -> frozenset[str]:
    """Names as they are spelled: `has more` is has_more, has-more, hasMore, HasMore, hasmore."""
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
"""Keys of a result that say whether there is more."""

HOLDERS: Mapping[str, None] = dict.fromkeys(
    spelled(
        (
            *("pagination", "paging", "page info", "page", "meta", "metadata", "response metadata", "links", "_links"),
            *("_meta", "data", "result", "results", "response"),
        )
    )
)
"""Keys under which these may stand one level down."""

PAGES: Mapping[str, None] = dict.fromkeys(
    spelled(
        (
            *("page", "page number", "page size", "per page", "limit", "offset", "skip", "start at", "total pages"),
            *("pages", "count", "max results", "page count", "next page"),
        )
    )
)
"""Keys beside a total that show that it is one of rows."""

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
"""Parameters that choose a part of the rows: what is returned need not be all, whatever the limit is."""

WRAPPERS: Mapping[str, None] = dict.fromkeys(
    ("params", "request", "query", "options", "pagination", "paging", "input", "args", "body")
)
"""Parameters that are objects, under which a tool may expect its limit."""
