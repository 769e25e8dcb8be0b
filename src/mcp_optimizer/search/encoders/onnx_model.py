"""Runs a model.onnx in this process: splits texts into word pieces, and runs the model on one text at a time.

Called by the encoder, and by the process that embeds tools, which loads nothing else; so this module imports as little
as possible. Word pieces follow BERT's uncased vocabulary, in plain Python, because the usual library brings a model hub
client and forty megabytes for a lookup in a table of 30,000 pieces.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_optimizer.runtime.lazy_numpy import np

if TYPE_CHECKING:
    from mcp_optimizer.search.lexical import Floats

LONGEST = 256
"""Maximum word pieces read per text. More than in training, which gives better results."""

EMPTY = "[empty]"
"""The text that replaces an empty one."""


def load_session(model: Path) -> Any:
    """Load the library, which takes 19 MB, and the model; the bundled one takes 34 MB."""
    # Otherwise onnxruntime writes a device id and events to the home folder and sends them to its maker. Must be set
    # before the import: the switch that it offers afterwards leaves two files behind.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        # An OSError, as for an encoder that cannot be reached: tools are then found by their words.
        raise OSError(f"onnxruntime cannot be loaded: {error}") from error

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Both would keep the peak memory: the arena as a pool for all runs, the pattern as a plan per text length.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    # Loaded by path: passed as bytes, the model would be in memory twice.
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(session: Any, row: list[int]) -> Floats:
    """The unit vector of a text, given as the numbers of its word pieces."""
    pieces = np.array([row], dtype=np.int64)
    [found] = session.run(None, {"input_ids": pieces, "attention_mask": np.ones_like(pieces)})
    [vector] = np.asarray(found, dtype=np.float32)
    unit: Floats = vector / np.maximum(np.linalg.norm(vector), 1e-9)
    return unit


_LONGEST_WORD = 100
_UNKNOWN, _OPENING, _CLOSING = "[UNK]", "[CLS]", "[SEP]"

# Blocks of ideographs, which are written without spaces; each one is a word.
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPieces:
    """Turns texts into rows of piece numbers."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self._unknown = self._numbers[_UNKNOWN]
        self._opening = self._numbers[_OPENING]
        self._closing = self._numbers[_CLOSING]
        self._pieces = lru_cache(maxsize=200_000)(self._find_pieces)

    def rows(self, texts: Sequence[str], longest: int) -> list[list[int]]:
        """The piece numbers of each text, including the opening and closing piece, at most `longest` in total."""
        return [self._row(text, longest) for text in texts]

    def _row(self, text: str, longest: int) -> list[int]:
        row = [self._opening]
        for word in split(text):
            row.extend(self._pieces(word))
            if len(row) >= longest:
                break
        return [*row[: longest - 1], self._closing]

    def _find_pieces(self, word: str) -> tuple[int, ...]:
        """The longest pieces from left to right; one unknown piece if the word cannot be split."""
        if len(word) > _LONGEST_WORD:
            return (self._unknown,)
        found: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else f"##{word[start:end]}"
                if (number := self._numbers.get(piece)) is not None:
                    found.append(number)
                    start = end
                    break
            else:
                return (self._unknown,)
        return tuple(found)


def split(text: str) -> list[str]:
    """Lower-case words without accents; each punctuation mark and each ideograph is a word."""
    spaced: list[str] = []
    for letter in text if text.isascii() else unicodedata.normalize("NFD", text):
        kind = _kind(letter)
        if kind == "drop":
            continue
        # Letter by letter, as the usual library does: on a whole word, Python applies the Greek final sigma rule.
        spaced.append(" " if kind == "space" else f" {letter} " if kind == "alone" else letter.lower())
    return "".join(spaced).split()


@lru_cache(maxsize=10_000)
def _kind(letter: str) -> str:
    code = ord(letter)
    category = unicodedata.category(letter)
    if letter in "\t\n\r" or category == "Zs":
        return "space"
    if code in (0, 0xFFFD) or category == "Mn" or category.startswith("C"):
        return "drop"
    if any(first <= code <= last for first, last in _IDEOGRAPHS):
        return "alone"
    is_ascii_mark = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return "alone" if is_ascii_mark or category.startswith("P") else "letter"
