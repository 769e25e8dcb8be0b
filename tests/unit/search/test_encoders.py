"""Encoders: the same word pieces as the library, meaningful vectors, and errors that name the problem."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.search.encoders.choose import MODEL, load_encoder
from mcp_optimizer.search.encoders.onnx import OnnxEncoder
from mcp_optimizer.search.encoders.onnx_model import WordPieces
from mcp_optimizer.search.encoders.remote import RemoteEncoder
from mcp_optimizer.search.encoders.static import StaticEncoder
from mcp_optimizer.search.engine import Encoder, SearchIndex
from mcp_optimizer.search.index_parts import Entry
from mcp_optimizer.search.lexical import Floats, Vocabulary, count_terms
from mcp_optimizer.search.tool_texts import document, tool_text
from tests.unit.catalogs import mcp_tool
from tests.unit.endpoints import serving

# Made with the `tokenizers` library: BertNormalizer, BertPreTokenizer and WordPiece over the shipped vocabulary.
IDS = json.loads((Path(__file__).parent / "wordpiece_ids.json").read_text())
OPENING, CLOSING, UNKNOWN = 101, 102, 100

CREATE = mcp_tool("create_issue", "Create an issue in a repository", {"title": {"type": "string"}})
DELETE = mcp_tool("delete_branch", "Delete a branch of a repository", {"branch": {"type": "string"}})
WEATHER = mcp_tool("get_forecast", "Weather forecast for a city", {"city": {"type": "string"}})
TOOLS = (CREATE, DELETE, WEATHER)
TEXTS = [tool_text("github", tool) for tool in TOOLS]
ODD_TEXTS = ["", " ", "🚀", "天气预报", "ما هي حالة الطقس", "\u200b\x00\ufffd", "\ud800", "x" * 5_000, "word " * 2_000]


def lengths(vectors: Floats) -> Floats:
    return np.asarray(np.linalg.norm(vectors, axis=1), dtype=np.float32)


def index_with(encoder: Encoder) -> SearchIndex:
    vocabulary = Vocabulary()
    vectors = encoder.embed_tools(TEXTS)
    entries = [
        Entry("github", tool.name, count_terms(document("github", tool), vocabulary), vector)
        for tool, vector in zip(TOOLS, vectors, strict=True)
    ]
    return SearchIndex(entries, vocabulary, encoder)


def found(index: SearchIndex, query: str) -> list[int]:
    return [hit.position for hit in index.search(query, "", np.ones(len(TOOLS), dtype=np.bool_), 5).hits]


@pytest.fixture(scope="module")
def pieces() -> WordPieces:
    return WordPieces((MODEL / "vocab.txt").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("case", IDS, ids=lambda case: ascii(case["text"])[:30])
def test_word_pieces_are_those_of_the_library(pieces: WordPieces, case: dict[str, Any]) -> None:
    assert pieces.rows([case["text"]], 10_000) == [case["ids"]]


@pytest.mark.parametrize("longest", [2, 3, 10, 64])
def test_a_long_text_is_cut_and_keeps_its_closing_piece(pieces: WordPieces, longest: int) -> None:
    (whole,) = pieces.rows(["supercalifragilistic tokenization " * 30], 10_000)
    (cut,) = pieces.rows(["supercalifragilistic tokenization " * 30], longest)
    assert cut == [*whole[: longest - 1], CLOSING]
    (short,) = pieces.rows(["word"], 3)
    assert short == [OPENING, *short[1:-1], CLOSING]
    assert len(short) == 3


def test_a_word_without_pieces_is_one_unknown() -> None:
    tiny = WordPieces(["[UNK]", "[CLS]", "[SEP]", "create", "##d", "issue"])
    assert tiny.rows(["Created issue", "creates issue", "zebra", "issue🚀", "a" * 101], 50) == [
        [1, 3, 4, 5, 2],
        [1, 0, 5, 2],
        [1, 0, 2],
        [1, 0, 2],
        [1, 0, 2],
    ]


def test_texts_are_read_one_by_one(pieces: WordPieces) -> None:
    texts = [case["text"] for case in IDS]
    assert pieces.rows(texts, 10_000) == [case["ids"] for case in IDS]
    assert pieces.rows([], 10) == []


@pytest.fixture(scope="module")
def onnx() -> OnnxEncoder:
    return OnnxEncoder(MODEL, "bundled")


def test_the_transformer_gives_unit_vectors_the_same_every_time(onnx: OnnxEncoder) -> None:
    vectors = onnx.embed_tools([*TEXTS, *ODD_TEXTS])
    assert vectors.shape == (len(TEXTS) + len(ODD_TEXTS), 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(lengths(vectors), 1, atol=1e-4)
    np.testing.assert_array_equal(vectors, onnx.embed_tools([*TEXTS, *ODD_TEXTS]))
    assert len(onnx.embed_queries([])) == 0


@pytest.mark.slow
def test_what_is_embedded_together_does_not_matter(onnx: OnnxEncoder) -> None:
    texts = [f"{text} {'more words ' * (number % 7)}" for number, text in enumerate(TEXTS * 7)]
    together, backwards = onnx.embed_tools(texts), onnx.embed_tools(texts[::-1])[::-1]
    np.testing.assert_allclose(together, backwards, atol=1e-3)
    alone = np.concatenate([onnx.embed_tools([text]) for text in texts[:5]])
    np.testing.assert_allclose(together[:5], alone, atol=1e-3)


@pytest.mark.parametrize(
    ("query", "nearest"),
    [("make a new ticket", 0), ("report a bug", 0), ("get rid of old code lines", 1), ("will it rain tomorrow", 2)],
)
def test_the_transformer_knows_what_is_meant(onnx: OnnxEncoder, query: str, nearest: int) -> None:
    cosines = onnx.embed_tools(TEXTS) @ onnx.embed_queries([query])[0]
    assert int(cosines.argmax()) == nearest


def test_a_request_in_other_words_finds_the_tool(onnx: OnnxEncoder) -> None:
    index = index_with(onnx)
    assert not index.by_words_only
    everything = np.ones(len(TOOLS), dtype=np.bool_)
    assert index.ranking("make a new ticket", everything, 3).positions[0] == 0
    assert found(index, "delete_branch")[0] == 1
    assert found(index, "") == []


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize(
    "query",
    [
        "criar um novo ticket no repositório",
        "Wie wird das Wetter in München?",
        "東京の天気を教えて",
        "ما هي حالة الطقس",
        "🚀🎉",
        "x" * 3_000,
        "do this for me now, and then that. " * 8,
    ],
)
def test_a_request_in_any_language_is_embedded_and_a_name_in_it_wins(onnx: OnnxEncoder, query: str) -> None:
    index = index_with(onnx)
    assert len(found(index, query)) <= len(TOOLS)
    assert found(index, f"{query} delete_branch {query}")[0] == 1


def test_the_weights_name_the_transformer(onnx: OnnxEncoder) -> None:
    digest = hashlib.sha256((MODEL / "model.onnx").read_bytes()).hexdigest()
    assert onnx.name == f"bundled:{digest[:12]}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "my-model"
    made.mkdir()
    for name in ("model.onnx", "vocab.txt"):
        shutil.copy(MODEL / name, made / name)
    return made


def damage_model(folder: Path) -> None:
    (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:10_000])


def empty_model(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"")


def remove_model(folder: Path) -> None:
    (folder / "model.onnx").unlink()


def remove_vocabulary(folder: Path) -> None:
    (folder / "vocab.txt").unlink()


def cut_vocabulary(folder: Path) -> None:
    (folder / "vocab.txt").write_text("create\nissue\n")


def binary_vocabulary(folder: Path) -> None:
    (folder / "vocab.txt").write_bytes(b"\xff\xfe\x00")


def longer_vocabulary(folder: Path) -> None:
    """Use the vocabulary of a larger model, with ids beyond this model's table."""
    text = (folder / "vocab.txt").read_text(encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(["unheard"] * 40_000) + "\n" + text, encoding="utf-8")


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize(
    "harm",
    [
        damage_model,
        empty_model,
        remove_model,
        remove_vocabulary,
        cut_vocabulary,
        binary_vocabulary,
        longer_vocabulary,
        remove_folder,
    ],
)
def test_a_damaged_or_missing_folder_is_named(folder: Path, harm: Any) -> None:
    harm(folder)
    with pytest.raises(ConfigurationError, match="my-model"):
        OnnxEncoder(folder, "custom")


