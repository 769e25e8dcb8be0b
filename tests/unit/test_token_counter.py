"""Tokens are counted offline with tiktoken's own tables, and special tokens in a text are plain text."""

from __future__ import annotations

import hashlib
import socket
import zlib
from base64 import b64encode
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tiktoken_ext.openai_public as published_by_tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.token_counter import DEFAULT_ENCODING, VOCABULARIES, TokenCounter, load_encoding, read_words
from tests.trying import at_most
from tests.unit.catalogs import mcp_tool

ENCODINGS = ["cl100k_base", "o200k_base"]


def published(name: str) -> tuple[str, str]:
    """The hash of the rank table and the pattern, as in tiktoken, which would download the table now."""
    expected: list[str] = []

    def remember(_url: str, expected_hash: str) -> dict[bytes, int]:
        expected.append(expected_hash)
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published_by_tiktoken, "load_tiktoken_bpe", remember)
        pattern: str = getattr(published_by_tiktoken, name)()["pat_str"]
    return expected[0], pattern


@cache
def encoding_as_published(name: str) -> tiktoken.Encoding:
    ranks = {word: rank for rank, word in enumerate(read_words(VOCABULARIES[name]))}
    return tiktoken.Encoding(name=name, pat_str=published(name)[1], mergeable_ranks=ranks, special_tokens={})


@pytest.mark.requirement("A1", "FR-007", "SC-003")
@pytest.mark.promise("vocabularies-included")
@pytest.mark.parametrize("name", ENCODINGS)
def test_the_rank_table_is_the_one_tiktoken_publishes(name: str) -> None:
    words = enumerate(read_words(VOCABULARIES[name]))
    table = b"".join(b"%s %d\n" % (b64encode(word), rank) for rank, word in words)
    assert hashlib.sha256(table).hexdigest() == published(name)[0]


PIECES = [
    *(" ", "  ", "\n", "\r", "\t", "\v", "\x85", "\u00a0", "\u2028", "\u3000"),
    *("a", "Bc", "S", "\u017f", "\u212a", "é", "\u0301", "ǅ", "ʰ", "日本", "🙂", "\ud800", "7", "12345", "²", "٣"),
    *("'", "'s", "'LL", "'\u017f", "'re", "x'd", "_", ".", "!?", "/", "//\n", "<|endoftext|>", '{"a":', "\x00"),
]


@pytest.mark.slow
@pytest.mark.requirement("FR-007", "SC-003")
@pytest.mark.promise("vocabularies-included")
@pytest.mark.parametrize("name", ENCODINGS)
@given(pieces=st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=16))
@settings(max_examples=at_most(1_000), deadline=None)
def test_every_text_has_the_tokens_that_it_has_with_the_pattern_tiktoken_publishes(
    name: str, pieces: list[str]
) -> None:
    text = "".join(pieces)
    assert load_encoding(name).encode_ordinary(text) == encoding_as_published(name).encode_ordinary(text)


# From tiktoken's README and its own tests.
@pytest.mark.requirement("DM-TokenCounter", "FR-007")
@pytest.mark.parametrize(
    ("encoding", "text", "tokens"),
    [
        ("cl100k_base", "", []),
        ("cl100k_base", "hello world", [15339, 1917]),
        ("cl100k_base", "tiktoken is great!", [83, 1609, 5963, 374, 2294, 0]),
        ("cl100k_base", "rer", [38149]),
        ("cl100k_base", "'rer", [2351, 81]),
        ("cl100k_base", "today\n ", [31213, 198, 220]),
        ("cl100k_base", "today\n \n", [31213, 27907]),
        ("cl100k_base", "today\n  \n", [31213, 14211]),
        ("cl100k_base", "👍", [9468, 239, 235]),
        ("o200k_base", "hello world", [24912, 2375]),
    ],
)
def test_known_texts_have_their_known_tokens(encoding: str, text: str, tokens: list[int]) -> None:
    assert load_encoding(encoding).encode_ordinary(text) == tokens
    assert TokenCounter(encoding).count_tokens(text) == len(tokens)


