"""Ranks tools for a request, over one immutable index.

The catalog builds an index in the background and swaps it in with one assignment; the gateway searches it. A search
never waits for ingestion and never sees half an index. With few tools, each part of an index is built when first
needed, so a gateway that is never searched does not load numpy. For requests that no special tool fits, general-purpose
tools (web search, code, files) are returned. Knows positions, not servers or callers.
"""

from __future__ import annotations

import hashlib
import logging
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Final, Protocol
from weakref import WeakValueDictionary

from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.search.actions import asks_to_destroy
from mcp_optimizer.search.doubt import (
    MOST_JUDGED,
    SURE,
    Outlook,
    World,
    asks_the_world,
    bundled_judge,
    bundled_world,
    doubt_features,
    is_short,
)
from mcp_optimizer.search.generality import LEAST_COSINE, MOST, Generality, worded_as_here
from mcp_optimizer.search.index_parts import Entry, IndexParts, PartsInPlace, PartsOfIndex, SomeParts
from mcp_optimizer.search.languages import translated
from mcp_optimizer.search.lexical import FIELDS, Floats, Vector, Vocabulary
from mcp_optimizer.search.overlap import LOOKED_AT, RankedTool, counterparts
from mcp_optimizer.search.ranker import (
    EXACT_NAME_BONUS,
    LEAST,
    Asked,
    Cosines,
    Fusion,
    Mask,
    Positions,
    RankAdjustments,
    Ranking,
    contributions,
    rank,
    read_fusion,
)
from mcp_optimizer.search.tool_texts import keywords_read, query_parts, request_read
from mcp_optimizer.search.typing_errors import Grouped, grouped, repaired
from mcp_optimizer.search.vectors import EXACT_UP_TO
from mcp_optimizer.search.words import terms

BUNDLED: Final = "bundled:"
"""How the name of the bundled encoder begins."""

logger = logging.getLogger(__name__)

Prior = Callable[[Positions], Floats | None]
"""The usage prior of the tools at these positions; None if there is none."""

_CANDIDATES = 30
"""Number of first tools that the usage prior may move; the scores of later ones are too far below."""

_FURTHER = 8
"""Number of tools below the hits that a search reports."""

_WEAK = 0.3
"""If the likelihood of the first hit is below this, general-purpose tools are returned as well."""

_NEAREST = 3
"""Number of tools that are returned if none fits."""

_GUESS = 0.9
"""Maximum cosine guessed for a tool that is not embedded yet, relative to the highest cosine of embedded tools."""


class Encoder(Protocol):
    """Turns texts into unit vectors that are close if the texts have similar meanings."""

    @property
    def name(self) -> str:
        """Identifies the weights. Vectors are stored under this name and never mixed with those of another."""
        ...

    @property
    def fusion(self) -> str:
        """The entry of `fusion.json` with the weights learned for this encoder."""
        ...

    # All raise OSError if the encoder cannot be reached; the search then uses only words.

    def embed_tools(self, texts: Sequence[str]) -> Iterable[Vector]: ...

    def embed_queries(self, texts: Sequence[str]) -> Floats: ...

    def begin_queries(self, texts: Sequence[str]) -> Callable[[], Floats]:
        """Begin to embed, in another thread if the encoder has one; returns a function that waits for the vectors."""
        ...


@dataclass(frozen=True)
class Hit:
    """A tool, by its position in the index, and how likely it answers the request, from 0 to 1."""

    position: int
    score: float
    is_general: bool = False
    """Returned because it is general-purpose, not because it fits."""
    is_named: bool = False
    """The request names it."""
    is_only_near: bool = False
    """Returned because it is near, although no tool fits."""


@dataclass(frozen=True)
class SearchResult:
    """The hits of a search; none if nothing fits. `fit` is how likely the first hit answers the request."""

    hits: tuple[Hit, ...]
    fit: float
    further: tuple[int, ...] = ()
    """The positions that follow in the ranking, whether they fit or not."""
    counterparts: tuple[int, ...] = ()
    """The tools of other servers than the first hit's that the request may mean as well, one of each."""

    @property
    def fits(self) -> bool:
        """Whether a tool fits; otherwise the hits are only the nearest."""
        return bool(self.hits) and not any(hit.is_only_near for hit in self.hits)


