"""The static encoder: a table of word-piece vectors. Needs only numpy and a fraction of a millisecond per text.

For machines that should not run a transformer. A text's vector is the sum of its pieces' rows, scaled to unit length.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.lexical import Floats

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST_WORD: Final = 40
_WORD = regex(r"[^\W_]+")


@dataclass(frozen=True)
class StaticEncoder:
    """Word pieces and their rows: int8 values with one scale per row."""

    pieces: Mapping[str, int]
    rows: NDArray[np.int8]
    scales: NDArray[np.float16]
    name: str = "static"
    fusion: str = "static"

    @classmethod
    def load(cls, path: Path) -> StaticEncoder:
        """Read a file that `save` wrote."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        with np.load(path) as stored:
            pieces = bytes(stored["pieces"]).decode("utf-8").split("\n")
            numbers = {piece: at for at, piece in enumerate(pieces)}
            return cls(numbers, stored["rows"], stored["scales"], name=f"static:{digest}")

    def save(self, path: Path) -> None:
        """Write one compressed file."""
        stored = np.frombuffer("\n".join(self.pieces).encode("utf-8"), dtype=np.uint8)
        np.savez_compressed(path, pieces=stored, rows=self.rows, scales=self.scales)

    def embed_tools(self, texts: Sequence[str]) -> Floats:
        return self._embed(texts)

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        return self._embed(texts)

    def begin_queries(self, texts: Sequence[str]) -> Callable[[], Floats]:
        return partial(self.embed_queries, texts)

    def _embed(self, texts: Sequence[str]) -> Floats:
        """Unit vectors; zeros for a text without any known piece."""
        result = np.zeros((len(texts), self.rows.shape[1]), dtype=np.float32)
        for at, text in enumerate(texts):
            chosen = self.ids(text)
            if chosen:
                result[at] = np.einsum("p,pd->d", self.scales[chosen].astype(np.float32), self.rows[chosen])
        length = np.maximum(np.linalg.norm(result, axis=1, keepdims=True), 1e-9)
        unit: Floats = np.divide(result, length, dtype=np.float32)
        return unit

    def ids(self, text: str) -> list[int]:
        """The rows that a text uses: each word is split greedily into the longest known pieces."""
        found: list[int] = []
        for word in words_of(text):
            begin = 0
            while begin < len(word) <= LONGEST_WORD:
                prefix = "##" if begin else ""
                end = len(word)
                while end > begin and prefix + word[begin:end] not in self.pieces:
                    end -= 1
                if end == begin:
                    # No piece starts with this character: the rest of the word is ignored.
                    break
                found.append(self.pieces[prefix + word[begin:end]])
                begin = end
        return found


def words_of(text: str) -> list[str]:
    """Lower-case words without accents."""
    plain = unicodedata.normalize("NFD", text.lower())
    return _WORD.findall("".join(mark for mark in plain if unicodedata.category(mark) != "Mn"))
