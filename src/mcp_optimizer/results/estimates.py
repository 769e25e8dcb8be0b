"""Determines how many tokens a text has: counts them, or estimates where counting would take too long.

`auto` counts texts that take about a millisecond. For longer ones it counts samples of that size, one from each equal
part of the text; their ratio of characters to tokens is within 5 % for 19 of 20 results. If the tokenizer gives up on a
text, the fixed ratio for its kind is used. Pure, except that the tokenizer is loaded when first used.
`benchmarks/tool_results/estimates.py` measures the errors of each method, listed in docs/results.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from enum import StrEnum
from functools import cache

from mcp_optimizer.largejson.raw import LargeText
from mcp_optimizer.results.fitting import Count
from mcp_optimizer.results.metadata import TokenInfo
from mcp_optimizer.results.result_texts import Reading, Text, size_of
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.token_counter import TokenCounter


class Method(StrEnum):
    """The available methods of counting or estimating."""

    AUTO = "auto"
    DIV_4 = "character_count_div_4"
    DIV_3 = "character_count_div_3"
    CL100K = "tiktoken:cl100k_base"
    O200K = "tiktoken:o200k_base"


class TextKind(StrEnum):
    """Kinds of text with different ratios of characters to tokens."""

    JSON = "json"
    CODE = "code"
    PROSE = "prose"
    CJK = "cjk"
    ACCENTED = "accented_latin"


COUNTED_EXACTLY = 16_000
"""Characters that take about a millisecond to count, or a few milliseconds if the text is hostile."""

CHARACTERS_PER_TOKEN = {
    TextKind.JSON: 3.25,
    TextKind.CODE: 3.91,
    TextKind.PROSE: 3.84,
    TextKind.CJK: 1.49,
    TextKind.ACCENTED: 2.7,
}
"""Medians over real results, with cl100k_base; `benchmarks/tool_results/estimates.py` prints them."""

_SAMPLE = 400
_SAMPLES = COUNTED_EXACTLY // _SAMPLE
_LEAST_SAMPLES = 2
"""Minimum samples of each of several texts, however small its share; a single one would always be its beginning."""
_TEXTS = 100
"""Maximum texts that are sampled; if there are more, an evenly spread selection of them."""
_GOLDEN = (math.sqrt(5) - 1) / 2
"""The fractional parts of its multiples are spread over 0 to 1 and never repeat."""
_WORD = 40
"""Characters within which a sample looks for the start of a word, because half a word has different tokens."""

_CHUNK = 64 * 1024

_LONG = 16
"""Characters per token beyond which a text counts as long, even if it is all blanks."""

_CJK = regex(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_ACCENTED = regex(r"[\u00c0-\u024f\u1e00-\u1eff]")
_CODE = regex(r"[{}()\[\];=<>_/\\|#*+$&]")


def kind_of(text: Text) -> TextKind:
    """The kind of a text, judged by samples."""
    sample = _sampled(text, 8, 400)
    if len(_CJK.findall(sample)) > len(sample) * 0.15:
        return TextKind.CJK
    if sample[:1] in "{[" and sample.count('"') > len(sample) * 0.02:
        return TextKind.JSON
    if len(_ACCENTED.findall(sample)) > len(sample) * 0.015:
        return TextKind.ACCENTED
    if len(_CODE.findall(sample)) > len(sample) * 0.04:
        return TextKind.CODE
    return TextKind.PROSE


class Estimator:
    """Estimates with one method; `auto` counts with `counter`."""

    def __init__(self, method: str, counter: TokenCounter) -> None:
        self.method = Method(method)
        self._counter = _counter(self.method.partition(":")[2]) if ":" in self.method else counter
        self._exact = f"tiktoken:{self._counter.encoding_name}"
        self._is_by_length = self.method in (Method.DIV_4, Method.DIV_3)
        self._counts_all = self.method is not Method.AUTO
        self._is_loading = False
        self.is_used = False
        """Whether anything was counted or estimated so far."""

    @property
    def counter(self) -> TokenCounter:
        """The counter that limits use: the encoding that the method names, otherwise the configured one."""
        return self._counter

    def begin(self) -> None:
        """Begin to load the tokenizer, if the method needs it, while a server works on what will be counted."""
        self.is_used = True
        if self._counter.loaded is None and not self._is_by_length and not self._is_loading:
            self._is_loading = True
            asyncio.get_running_loop().run_in_executor(None, self._load)

    def _load(self) -> None:
        # If it cannot be loaded, the first count says so.
        try:
            with contextlib.suppress(Exception):
                self.estimate(["x"])
        finally:
            self._is_loading = False

    async def ready(self) -> None:
        """Load the tokenizer, if the method needs it: in a thread, because that takes a tenth of a second."""
        self.is_used = True
        if self._counter.loaded is None and not self._is_by_length:
            await asyncio.to_thread(self.estimate, ["x"])

    def estimate(self, texts: Sequence[Text], *, exactly: bool = False, count: Count | None = None) -> TokenInfo:
        """The tokens of several texts together. With `exactly`, `auto` counts texts of any length; `count` may reuse
        earlier counts.
        """
        if self._is_by_length:
            return _by_length(texts, self.method)
        try:
            if exactly or self._counts_all or sum(map(size_of, texts)) <= COUNTED_EXACTLY:
                tokens = 0
                for text in texts:
                    tokens += self.count(text, count)
                return TokenInfo(tokens, self._exact)
            return TokenInfo(self._sampled_counts(texts), f"sampled:{self._exact}")
        except ValueError:
            # The tokenizer gives up on some texts; that must not lose the result.
            return _by_kind(texts)

    def is_at_most(self, tokens: int, reading: Reading) -> bool:
        """Whether both the texts and the structured content have at most so many tokens; a model may get either.

        A result with parts that are not counted never qualifies.
        """

        def are_at_most(texts: Sequence[Text]) -> bool:
            return sum(map(size_of, texts)) <= tokens * _LONG and self.estimate(texts).estimated <= tokens

        if reading.has_uncounted or reading.has_large_structure:
            return False
        return are_at_most(reading.texts) and are_at_most([reading.structured_text])

    def count(self, text: Text, count: Count | None = None) -> int:
        """The tokens of a text of any length. Long texts are counted in chunks, because counting blocks the
        interpreter until it returns.
        """
        count = count or self._counter.count_tokens
        if isinstance(text, LargeText):
            return sum(map(count, text.parts(_CHUNK)))
        if len(text) <= _CHUNK:
            return count(text)
        return sum(count(text[at : at + _CHUNK]) for at in range(0, len(text), _CHUNK))

    def _sampled_counts(self, texts: Sequence[Text]) -> int:
        some = texts[:: len(texts) // _TEXTS + 1]
        total = max(sum(map(size_of, some)), 1)
        counted = sum(self._sampled_count(text, _samples(text, total)) for text in some)
        return counted if len(some) == len(texts) else round(counted * sum(map(size_of, texts)) / total)

    def _sampled_count(self, text: Text, samples: int) -> int:
        sample = _sampled(text, samples, _SAMPLE)
        counted = self._counter.count_tokens(sample)
        if sample is text:
            return counted
        # The size of a large text is known in bytes, so the sample is measured in bytes too.
        size = len(sample) if isinstance(text, str) else len(sample.encode("utf-8", "surrogatepass"))
        return round(size_of(text) * counted / max(size, 1))


def _samples(text: Text, total: int) -> int:
    """How many samples this text gets, in proportion to its share of the total."""
    return max(math.ceil(_SAMPLES * size_of(text) / total), _LEAST_SAMPLES)


def _by_length(texts: Sequence[Text], method: Method) -> TokenInfo:
    return TokenInfo(math.ceil(sum(map(_characters, texts)) / (3 if method is Method.DIV_3 else 4)), method.value)


def _characters(text: Text) -> int:
    return len(text) if isinstance(text, str) else text.characters


def _by_kind(texts: Sequence[Text]) -> TokenInfo:
    kinds = [kind_of(text) for text in texts]
    tokens = sum(_characters(text) / CHARACTERS_PER_TOKEN[kind] for text, kind in zip(texts, kinds, strict=True))
    return TokenInfo(math.ceil(tokens), f"calibrated:{kinds[0].value}")


def _sampled(text: Text, samples: int, length: int) -> str:
    """One piece of each equal part of the text, each starting at a word; the complete text if it is short.

    Their place differs from part to part: at equal distances, they could all be the same field of a table.
    """
    size = size_of(text)
    if isinstance(text, str) and size <= samples * length:
        return text
    step = size / samples
    free = max(step - length, 0)
    places = [round(number * step + free * (number * _GOLDEN % 1)) for number in range(samples)]
    if isinstance(text, LargeText):
        pieces = (text.sample(place, length) for place in places)
        return "".join(piece[_word_at(piece, 0, bool(at)) :] for at, piece in zip(places, pieces, strict=True))
    return "".join(text[_word_at(text, place, bool(place)) : place + length] for place in places)


def _word_at(text: str, place: int, is_inside: bool) -> int:
    found = [at for end in (" ", "\n") if (at := text.find(end, place, place + _WORD)) >= 0]
    return min(found) if found and is_inside else place


@cache
def _counter(encoding: str) -> TokenCounter:
    return TokenCounter(encoding)
