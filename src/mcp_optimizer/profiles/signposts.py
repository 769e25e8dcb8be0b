"""Describes the servers behind the gateway, which tells a model, and a client's own tool search, when to look here.

A line of server names, each with its purpose: the words of the user's server file, else words that the names of its
tools have in common. It contains no other text from a server, and nothing that a caller may not use. The line for the
gateway's own user is kept between starts (`serving/signpost_file.py`) and stays the same while the servers do, because
a prompt cache ends where a definition changes, and some clients refuse to call a tool that has changed. Called by
serving; knows no SDK type and no transport.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mcp_optimizer.catalog import LiveCatalog, Snapshot
from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.hidden_text import without_hidden
from mcp_optimizer.domain.own_tools import NO_SIGNPOST, Signpost
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.profiles.tiers import things
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.state import UpstreamState

logger = logging.getLogger(__name__)

Words = Mapping[str, tuple[str, ...]]
"""The words that describe each server, by server name."""

_MOST_TOKENS = 110
"""Maximum tokens of the line; with the text around it in find_tool's description, it costs at most 120."""

_MOST_BYTES = 1_600
"""Maximum bytes of the line: clients cut instructions at two kilobytes."""

_MOST_WORDS = 4
_MOST_SERVERS = 60
"""Maximum number of servers to name: a name costs two tokens or more."""

_MOST_TOOLS = 500
"""Maximum number of a server's tools whose names are read."""

_LONGEST_NAME = 40
_LONGEST_PURPOSE = 60
_QUIET = 0.3
"""Seconds without changes before the line is rebuilt, as for lists of tools."""

_KEPT = 64
"""Number of other callers' lines to keep."""


@dataclass(frozen=True)
class KnownSignpost:
    """The line for the gateway's own user, and the words that it was built from."""

    signpost: Signpost
    words: Words


Keep = Callable[[KnownSignpost], None]


class Signposts:
    """The line for each caller, built once servers have started, and again when they change."""

    def __init__(
        self,
        catalog: LiveCatalog,
        gateway: Gateway,
        count: Callable[[str], int],
        known: KnownSignpost | None = None,
        keep: Keep = lambda _known: None,
        on_change: Callable[[], None] = lambda: None,
        *,
        is_on: bool = True,
    ) -> None:
        """`known`: the last line; `keep` stores a new one; `on_change` is called when callers should read theirs."""
        self._catalog = catalog
        self._gateway = gateway
        self._count = count
        self._keep = keep
        self._on_change = on_change
        self._is_on = is_on
        self._known = known or KnownSignpost(Signpost() if is_on else NO_SIGNPOST, {})
        self._kept = self._known
        self._said: dict[str, str] | None = None
        """The descriptions in the server file from which the kept line was made; None until it is compared first."""
        self._has_settled = False
        self._of_views: OrderedDict[int, tuple[weakref.ref[Snapshot], Signpost]] = OrderedDict()
        self._tasks = BackgroundTasks(logger, "Cannot name the servers behind the gateway")

    @property
    def own(self) -> Signpost:
        """The line for the gateway's own user."""
        return self._known.signpost

    def start(self) -> None:
        if self._is_on:
            self._tasks.spawn(self._watch())

    async def stop(self) -> None:
        await self._tasks.close()

    def begin_with(self, signpost: Signpost) -> None:
        """Begin with the line that a client received while the gateway was loading."""
        self._known = KnownSignpost(signpost, self._known.words)

    def begin_again(self, keep: Keep) -> None:
        """Start over after callers' access changed: the line stays empty until it is rebuilt. `keep` stores it."""
        if self._is_on:
            self._keep = keep
            self._known = self._kept = KnownSignpost(Signpost(), {})
            self._of_views.clear()
            if self._has_settled:
                self._tasks.spawn(self._renew())

    async def of(self, caller: Caller) -> Signpost:
        """The line for this caller."""
        if not self._is_on:
            return NO_SIGNPOST
        views = self._gateway.permissions.views
        is_own = caller.principal == LOCAL.principal and caller.narrowed is None
        if is_own or (views.sees_all(caller) and views.sees_all(LOCAL)):
            return self.own
        # Until then the servers' words are incomplete, and the line would change each time a server has started.
        return await self._of_view(caller) if self._has_settled else Signpost()

    async def _of_view(self, caller: Caller) -> Signpost:
        view = await self._gateway.seen_by(caller)
        known = self._of_views.get(id(view))
        if known is None or known[0]() is not view:
            made = await asyncio.to_thread(self._made, view, caller, {})
            known = (weakref.ref(view), made.signpost)
            self._of_views[id(view)] = known
            while len(self._of_views) > _KEPT:
                self._of_views.popitem(last=False)
        return known[1]

    async def _watch(self) -> None:
        while True:
            # Wait first: the line that a client received during loading is compared with the new one.
            await self._rested()
            while self._catalog.snapshot.is_starting:
                await self._catalog.changed()
            self._has_settled = True
            made_from = self._catalog.snapshot
            await self._renew()
            if self._catalog.snapshot is made_from:
                await self._catalog.changed()

    async def _rested(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_QUIET):
                    await self._catalog.changed()
            except TimeoutError:
                return

    async def _renew(self) -> None:
        view = await self._gateway.seen_by(LOCAL)
        before = self._known
        made = await asyncio.to_thread(self._made, view, LOCAL, before.words)
        if made == self._kept or self._known is not before:
            # Unchanged, or built from access rights that have just changed.
            return
        self._kept = made
        is_same = bool(before.signpost.servers) and set(made.words) == set(before.words)
        # New words for the same servers wait for the next start: clients that find a tool changed refuse to call it.
        self._known = KnownSignpost(before.signpost, made.words) if is_same else made
        if self._known.signpost != before.signpost:
            self._on_change()
        await asyncio.to_thread(self._keep, made)

    def _made(self, view: Snapshot, caller: Caller, before: Words) -> KnownSignpost:
        """Build the line for a view. `before`: the known words of servers that do not run now."""
        permits = self._gateway.permissions.views.permits_reading
        missing = {state.name for state in view.missing()}
        named: list[UpstreamState] = []
        words: dict[str, tuple[str, ...]] = {}
        for name in sorted(view.states):
            state = view.states[name]
            if state.is_available and name not in missing:
                if not (tools := view.of_server(name)):
                    # The caller may use none of its tools, or all of them wait for approval.
                    continue
                words[name] = about([tool.record.name for tool in tools[:_MOST_TOOLS]])
            elif state.status is ServerStatus.STOPPED or not permits(caller, name):
                continue
            else:
                words[name] = before.get(name, ())
            named.append(state)
            if len(named) > _MOST_SERVERS:
                break
        said = {state.name: state.spec.description or "" for state in named}
        kept = self._kept
        if any(words.values()) and words == kept.words and self._said in (None, said):
            # As at the start before, with the same server file: nothing has to be counted.
            self._said = said
            return kept
        self._said = said
        return KnownSignpost(Signpost(line(named, words, self._count)), words)


