"""Counts tokens with tiktoken, from vocabularies that ship with the package.

The only way this product counts tokens. tiktoken's own loader downloads its rank tables; ours are read from
`vocabularies/`, where `scripts/pack_vocabularies.py` has put them, and refused unless their SHA-256 is the one of what
tiktoken publishes. Knows nothing of databases or servers, and of tools only that they can be dumped to JSON.
"""

from __future__ import annotations

import hashlib
import logging
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import accumulate, count
from threading import Lock
from typing import Protocol

import tiktoken

from mcp_optimizer.errors import ConfigurationError

logger = logging.getLogger(__name__)

DEFAULT_ENCODING = "cl100k_base"


class Dumpable(Protocol):
    """Anything whose JSON form can be counted, such as an MCP tool."""

    def model_dump_json(self) -> str: ...


@dataclass(frozen=True)
class EncodingTable:
    """What tiktoken needs to know about an encoding in addition to its rank table, and the SHA-256 of that, as packed.

    tiktoken publishes one pattern for words and whitespace. Only its whitespace part needs lookahead, which tiktoken's
    fast engine cannot do, so `words` holds the rest as a separate group, without possessive quantifiers, for the same
    reason. Every text gets the same tokens as with the single pattern, in 60 to 80 % of the time.
    """

    name: str
    sha256: str
    words: str

    @property
    def pattern(self) -> str:
        return rf"(?:{self.words})|\s+(?!\S)|\s+"


VOCABULARIES = {
    vocabulary.name: vocabulary
    for vocabulary in (
        EncodingTable(
            name="cl100k_base",
            sha256="9ef8402c916638b4e5896df1b798958e6377ae5ee9ecce199388d117f2a44973",
            words=(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
            ),
        ),
        EncodingTable(
            name="o200k_base",
            sha256="2f451f31d7403017d0b0dc6319ded23a09f33f573b1635c001fc6b91a1c21302",
            words=(
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
                r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
                r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
            ),
        ),
    )
}


_COUNT_BYTES = 4


def read_words(vocabulary: EncodingTable) -> Iterator[bytes]:
    """The words of the rank table that tiktoken publishes, in the order of their ranks; refused if the hash differs."""
    packed = resources.files("mcp_optimizer") / "vocabularies" / f"{vocabulary.name}.words"
    try:
        content = zlib.decompress(packed.read_bytes())
    except (OSError, zlib.error):
        content = b""
    if hashlib.sha256(content).hexdigest() != vocabulary.sha256:
        raise ConfigurationError(
            f"The vocabulary {vocabulary.name} in this installation is damaged (its SHA-256 is not the "
            "published one). Reinstall mcp-optimizer-gateway."
        )
    # How many there are, the length of each in a byte, and the words.
    first = _COUNT_BYTES + int.from_bytes(content[:_COUNT_BYTES])
    ends = list(accumulate(content[_COUNT_BYTES:first], initial=first))
    return map(content.__getitem__, map(slice, ends, ends[1:]))


_LOADING = Lock()

_TURN = 0.02
"""Seconds for the event loop to finish its current work while other threads run as well."""


@cache
def load_encoding(name: str) -> tiktoken.Encoding:
    """Build the encoding: about a tenth of a second the first time, cached afterwards."""
    vocabulary = VOCABULARIES[name]
    # Without running Python code per word: that is faster, and no other thread can allocate long-lived objects between
    # these, so the memory of all of them can be freed.
    ranks = dict(zip(read_words(vocabulary), count(), strict=False))
    # This step and the next each hold the interpreter lock for some hundredths of a second: the event loop runs between
    # them.
    time.sleep(_TURN)
    # No special tokens: "<|endoftext|>" in a tool's description is ordinary text.
    encoding = tiktoken.Encoding(name=name, pat_str=vocabulary.pattern, mergeable_ranks=ranks, special_tokens={})
    # tiktoken's Rust part has its own table by now, so free this one.
    ranks.clear()
    return encoding


def _raise_panic(error: BaseException) -> None:
    """A panic in tiktoken's Rust part is not an `Exception` and would escape every handler."""
    # Its class cannot be imported.
    if type(error).__name__ == "PanicException":
        raise ValueError(f"the tokenizer gave up on a text: {error}") from error


class TokenCounter:
    """Token counting with a named encoding; works without any network."""

    def __init__(self, encoding_name: str = DEFAULT_ENCODING) -> None:
        if encoding_name not in VOCABULARIES:
            raise ConfigurationError(
                f"Unknown token encoding {encoding_name!r}. Choose one of: {', '.join(VOCABULARIES)}."
            )
        self.encoding_name = encoding_name
        self.loaded: tiktoken.Encoding | None = None
        """The encoding, if it is loaded, so that the next count is fast."""

    @property
    def encoding(self) -> tiktoken.Encoding:
        if (loaded := self.loaded) is None:
            # Loaded on first use, so a start with every count stored does not pay for it; once, for all threads.
            with _LOADING:
                loaded = self.loaded = load_encoding(self.encoding_name)
        return loaded

    def give_back(self) -> None:
        """Free the 25 MB of the encoding. The next count loads it again; counts in progress keep the one they have."""
        self.loaded = None
        load_encoding.cache_clear()

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""
        try:
            return len((self.loaded or self.encoding).encode_ordinary(text))
        except BaseException as error:
            _raise_panic(error)
            raise

    def count_or_zero(self, text: str, what: str = "") -> int:
        """Count the tokens of a text; 0 if the tokenizer fails on it, logged if `what` names the text."""
        try:
            return self.count_tokens(text)
        except ValueError:
            if what:
                logger.exception("Cannot count %s; it counts as 0", what)
            return 0

    def count_or_most(self, text: str) -> int:
        """Count the tokens of a text; the maximum it can have if the tokenizer fails on it."""
        try:
            return self.count_tokens(text)
        except ValueError:
            return len(text.encode("utf-8", "surrogatepass"))

    def count_tool_tokens(self, tool: Dumpable) -> int:
        """Count the tokens of a tool's JSON form."""
        return self.count_tokens(tool.model_dump_json())

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Count a batch of texts; the interpreter is released during each.

        One after the other: tiktoken's own multi-threaded batches take half as long again for texts of this size.
        """
        encode = self.encoding.encode_ordinary
        try:
            return [len(encode(text)) for text in texts]
        except BaseException as error:
            _raise_panic(error)
            raise