@cache
def learned(encoder: str) -> Fusion:
    """The weights learned for an encoder; `none` is for words only."""
    stored = resources.files("mcp_optimizer") / "search" / "model" / "fusion.json"
    return read_fusion(stored.read_text(encoding="utf-8"), encoder)


def _key_of(positions: array[int], kind: str = "") -> bytes:
    """Short, because hundreds of callers may see thousands of tools each."""
    return hashlib.sha256(kind.encode() + positions.tobytes()).digest()


def _first(asked: Asked, ranking: Ranking, most: int) -> list[Hit]:
    found = zip(ranking.positions[:most].tolist(), ranking.likelihoods.tolist(), strict=False)
    return [Hit(at, round(likelihood, 4), is_named=at in asked.named) for at, likelihood in found]


def _nearest(asked: Asked, ranking: Ranking, limit: int) -> list[Hit]:
    """The first tools that have anything in common with a request that none fits."""
    return _first(asked, ranking, min(_NEAREST, limit, int(np.count_nonzero(ranking.scores > LEAST))))


class SearchIndex:
    """Everything needed to rank one set of tools."""

    def __init__(
        self,
        entries: Sequence[Entry],
        vocabulary: Vocabulary | None,
        encoder: Encoder | None = None,
        whole: tuple[SearchIndex, array[int]] | None = None,
        parts: PartsOfIndex | None = None,
    ) -> None:
        """Without a vocabulary, this is an index of some tools, at some positions of the `whole` one; with `parts`,
        which share those of that one, it needs no entries.
        """
        self.size = len(entries) if whole is None else len(whole[1])
        self._known_parts: WeakValueDictionary[bytes, SearchIndex] = WeakValueDictionary()
        self._whole = whole
        if parts is None:
            has_vectors = encoder is not None and any(entry.vector is not None for entry in entries)
            parts = IndexParts(entries, vocabulary, has_vectors=has_vectors)
        else:
            has_vectors = encoder is not None and not parts.vectors.missing.all()
        self._encoder = encoder if has_vectors else None
        self._parts = parts

    def confined(self, positions: Sequence[int], entries: Callable[[], Sequence[Entry]]) -> SearchIndex:
        """An index of some of the tools, in ascending order, for callers that may not see the others: words of hidden
        tools affect neither the rarity of words nor the correction of requests. Shared by callers that see the same
        tools. `entries` are those of the tools, without vectors; they are needed for many tools only.
        """
        if self._whole is not None:
            whole, own = self._whole
            return whole.confined([own[position] for position in positions], entries)
        places = array("i", positions)
        key = _key_of(places)
        if (found := self._known_parts.get(key)) is None:
            found = self._known_parts[key] = self._some(places, entries)
        return found

    def _some(self, positions: array[int], entries: Callable[[], Sequence[Entry]]) -> SearchIndex:
        whole = self._parts
        if isinstance(whole, IndexParts) and len(positions) <= EXACT_UP_TO:
            return SearchIndex((), None, self._encoder, (self, positions), SomeParts(whole, positions))
        seen = [replace(one, vector=whole.vector_at(at)) for at, one in zip(positions, entries(), strict=True)]
        return SearchIndex(seen, None, self._encoder, (self, positions))

    def in_place(self, positions: Sequence[int]) -> SearchIndex:
        """The same for callers who see most of the tools, or other tools each: all keep their positions, and only these
        may be allowed in a search.
        """
        assert isinstance(self._parts, IndexParts)
        places = array("i", positions)
        key = _key_of(places, "in place")
        if (found := self._known_parts.get(key)) is None:
            whole, parts = (self, self.everywhere), PartsInPlace(self._parts, places)
            found = self._known_parts[key] = SearchIndex((), None, self._encoder, whole, parts)
        return found

    @lazy
    def everywhere(self) -> array[int]:
        return array("i", range(self.size))

    def spelt_like(self, name: str) -> Sequence[int]:
        """The tools whose name, with or without the server's, has exactly these words, however they are joined."""
        return self._parts.names.spelt_like(name)

    @property
    def shares_words(self) -> bool:
        """Whether this is an index of some tools that has no words or vectors of its own."""
        return not isinstance(self._parts, IndexParts)

    @property
    def by_words_only(self) -> bool:
        """Whether this index ranks without an encoder, because there is none or it is not ready yet."""
        return self._encoder is None

    @property
    def vectors(self) -> Sequence[Vector | None]:
        """The vector of each tool, or None."""
        return self._parts.rows()

    def search(
        self, description: str, keywords: str, allowed: Mask, limit: int, prior: Prior | None = None
    ) -> SearchResult:
        """The best of the allowed tools, up to the point where the scores show that nothing more fits.

        If nothing fits, or nothing fits well, general-purpose tools are returned too. `prior` is called for the first
        tools only.
        """
        query = self._repaired(f"{request_read(description)} {keywords_read(keywords)}".strip())
        begun = self._begin(query)
        # Computed while the encoder works in its own thread.
        asked = Asked.of(self._parts.lexical, self._parts.names, query)
        cosines = self._cosines(query, begun)
        asked.with_cosines(cosines)
        looked_at = limit + _FURTHER if limit > 0 else limit
        most = max(looked_at, LOOKED_AT) if limit > 0 else limit
        ranking = self._ranked(query, cosines, allowed, most, None, asked)
        candidates = ranking.positions[: max(looked_at, _CANDIDATES)]
        if prior and (used := prior(candidates)) is not None:
            whole = np.zeros(self.size, dtype=np.float32)
            whole[candidates] = used
            ranking = self._ranked(query, cosines, allowed, most, whole, asked)
        verdict = self._verdict(asked, cosines, allowed, ranking)
        hits: list[Hit] = []
        if verdict is Outlook.FITS:
            hits = _first(asked, ranking, min(ranking.kept, limit))
        elif verdict is Outlook.NONE:
            hits = _nearest(asked, ranking, limit)
        if cosines is not None and limit > 0 and (verdict is not Outlook.FITS or not hits or hits[0].score < _WEAK):
            found = {hit.position for hit in hits}
            general = [hit for hit in self._general(asked, cosines, allowed) if hit.position not in found]
            hits = [*hits[: max(limit - len(general), 1)], *general][:limit] if general else hits
        if not hits and cosines is not None:
            hits, verdict = _nearest(asked, ranking, limit), Outlook.NONE
        if not hits:
            return SearchResult((), 0.0)
        if verdict is Outlook.NONE or (hits[0].score < _WEAK and not asks_to_destroy(asked.words)):
            hits = self._harmless_first(hits)
        if verdict is Outlook.NONE:
            hits = [replace(hit, is_only_near=True) for hit in hits]
        found = {hit.position for hit in hits}
        following = tuple(at for at in ranking.positions[:looked_at].tolist() if at not in found)
        others = self._counterparts(asked, ranking) if verdict is Outlook.FITS else ()
        return SearchResult(tuple(hits), hits[0].score, following, others)

    def _harmless_first(self, hits: list[Hit]) -> list[Hit]:
        """The hits, those that delete or overwrite last; for hits that hardly fit."""
        harmful = frozenset(self._parts.names.destroying.tolist())
        return sorted(hits, key=lambda hit: hit.position in harmful and not hit.is_named)

    def _verdict(self, asked: Asked, cosines: Cosines | None, allowed: Mask, ranking: Ranking) -> Outlook:
        by_ranking = Outlook.FITS if ranking.answered else Outlook.GENERAL
        is_bundled = self._encoder is not None and self._encoder.name.startswith(BUNDLED)
        is_judged = is_bundled and self.size <= MOST_JUDGED and is_short(asked.words)
        if cosines is None or not is_judged or not len(ranking.positions):
            return by_ranking
        if ranking.likelihoods[0] >= SURE:
            return Outlook.FITS
        if self._can_search_for(asked.query, cosines, allowed):
            return by_ranking
        known = self._doubt_features(cosines, allowed, ranking, asked.matrix, bundled_world())
        return Outlook.FITS if bundled_judge().score(known) >= bundled_judge().threshold else Outlook.NONE

    def _can_search_for(self, query: str, cosines: Cosines, allowed: Mask) -> bool:
        """Whether a request is a question that an allowed tool may answer by searching the web."""
        generality = self.generality
        if generality is None or not asks_the_world(query):
            return False
        return bool((allowed & (generality.to_web_search >= self._fusion(cosines).general)).any())

    def _doubt_features(
        self, cosines: Cosines, allowed: Mask, ranking: Ranking, matrix: Floats, world: World
    ) -> Floats:
        generality = self.generality
        is_general = allowed & (False if generality is None else generality.tools(self._fusion(cosines).general))
        general = float(cosines.whole[is_general].max(initial=0.0))
        return doubt_features(cosines, matrix, ranking, general, world)

    def doubt(self, query: str, world: World) -> tuple[Floats, bool | None]:
        """The `DOUBT_FEATURES` of a request to all tools, for training, and whether a tool fits where they do not
        decide.
        """
        query = self._repaired(request_read(query))
        cosines = self._cosines(query, self._begin(query))
        if cosines is None:
            raise ValueError("without cosines nothing is judged")
        everything = np.ones(self.size, dtype=np.bool_)
        asked = Asked.of(self._parts.lexical, self._parts.names, query).with_cosines(cosines)
        ranking = self._ranked(query, cosines, everything, LOOKED_AT, None, asked)
        known = self._doubt_features(cosines, everything, ranking, asked.matrix, world)
        if not is_short(asked.words):
            return known, ranking.answered
        is_sure = ranking.likelihoods[0] >= SURE or bool(asked.named)
        return known, is_sure or self._can_search_for(query, cosines, everything) or None

    def _counterparts(self, asked: Asked, ranking: Ranking) -> tuple[int, ...]:
        names, scores = self._parts.names, ranking.scores
        if asked.named:
            # A tool that has exactly the words of the request is not nearer in meaning.
            scores = scores.copy()
            scores[np.isin(ranking.positions, asked.named)] -= np.float32(EXACT_NAME_BONUS)
        owners = names.servers[ranking.positions].tolist()
        ranked = zip(ranking.positions.tolist(), owners, scores.tolist(), strict=True)
        return counterparts(
            asked.query,
            (RankedTool(at, owner, names.spelt[at], names.server_names[owner], score) for at, owner, score in ranked),
        )

    def ranking(self, query: str, allowed: Mask | None, limit: int, prior: Floats | None = None) -> Ranking:
        """The uncut ranking with the features behind it, for measuring and explaining."""
        query = self._repaired(request_read(query))
        return self._ranked(query, self._cosines(query, self._begin(query)), allowed, limit, prior)

    def contributions(
        self, query: str, positions: Sequence[int], allowed: Mask | None = None, prior: Floats | None = None
    ) -> list[dict[str, float]]:
        """Why these tools rank as they do for a query: what each feature adds to their scores."""
        query = self._repaired(request_read(query))
        cosines = self._cosines(query, self._begin(query))
        beside = RankAdjustments(self._parts.superseded, prior)
        fusion = self._fusion(cosines)
        return contributions(self._parts.lexical, self._parts.names, query, cosines, fusion, positions, allowed, beside)

    def _ranked(
        self,
        query: str,
        cosines: Cosines | None,
        allowed: Mask | None,
        limit: int,
        prior: Floats | None,
        asked: Asked | None = None,
    ) -> Ranking:
        beside = RankAdjustments(self._parts.superseded, prior)
        fusion = self._fusion(cosines)
        found = rank(self._parts.lexical, self._parts.names, query, cosines, fusion, limit, allowed, beside, asked)
        if found.answered or cosines is None or not self._parts.vectors.missing.any():
            return found
        # Nothing fits by meaning, but some tools are not embedded yet: words decide until they are.
        by_words = rank(self._parts.lexical, self._parts.names, query, None, learned("none"), limit, allowed, beside)
        return by_words if by_words.answered else found

    def _fusion(self, cosines: Cosines | None) -> Fusion:
        return learned(self._encoder.fusion if self._encoder and cosines else "none")

    def _repaired(self, query: str) -> str:
        """The request in English and without typing errors."""
        if (other := translated(query)) is not None:
            return worded_as_here(other.read(query, self._parts.lexical.knows))
        return worded_as_here(repaired(query, self._parts.lexical.knows, lambda: self._own_words))

    @lazy
    def _own_words(self) -> Grouped:
        return grouped(self._parts.lexical.known_terms())

    def _general(self, asked: Asked, cosines: Cosines, allowed: Mask) -> list[Hit]:
        """The allowed general-purpose tools, nearest to the request first; empty if none is near."""
        generality = self.generality
        if generality is None:
            return []
        eligible = generality.tools(self._fusion(cosines).general) & allowed & (cosines.whole >= LEAST_COSINE)
        ranking = self._ranked(asked.query, cosines, eligible, MOST, None, asked)
        found = zip(ranking.positions.tolist(), ranking.likelihoods.tolist(), strict=True)
        return [Hit(at, round(likelihood, 4), is_general=True) for at, likelihood in found]

    @lazy
    def generality(self) -> Generality | None:
        """Which tools are general-purpose; None if unknown."""
        if self._whole is not None:
            # A tool's generality does not depend on other tools, and computing it embeds a dozen texts.
            whole, positions = self._whole
            known = whole.generality
            is_in_place = positions is whole.everywhere
            return known if known is None or is_in_place else known.some(positions)
        encoder = self._encoder
        if encoder is None:
            return None
        try:
            return Generality.of(
                self._parts.lexical, lambda texts: self._parts.vectors.cosines(encoder.embed_queries(texts))
            )
        except OSError as error:
            logger.warning("General-purpose tools could not be identified: %s.", error)
            return None

    def nearest_names(self, name: str, allowed: Mask, limit: int) -> list[Hit]:
        """Tools whose names share words with a name that does not exist."""
        scores = self._parts.lexical.field_scores(terms(name), FIELDS[0])
        scores[~allowed] = 0.0
        found = np.flatnonzero(scores)
        ordered = found[np.lexsort((found, -scores[found]))][:limit]
        return [Hit(int(at), round(float(scores[at]), 4)) for at in ordered]

    def _begin(self, query: str) -> Callable[[], Floats] | None:
        """Begin to embed a request and its parts; None without an encoder."""
        if self._encoder is None:
            return None
        return self._encoder.begin_queries([query, *query_parts(query)])

    def _cosines(self, query: str, begun: Callable[[], Floats] | None) -> Cosines | None:
        if begun is None:
            return None
        try:
            embedded = begun()
        except OSError as error:
            # The encoder's machine cannot be reached: a search by words is better than none.
            logger.warning("The request could not be embedded: %s. Searched by words only.", error)
            return None
        if not embedded[0].any():
            # The static table knows none of the words: only the lexical index can rank them.
            return None
        rows = self._parts.vectors.cosines(embedded)
        if self._parts.vectors.missing.any():
            rows = self._with_guesses(rows, query)
        return Cosines(rows[0], rows[1:], embedded[0])

    def _with_guesses(self, rows: Floats, query: str) -> Floats:
        """Guess the cosines of tools that are not embedded yet from their words, so they are still found."""
        words = self._parts.lexical.field_scores(terms(query), "all")
        relative = words / max(float(words.max(initial=0.0)), 1e-6)
        guessed = _GUESS * rows.max(axis=1, keepdims=True) * relative
        filled: Floats = np.where(self._parts.vectors.missing, guessed, rows)
        return filled
