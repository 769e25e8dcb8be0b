"""Ingests a server's listing: looks up known token counts and vectors, makes the missing ones, and stores them with
what the server said of itself.

Stores and recalls servers' other lists unchanged. Called by the live catalog; works in threads, so no request waits for
it. The database is only a cache: a failure is logged, and ingestion continues without it. Gateways that share a
PostgreSQL database take turns to embed, so each tool is embedded only once; the others stop waiting for a gateway that
holds its turn without making progress.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp_optimizer.catalog.tools import NOTHING_SAID, ServerText, ToolRecord, make_records
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.skills import listed_text
from mcp_optimizer.domain.tools import Definition, ServerStatus, ToolRow
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.runtime.tasks import ForegroundGate
from mcp_optimizer.search.engine import Encoder
from mcp_optimizer.search.lexical import Vector, Vocabulary
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.listing import Listing, read_tools
from mcp_optimizer.upstream.state import KnownServer, UpstreamState

if TYPE_CHECKING:
    from mcp_optimizer.db.catalog import Catalog

logger = logging.getLogger(__name__)

# What is stored of a server beside its tools: what it said of itself, and how its last start failed. Both are stored
# with a digest of the server's entry, so that they hold only while the entry is the same.

SAID = "server"
"""The kind of list under which is stored what a server said of itself."""

FAILED = "failed start"
"""The kind of list under which is stored how a server failed to start."""

Stored = Mapping[str, Mapping[str, str]]
"""Stored lists as text, by server name and kind."""


@dataclass(frozen=True)
class FailedStart:
    """How a server failed to start, and when, in wall-clock seconds."""

    at: float
    reason: str
    kind: FailureKind | None = None


@dataclass(frozen=True)
class RecalledServer:
    """What a server said of itself when it was listed last, and a digest of the entry that it was listed with."""

    said: KnownServer
    entry: str
    salt: str

    def is_of(self, spec: ServerSpec) -> bool:
        """Whether it was listed with this entry. Takes milliseconds if the entry has variables or headers."""
        return hmac.compare_digest(self.entry, _digest(spec, self.salt))


def said_by(state: UpstreamState) -> str:
    """What a server said of itself, with a digest of its entry. A resting server is taken for what this says."""
    return _with_digest(
        state.spec,
        {
            "protocol": state.protocol_version,
            "version": state.server_version,
            "capabilities": state.capabilities,
            "instructions": state.instructions,
        },
    )


def failure_of(state: UpstreamState, at: float) -> str:
    """How a server failed to start, with a digest of its entry."""
    kind = state.failure.value if state.failure is not None else None
    return _with_digest(state.spec, {"at": at, "reason": state.reason, "kind": kind})


def recalled_server(text: str) -> RecalledServer | None:
    """What is stored of a server; None if it cannot be read."""
    try:
        about = json.loads(text)
        said = KnownServer(0, about["protocol"], about["version"], about["capabilities"], about["instructions"])
        return RecalledServer(said, about["entry"], about["salt"])
    except (ValueError, LookupError, TypeError, RecursionError):
        logger.debug("What is stored of a server cannot be read")
        return None


def failed_starts(specs: Sequence[ServerSpec], stored: Stored) -> dict[str, FailedStart]:
    """How servers whose entries are still the same failed to start, by name."""
    found = {}
    for spec in specs:
        if (about := _of_same_entry(spec, stored, FAILED)) is not None:
            kind = about["kind"]
            found[spec.name] = FailedStart(about["at"], about["reason"], FailureKind(kind) if kind else None)
    return found


def _with_digest(spec: ServerSpec, about: Mapping[str, Any]) -> str:
    salt = secrets.token_hex(16)
    return json.dumps({"salt": salt, "entry": _digest(spec, salt), **about})


def _of_same_entry(spec: ServerSpec, stored: Stored, kind: str) -> dict[str, Any] | None:
    about: dict[str, Any] | None = json.loads(stored.get(spec.name, {}).get(kind, "null"))
    return about if about is not None and about["entry"] == _digest(spec, about["salt"]) else None


def _digest(spec: ServerSpec, salt: str) -> str:
    """The same for the same entry. Salted and slow, because values of variables may be short secrets."""
    values = [spec.fingerprint, spec.cwd or "", sorted(spec.env.items()), sorted(spec.headers.items())]
    text = spec.without_secrets(json.dumps(values))
    if not spec.env and not spec.headers:
        # Everything that is left is in the fingerprint, or no secret.
        return hashlib.sha256((salt + text).encode()).hexdigest()
    return hashlib.scrypt(text.encode(), salt=salt.encode(), n=2**10, r=8, p=1, dklen=16).hex()


_PAUSE = 0.25
"""Seconds between two checks of another gateway's progress."""