def small_table() -> StaticEncoder:
    pieces = ["create", "issue", "##s", "delete", "branch", "ticket", "café"]
    rows = np.array([[90, 0, 9], [99, 9, 0], [1, 1, 1], [0, 90, 9], [0, 99, 0], [95, 5, 0], [0, 0, 99]], dtype=np.int8)
    scales = np.full(len(pieces), 0.01, dtype=np.float16)
    return StaticEncoder({piece: at for at, piece in enumerate(pieces)}, rows, scales, fusion="onnx")


def test_a_static_table_is_read_as_it_was_saved(tmp_path: Path) -> None:
    table, path = small_table(), tmp_path / "static.npz"
    table.save(path)
    read = StaticEncoder.load(path)
    assert dict(read.pieces) == dict(table.pieces)
    np.testing.assert_array_equal(read.rows, table.rows)
    np.testing.assert_array_equal(read.scales, table.scales)
    np.testing.assert_array_equal(read.embed_tools(TEXTS), table.embed_tools(TEXTS))
    assert read.name == f"static:{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


def test_a_word_is_cut_into_the_longest_pieces_that_the_table_has() -> None:
    assert small_table().ids("Issues, create_issue!") == [1, 2, 0, 1]
    # The unknown rest of a word is ignored, and so is an overlong word.
    assert small_table().ids("issuez zebra " + "issue" * 20) == [1]