def about(names: Sequence[str]) -> tuple[str, ...]:
    """The words that best describe tools with these names, in alphabetical order: a server chooses its words and must
    not be able to form a sentence with them.
    """
    return tuple(sorted(things(names)[:_MOST_WORDS]))


def line(servers: Sequence[UpstreamState], words: Words, count: Callable[[str], int]) -> str:
    """The line: as many words for each server as there is room for, else names alone, else as many names as fit."""
    purposes = {state.name: _purpose(state, words.get(state.name, ())) for state in servers}
    names = [state.name for state in servers][:_MOST_SERVERS]
    more = len(servers) > len(names)
    for most in range(_MOST_WORDS, -1, -1):
        if _fits(text := _listed(names, purposes, most, more=more), count):
            return text
    while names:
        # Counts a hundred names seven times, not a hundred times.
        names, more = names[: -max(1, len(names) // 10)], True
        if _fits(text := _listed(names, {}, 0, more=more), count):
            return text
    return ""


def _fits(text: str, count: Callable[[str], int]) -> bool:
    return len(text.encode("utf-8", "surrogatepass")) <= _MOST_BYTES and count(text) <= _MOST_TOKENS


def _purpose(state: UpstreamState, words: tuple[str, ...]) -> tuple[str, ...]:
    """The user's description, else the words of the server's tools without those of its name."""
    if said := _plain(state.spec.description or "", _LONGEST_PURPOSE):
        return (said,)
    own = state.name.lower()
    return tuple(word for word in words if word not in own)


def _listed(names: Iterable[str], purposes: Mapping[str, tuple[str, ...]], most: int, *, more: bool) -> str:
    entries = [_entry(name, purposes.get(name, ())[:most]) for name in names]
    return ", ".join([*(entry for entry in entries if entry), *(["and more"] if more else [])])


def _entry(name: str, purpose: Sequence[str]) -> str:
    plain = _plain(name, _LONGEST_NAME)
    return f"{plain} ({', '.join(purpose)})" if plain and purpose else plain


def _plain(text: str, longest: int) -> str:
    """The text in one line, without hidden characters or parentheses; only its first words if it is long."""
    found = " ".join(without_hidden(text).split()).replace("(", "").replace(")", "").rstrip(".")
    return found if len(found) <= longest else found[:longest].rsplit(" ", 1)[0].rstrip(" ,;:.")
