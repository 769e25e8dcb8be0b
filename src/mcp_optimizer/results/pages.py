"""Divides a complete result into numbered pieces, and chooses as many pieces as fit a page.

The pieces are the rows, elements or lines of the texts as their server sent them, so all pieces concatenated are the
original, byte for byte. A piece too large for a page is divided further. Pure.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mcp_optimizer.domain.kept_results import Chunk
from mcp_optimizer.largejson.spans import Positions, whole_characters
from mcp_optimizer.results.document import ResultDocument
from mcp_optimizer.results.encodings import minified
from mcp_optimizer.results.item_layout import at_word_end, most
from mcp_optimizer.runtime.lazy_numpy import np

_CHUNK = 256 * 1024
"""Approximate bytes of text stored together."""

_BLANKS = b" \t\r\n"

REMARK = -2
"""The block number of a remark."""

_MEASURED = 200
"""Maximum large pieces that are measured exactly before they are divided; if there are more, only length decides."""

_COMPRESSION = 1
"""The fastest level, because stored results are read once or never."""


def packed(block: int, first: int, data: bytes, lengths: Positions) -> Chunk:
    return Chunk(block, first, lengths.astype("<u4").tobytes(), zlib.compress(data, _COMPRESSION))


def unpacked(chunk: Chunk) -> list[bytes]:
    """The pieces of a stored chunk."""
    ends = np.cumsum(np.frombuffer(chunk.lengths, dtype="<u4"), dtype=np.int64).tolist()
    data = zlib.decompress(chunk.body)
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True)
class Pieces:
    """The texts of a result and where each piece in them starts."""

    unit: str
    texts: tuple[bytes, ...]
    bounds: tuple[Positions, ...]
    blocks: tuple[int, ...]
    remark: str = ""
    """What a reader has to know about the result; stored after its last piece, where no page begins."""

    @property
    def size(self) -> int:
        """Bytes of text."""
        return sum(map(len, self.texts))

    @property
    def count(self) -> int:
        return sum(len(bounds) - 1 for bounds in self.bounds)

    def after(self, text: int, position: int) -> int:
        """The number of the first piece that ends after a position in one of the texts."""
        before = sum(len(bounds) - 1 for bounds in self.bounds[:text])
        return before + int(np.searchsorted(self.bounds[text][1:], position, side="right"))

    def chunks(self) -> Iterator[Chunk]:
        """All pieces, as stored."""
        first = 0
        for block, data, bounds in zip(self.blocks, self.texts, self.bounds, strict=True):
            at = 0
            while at < len(bounds) - 1:
                end = int(np.searchsorted(bounds, bounds[at] + _CHUNK, side="right")) - 1
                end = min(max(end, at + 1), len(bounds) - 1)
                part = data[int(bounds[at]) : int(bounds[end])]
                yield packed(block, first + at, part, np.diff(bounds[at : end + 1]))
                at = end
            first += at
        if self.remark:
            remark = self.remark.encode()
            yield packed(REMARK, first, remark, np.array([len(remark)]))


def divide(documents: Sequence[tuple[int, ResultDocument]], budget: int, count: Callable[[bytes], int]) -> Pieces:
    """Divide texts, each with the number of its content block, into pieces that fit a page."""
    is_one = len(documents) == 1
    unit = documents[0][1].layout.unit if is_one else "blocks"
    bounds = []
    for _, document in documents:
        if not is_one and len(document.data) <= budget:
            # Each of several texts is a piece, unless it is too large.
            bounds.append(np.array([0, len(document.data)], dtype=np.int64))
            continue
        wanted = document.layout.bounds()
        divided = _divided(document.data, wanted, budget, count)
        unit = unit if len(divided) == len(wanted) and (is_one or len(wanted) == 2) else "parts"
        bounds.append(divided)
    texts = tuple(document.data for _, document in documents)
    return Pieces(unit, texts, tuple(bounds), tuple(block for block, _ in documents))


def _divided(data: bytes, bounds: Positions, budget: int, count: Callable[[bytes], int]) -> Positions:
    """The bounds, with additional ones inside pieces that are too large. No text has more tokens than bytes."""
    large = np.flatnonzero(np.diff(bounds) > budget)
    if len(large) <= _MEASURED:
        large = np.array(
            [at for at in large.tolist() if _is_too_large(data, bounds, at, budget, count)], dtype=np.int64
        )
    if not large.size:
        return bounds
    more: list[int] = []
    for at in large.tolist():
        start, end = int(bounds[at]), int(bounds[at + 1])
        while end - start > budget:
            part = at_word_end(whole_characters(data[start : start + budget])) or data[start : start + budget]
            start += len(part)
            more.append(start)
    return np.unique(np.concatenate([bounds, np.array(more, dtype=np.int64)]))


def _is_too_large(data: bytes, bounds: Positions, at: int, budget: int, count: Callable[[bytes], int]) -> bool:
    piece = data[int(bounds[at]) : int(bounds[at + 1])]
    return len(piece) > budget * 8 or count(piece) > budget


@dataclass(frozen=True)
class Page:
    """Consecutive pieces, joined by content block."""

    texts: tuple[tuple[int, bytes], ...]
    first: int
    count: int


def page(pieces: Sequence[tuple[int, bytes]], first: int, fits: Callable[[Sequence[bytes]], bool]) -> Page:
    """Join as many of the pieces (block and text) as fit, at least one."""
    count = most(len(pieces), lambda n: n == 0 or fits([text for _, text in joined(pieces[:n])])) or 1
    return Page(tuple(joined(pieces[:count])), first, min(count, len(pieces)))


def without_blanks(piece: bytes) -> bytes:
    """A row, element or key of JSON without whitespace between its tokens, as the first part of a result is shown; any
    other piece as it is. What follows it, a comma or a line break, stays.
    """
    text = piece.strip(_BLANKS)
    body, comma = (text[:-1].rstrip(_BLANKS), b",") if text.endswith(b",") else (text, b"")
    if not body.startswith((b"{", b"[", b'"')) or not _is_json(body):
        return piece
    ending = comma or (b"\n" if piece.endswith(b"\n") else b"")
    return minified(body) + ending


def _is_json(body: bytes) -> bool:
    try:
        json.loads(b"{%b}" % body if body.startswith(b'"') else body)
    except (ValueError, RecursionError):
        return False
    return True


def joined(pieces: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Join adjacent pieces of the same block."""
    found: list[tuple[int, list[bytes]]] = []
    for block, text in pieces:
        if found and found[-1][0] == block:
            found[-1][1].append(text)
        else:
            found.append((block, [text]))
    return [(block, b"".join(texts)) for block, texts in found]