@pytest.mark.requirement("A1", "DM-TokenCounter", "R-1")
def test_the_default_encoding_is_cl100k_base() -> None:
    assert TokenCounter().encoding_name == DEFAULT_ENCODING == "cl100k_base"
    assert TokenCounter().encoding.n_vocab == 100_256


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("special", ["<|endoftext|>", "<|fim_prefix|>", "<|endofprompt|>"])
def test_a_special_token_in_a_text_is_text(encoding: str, special: str) -> None:
    # As a special token it would count as one; by default, tiktoken raises an error.
    assert TokenCounter(encoding).count_tokens(special) > 3


def test_a_lone_surrogate_counts_as_the_replacement_character() -> None:
    counter = TokenCounter()
    assert counter.count_tokens("a\ud800b") == counter.count_tokens("a\ufffdb")
    assert counter.count_many(["a\ud800b"]) == [counter.count_tokens("a\ufffdb")]


def test_an_unknown_encoding_is_an_error_that_names_the_choices() -> None:
    with pytest.raises(ConfigurationError, match=r"'p50k_base'.*cl100k_base, o200k_base"):
        TokenCounter("p50k_base")


@pytest.mark.requirement("A1", "DM-TokenCounter", "R-2")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_tool_costs_the_tokens_of_its_json_form(encoding: str) -> None:
    tool = mcp_tool("create_issue", "Create an issue", {"title": {"type": "string", "default": None}}, futureField=[1])
    counter = TokenCounter(encoding)
    assert counter.count_tool_tokens(tool) == len(load_encoding(encoding).encode_ordinary(tool.model_dump_json())) > 20


@settings(max_examples=at_most(30), deadline=None)
@given(texts=st.lists(st.text(max_size=60), max_size=8))
def test_a_batch_counts_as_its_texts_do_one_by_one(texts: list[str]) -> None:
    counter = TokenCounter()
    assert counter.count_many(texts) == [counter.count_tokens(text) for text in texts]


@pytest.mark.slow
@pytest.mark.requirement("A1")
@pytest.mark.promise("vocabularies-included")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_counting_needs_no_network(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert len(load_encoding.__wrapped__(encoding).encode_ordinary("hello world")) == 2


def _flipped(packed: bytes) -> bytes:
    middle = len(packed) // 2
    return packed[:middle] + bytes([packed[middle] ^ 0xFF]) + packed[middle + 1 :]


def _one_byte_less(packed: bytes) -> bytes:
    return zlib.compress(zlib.decompress(packed)[:-1])


@pytest.mark.parametrize(
    "damage",
    [_flipped, lambda packed: packed[:1000], lambda _packed: b"", lambda _packed: b"<html>", _one_byte_less],
    ids=["flipped bit", "cut off", "empty", "another file", "a byte is missing"],
)
def test_a_damaged_vocabulary_is_refused(damage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = (resources.files("mcp_optimizer") / "vocabularies" / "cl100k_base.words").read_bytes()
    (tmp_path / "vocabularies").mkdir()
    (tmp_path / "vocabularies" / "cl100k_base.words").write_bytes(damage(packed))
    monkeypatch.setattr(resources, "files", lambda _package: tmp_path)
    with pytest.raises(ConfigurationError, match=r"cl100k_base.*damaged.*Reinstall"):
        load_encoding.__wrapped__("cl100k_base")


def test_a_text_that_the_tokenizer_gives_up_on_is_an_ordinary_error() -> None:
    # tiktoken's Rust part panics at a million spaces, with an exception that `except Exception` does not catch.
    counter = TokenCounter("o200k_base")
    with pytest.raises(ValueError, match="tokenizer"):
        counter.count_tokens(" " * 1_000_000)


def test_a_text_that_the_tokenizer_gives_up_on_counts_as_0_and_is_logged_if_it_has_a_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Choking(TokenCounter):
        def count_tokens(self, text: str) -> int:
            if "poison" in text:
                raise ValueError("the tokenizer choked")
            return super().count_tokens(text)

    assert Choking().count_or_zero("hello world") == TokenCounter().count_tokens("hello world")
    assert Choking().count_or_zero("poison") == 0
    assert caplog.text == ""
    assert Choking().count_or_zero("poison", "a definition") == 0
    assert "Cannot count a definition" in caplog.text