def test_a_static_table_gives_unit_vectors_and_zeros_for_what_it_does_not_know() -> None:
    vectors = small_table().embed_queries(["create an issue", "zebra", "", "🚀", "delete branches"])
    np.testing.assert_allclose(lengths(vectors), [1, 0, 0, 0, 1], atol=1e-4)
    assert vectors.dtype == np.float32


def test_a_text_that_a_static_table_does_not_know_does_not_break_a_search() -> None:
    index = index_with(small_table())
    assert found(index, "ticket")[0] == 0
    assert found(index, "zebra") == []
    assert found(index, "weather forecast")[0] == 2
    assert found(index, "get_forecast")[0] == 2


@pytest.fixture(scope="module")
def static() -> Encoder:
    encoder = load_encoder("static")
    assert encoder is not None
    return encoder


def test_the_shipped_table_gives_unit_vectors_that_mean_something(static: Encoder) -> None:
    vectors = np.stack([np.asarray(vector) for vector in static.embed_tools(TEXTS)])
    np.testing.assert_allclose(lengths(vectors), 1, atol=1e-4)
    assert np.isfinite(static.embed_queries(ODD_TEXTS)).all()
    assert int((vectors @ static.embed_queries(["make a new ticket"])[0]).argmax()) == 0
    assert int((vectors @ static.embed_queries(["is it going to rain, weather"])[0]).argmax()) == 2


@dataclass
class Endpoint:
    """A test's own `/embeddings` server: the requests that it received, and how it answers."""

    address: str = ""
    status: int = 200
    answer: Any = None
    asked: list[tuple[str, dict[str, Any], str | None]] = field(default_factory=list)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = Endpoint()

    def answer(path: str, body: Any, key: str | None) -> tuple[int, Any]:
        made.asked.append((path, body, key))
        # Each vector contains the length of its text. They are sent in reverse, so that only `index` gives the order.
        data = [{"index": at, "embedding": [len(text), 3.0]} for at, text in enumerate(body["input"])][::-1]
        return made.status, {"data": data} if made.answer is None else made.answer

    with serving(answer) as made.address:
        yield made


def test_a_remote_encoder_sends_batches_and_keeps_the_order(endpoint: Endpoint) -> None:
    texts = ["x" * (number + 1) for number in range(150)]
    encoder = RemoteEncoder(f"{endpoint.address}#my-model", "secret")
    vectors = encoder.embed_tools(texts)
    np.testing.assert_allclose(lengths(vectors), 1, atol=1e-5)
    np.testing.assert_allclose(vectors[:, 0] / vectors[:, 1] * 3, np.arange(1, 151), rtol=1e-4)
    assert [len(body["input"]) for _, body, _ in endpoint.asked] == [64, 64, 22]
    assert {(path, body["model"], key) for path, body, key in endpoint.asked} == {
        ("/v1/embeddings", "my-model", "Bearer secret")
    }