_PATIENCE = 20.0
"""Seconds to wait for another gateway that makes no progress; a batch takes one or two."""


class EmbeddingTurns:
    """Decides when this gateway may embed a batch of one server's tools."""

    def __init__(
        self,
        opened: Callable[[], Awaitable[Catalog | None]],
        patience: float = _PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opened = opened
        self._patience = patience
        self._clock = clock
        self._progress_at = clock()
        self.has_others = False
        """Whether another gateway may embed the same tools."""

    def progressed(self) -> None:
        """Note that some of the tools were embedded, by this or another gateway."""
        self._progress_at = self._clock()

    @asynccontextmanager
    async def next(self) -> AsyncIterator[bool]:
        """Yield whether it is this gateway's turn; pauses first if it is not."""
        catalog = await self._opened()
        try:
            turn = await catalog.embedding_turn() if catalog is not None else None
        except CatalogError as error:
            logger.debug("Whether another gateway embeds is not known: %s", error)
            catalog = turn = None
        self.has_others = catalog is not None
        is_over = self._clock() - self._progress_at > self._patience
        is_ours = turn is not None or catalog is None or is_over
        if not is_ours:
            await asyncio.sleep(_PAUSE)
        try:
            yield is_ours
        finally:
            if turn is not None:
                await turn.release()


_EMBED_BATCH = 64
"""Tools embedded between two writes, so a killed process loses little work."""

_AT_ONCE = 2
"""Servers whose listings are read at the same time."""

_LONGEST_LIST = 1_000_000
"""Maximum characters of a list of prompts, resources or templates that is stored."""

OpenedCatalog = Callable[[], Awaitable["Catalog | None"]]
"""Waits until the database is open, while servers start; returns None if there is no database."""


class Ingestion:
    """Turns listings into records and keeps the database up to date."""

    def __init__(
        self,
        counter: TokenCounter,
        vocabulary: Vocabulary,
        opened: OpenedCatalog,
        pace: ForegroundGate | None = None,
    ) -> None:
        self._pace = pace or ForegroundGate()
        self._counter = counter
        self._vocabulary = vocabulary
        self._opened = opened
        self._reading = asyncio.Semaphore(_AT_ONCE)
        self.counted = 0
        """Number of definitions that had to be counted; 0 at a start without changes."""
        self.embedded = 0
        """Number of tools that had to be embedded; also 0 at such a start."""

    def use_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Read tools into another vocabulary from now on."""
        self._vocabulary = vocabulary

    async def take_in(
        self,
        server: str,
        definitions: Sequence[Definition],
        before: Sequence[ToolRecord] = (),
        said: ServerText = NOTHING_SAID,
        counted: Mapping[str, int] | None = None,
    ) -> list[ToolRecord]:
        """Make the records of a server's tools; unchanged ones are taken from `before`. Waits for no write. `counted`:
        what `known_counts` says of them, if it was asked about many servers together.
        """
        kept = {record.definition_hash: record for record in before}
        new = [item for item in definitions if item.definition_hash not in kept]
        known = counted if counted is not None else await self.known_counts(item.definition_hash for item in new)
        # A few at a time: more threads would only slow down requests.
        async with self._reading:
            return await asyncio.to_thread(self._make, server, definitions, kept, known, said)

    def _make(
        self,
        server: str,
        definitions: Sequence[Definition],
        kept: Mapping[str, ToolRecord],
        known: Mapping[str, int],
        said: ServerText,
    ) -> list[ToolRecord]:
        new = [item for item in definitions if item.definition_hash not in kept]
        counted = self._count(
            {item.definition_hash: listed_text(item) for item in new if item.definition_hash not in known}
        )
        made = make_records(server, new, {**known, **counted}, self._vocabulary, said)
        same = [kept[item.definition_hash] for item in definitions if item.definition_hash in kept]
        return sorted([*same, *made], key=lambda record: record.name)

    async def recall(self, specs: Sequence[ServerSpec]) -> dict[str, Listing]:
        """The stored last listings of servers, by server name; empty if the database cannot be read."""
        catalog = await self._opened()
        if catalog is None or not specs:
            return {}
        try:
            stored = await catalog.listed({spec.name: spec.fingerprint for spec in specs})
        except CatalogError as error:
            logger.warning("Cannot read the catalog: %s. Tools are found when their servers run.", error)
            return {}
        return await asyncio.to_thread(lambda: {name: _listing(tools) for name, tools in stored.items()})

    async def recall_servers(self, specs: Sequence[ServerSpec]) -> dict[str, RecalledServer]:
        """What servers said of themselves when they were listed last, as far as it is stored."""
        catalog = await self._opened()
        if catalog is None or not specs:
            return {}
        try:
            stored = await catalog.lists({spec.name: spec.fingerprint for spec in specs}, SAID)
        except CatalogError:
            # Said when their tools are looked for.
            return {}
        said = {name: recalled_server(texts[SAID]) for name, texts in stored.items() if SAID in texts}
        return {name: found for name, found in said.items() if found is not None}

    async def store(self, spec: ServerSpec, records: Sequence[ToolRecord], state: UpstreamState | None = None) -> None:
        """Store a server and its tools, and what it said of itself in a state where it runs; a failure is logged and
        does not affect callers.
        """
        catalog = await self._opened()
        if catalog is None:
            return
        rows = [ToolRow(record.definition, record.token_count, record.vector_key) for record in records]
        # A count of 0 means that counting failed. It is not stored, so the next start tries again.
        counts = {row.definition.definition_hash: row.token_count for row in rows if row.token_count}
        try:
            await self._pace.wait()
            await catalog.revive()
            await catalog.save_token_counts(counts, self._counter.encoding_name)
            await self._pace.wait()
            server_id = await catalog.save_server(spec.name, spec.fingerprint, spec.transport, ServerStatus.RUNNING)
            await catalog.replace_tools(server_id, rows)
            if state is not None:
                said = await asyncio.to_thread(said_by, state)
                await catalog.save_lists(server_id, {SAID: said, FAILED: None})
        except CatalogError as error:
            logger.warning("Cannot store server %s in the catalog: %s. Everything else works.", spec.name, error)

    async def store_failures(self, states: Sequence[UpstreamState]) -> None:
        """Store how servers failed to start; a failure to store it is logged and does not affect callers."""
        catalog = await self._opened()
        if catalog is None:
            return
        at = time.time()
        try:
            for state in states:
                spec = state.spec
                server_id = await catalog.save_server(spec.name, spec.fingerprint, spec.transport, state.status)
                await catalog.save_lists(server_id, {FAILED: await asyncio.to_thread(failure_of, state, at)})
        except CatalogError as error:
            logger.warning("Cannot store failed starts in the catalog: %s. Everything else works.", error)

    async def recall_lists(self, specs: Sequence[ServerSpec]) -> dict[str, dict[str, Any]]:
        """The stored last lists of prompts, resources and templates, by server name and kind."""
        catalog = await self._opened()
        if catalog is None or not specs:
            return {}
        try:
            stored = await catalog.lists({spec.name: spec.fingerprint for spec in specs})
        except CatalogError as error:
            logger.warning("Cannot read the catalog: %s. Prompts and resources are listed when servers run.", error)
            return {}
        return await asyncio.to_thread(
            lambda: {name: {kind: _entries(text) for kind, text in lists.items()} for name, lists in stored.items()}
        )

    async def store_lists(self, state: UpstreamState, lists: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Store a server's other lists by kind; a failure is logged and does not affect callers."""
        catalog = await self._opened()
        if catalog is None:
            return
        spec = state.spec
        texts = await asyncio.to_thread(lambda: {kind: _text(entries) for kind, entries in lists.items()})
        try:
            await self._pace.wait()
            await catalog.revive()
            server_id = await catalog.save_server(spec.name, spec.fingerprint, spec.transport, state.status)
            await catalog.save_lists(server_id, texts)
        except CatalogError as error:
            logger.warning("Cannot store the lists of %s in the catalog: %s. Everything else works.", spec.name, error)

    async def embed(self, records: Sequence[ToolRecord], encoder: Encoder) -> AsyncIterator[dict[str, Vector]]:
        """The vectors of these records by key, as they become known: stored ones first, then batch by batch."""
        by_key = {record.vector_key: record for record in records}
        known = await self.known_vectors(list(by_key), encoder)
        if known:
            yield known
        missing = [key for key in by_key if key not in known]
        turns = EmbeddingTurns(self._opened)
        while missing:
            async with turns.next() as is_ours:
                # Another gateway may have embedded them meanwhile.
                keys = missing[:_EMBED_BATCH]
                new = await self.known_vectors(keys, encoder) if turns.has_others else {}
                if is_ours and (left := [key for key in keys if key not in new]):
                    vectors = await asyncio.to_thread(encoder.embed_tools, [by_key[key].text for key in left])
                    self.embedded += len(left)
                    made = dict(zip(left, vectors, strict=True))
                    await self.store_vectors(made, encoder)
                    new |= made
            if new:
                turns.progressed()
                missing = [key for key in missing if key not in new]
                if len(by_key) > _EMBED_BATCH:
                    logger.info("Embedded %d of %d tools", len(by_key) - len(missing), len(by_key))
                yield new

    async def known_vectors(self, keys: Sequence[str], encoder: Encoder) -> dict[str, Vector]:
        """The stored vectors of tools by this encoder, by key; none if the database cannot be read."""
        catalog = await self._opened()
        if catalog is None:
            return {}
        try:
            return {**await catalog.vectors(keys, encoder.name)}
        except CatalogError as error:
            logger.warning("Cannot read the catalog: %s. Embedding the tools again.", error)
            return {}

    async def store_vectors(self, vectors: Mapping[str, Vector], encoder: Encoder) -> None:
        """Store vectors by their keys; a failure is logged and does not affect callers."""
        catalog = await self._opened()
        if catalog is None:
            return
        try:
            await catalog.save_vectors(vectors, encoder.name)
        except CatalogError as error:
            logger.warning("Cannot store vectors in the catalog: %s. Everything else works.", error)

    async def list_tokens(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """The tokens of a list of tools as it was sent to a client. Stored like those of definitions: a start sends the
        same lists as the one before, and should not have to load the tokenizer for them.
        """
        texts = await asyncio.to_thread(lambda: [compact(tool) for tool in tools])
        key = hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
        if known := (await self.known_counts([key])).get(key):
            return known
        tokens = await asyncio.to_thread(lambda: sum(map(self._counter.count_or_zero, texts)))
        catalog = await self._opened()
        if catalog is not None and tokens:
            try:
                await self._pace.wait()
                await catalog.save_token_counts({key: tokens}, self._counter.encoding_name)
            except CatalogError as error:
                logger.debug("The tokens of a list are not stored: %s", error)
        return tokens

    async def known_counts(self, hashes: Iterable[str]) -> dict[str, int]:
        """The stored token counts of definitions, by hash; none if the database cannot be read."""
        catalog = await self._opened()
        if catalog is None:
            return {}
        try:
            return await catalog.token_counts(hashes, self._counter.encoding_name)
        except CatalogError as error:
            logger.warning("Cannot read the catalog: %s. Counting tokens again.", error)
            return {}

    def _count(self, texts: Mapping[str, str]) -> dict[str, int]:
        if not texts:
            return {}
        self.counted += len(texts)
        try:
            return dict(zip(texts, self._counter.count_many(list(texts.values())), strict=True))
        except Exception:
            # A text that the tokenizer fails on must not lose the other tools: count one by one, and 0 for that text.
            logger.exception("Counting a batch of %d definitions failed; counting one by one", len(texts))
            return {key: self._counter.count_or_zero(text, "a definition") for key, text in texts.items()}


def _listing(stored: Sequence[str]) -> Listing:
    """Read stored tools as strictly as a server's listing, because a row may be damaged or older than a limit."""
    entries = []
    for text in stored:
        try:
            entries.append(json.loads(text))
        except ValueError:
            logger.debug("A stored tool cannot be read")
    return read_tools(entries)


def _text(entries: Sequence[Mapping[str, Any]]) -> str | None:
    """A list as stored text; None if it is too long or cannot be written as JSON."""
    try:
        text = json.dumps(entries, separators=(",", ":"))
    except (ValueError, RecursionError):
        return None
    return text if len(text) <= _LONGEST_LIST else None


def _entries(text: str) -> Any:
    """The entries of a stored list; empty if it cannot be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        logger.debug("A stored list cannot be read")
        return []