def test_a_remote_encoder_needs_no_key_and_reads_any_text(endpoint: Endpoint) -> None:
    encoder = RemoteEncoder(f"{endpoint.address}/#m")
    assert encoder.embed_queries(["", "\ud800 half", "天气"]).shape == (3, 2)
    path, body, key = endpoint.asked[0]
    assert (path, key) == ("/v1/embeddings", None)
    assert body["input"] == [" ", "? half", "天气"]
    assert len(encoder.embed_tools([])) == 0


def test_a_vector_of_zeros_from_a_remote_encoder_stays_one(endpoint: Endpoint) -> None:
    endpoint.answer = {"data": [{"index": 0, "embedding": [0.0, 0.0]}]}
    assert RemoteEncoder(f"{endpoint.address}#m").embed_queries(["x"]).tolist() == [[0.0, 0.0]]


@pytest.mark.slow
def test_another_address_or_model_is_another_encoder() -> None:
    names = {RemoteEncoder(address).name for address in ("http://a/v1#m", "http://b/v1#m", "http://a/v1#n")}
    assert len(names) == 3
    assert "secret" not in RemoteEncoder("http://a/v1#m", "secret").name


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_an_error_of_a_remote_encoder_says_whose_it_is(endpoint: Endpoint, status: int) -> None:
    endpoint.status, endpoint.answer = status, {"error": "no"}
    with pytest.raises(ConnectionError, match=rf"my-model.*{status}"):
        RemoteEncoder(f"{endpoint.address}#my-model").embed_queries(["x"])


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        {"data": None},
        {"data": []},
        {"data": [{"embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]},
    ],
)
def test_an_answer_that_holds_no_vectors_is_an_error(endpoint: Endpoint, answer: Any) -> None:
    endpoint.answer = answer
    with pytest.raises(ConnectionError, match="gave no vectors"):
        RemoteEncoder(f"{endpoint.address}#m").embed_queries(["x"])


def test_a_remote_encoder_that_nobody_answers_for_is_an_error(endpoint: Endpoint) -> None:
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1/"):
        RemoteEncoder("http://127.0.0.1:1/v1#m").embed_queries(["x"])


def test_a_remote_encoder_that_failed_holds_up_one_search_and_not_the_next(endpoint: Endpoint) -> None:
    encoder = RemoteEncoder(f"{endpoint.address}#m")
    endpoint.status, endpoint.answer = 500, {}
    with pytest.raises(ConnectionError, match="500"):
        encoder.embed_queries(["x"])
    asked = len(endpoint.asked)
    with pytest.raises(ConnectionError, match=r"asked again in \d+ s"):
        encoder.embed_queries(["x"])
    assert len(endpoint.asked) == asked


@pytest.mark.parametrize("address", ["https://host/v1", "https://host/v1#", "http://host"])
def test_an_address_without_a_model_is_a_mistake_in_the_settings(address: str) -> None:
    with pytest.raises(ConfigurationError, match="needs a model"):
        load_encoder(address)


def test_each_choice_of_the_settings_is_an_encoder(folder: Path) -> None:
    assert load_encoder("none") is None
    names = {}
    for choice in ("bundled", "static", str(folder), "https://host/v1#m"):
        encoder = load_encoder(choice, "key")
        assert encoder is not None
        names[choice] = encoder.name
    assert names["bundled"].startswith("bundled:")
    assert names["static"].startswith("static:")
    assert names[str(folder)] == names["bundled"].replace("bundled", "custom")
    assert names["https://host/v1#m"] == "remote:https://host/v1#m"


@pytest.mark.slow
def test_a_folder_may_be_in_ones_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("USERPROFILE", str(folder.parent))
    encoder = load_encoder("~/my-model")
    assert encoder is not None
    assert encoder.name.startswith("custom:")


def test_a_folder_that_does_not_exist_is_a_mistake_in_the_settings() -> None:
    with pytest.raises(ConfigurationError, match="no-such-folder"):
        load_encoder("/no-such-folder")


def test_without_onnxruntime_the_static_encoder_is_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "mcp_optimizer.search.encoders.onnx")
    with caplog.at_level(logging.WARNING):
        encoder = load_encoder("bundled")
    assert isinstance(encoder, StaticEncoder)
    assert "onnxruntime cannot be loaded" in caplog.text
