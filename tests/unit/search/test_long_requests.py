"""Of a long request the beginning is read: it costs as much as one that people write, and ordinary ones stay whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from mcp_optimizer.catalog.tools import make_records
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.search.engine import SearchIndex
from mcp_optimizer.search.index_parts import Entry
from mcp_optimizer.search.lexical import Floats, Vocabulary
from mcp_optimizer.search.tool_texts import KEYWORD_CHARS, REQUEST_CHARS, REQUEST_WORDS, keywords_read, request_read
from tests.unit.catalogs import mcp_tool
from tests.unit.search.toy_encoder import ToyEncoder

LONG = {
    "sentences": "show me the picture of a letter to everybody. " * 215,
    "one letter each": "a. " * 3_300,
    "a single word": "picture" * 1_414,
    "marks": "'" * 9_900,
    "blanks": "picture" + " " * 9_880 + "letter",
    "ideographs": "画" * 9_900,
    "accents": "e\u0301 " * 3_300,
    "half of a pair": "\ud800 " * 4_950,
    "semicolons": "send a letter; " * 660,
}


class Listening(ToyEncoder):
    """Notes what it is asked to embed for requests."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def begin_queries(self, texts: Sequence[str]) -> Callable[[], Floats]:
        self.asked += texts
        return super().begin_queries(texts)


def index_with(encoder: Listening) -> SearchIndex:
    vocabulary = Vocabulary()
    tools = [mcp_tool("show_picture", "Show a picture"), mcp_tool("send_letter", "Send a letter")]
    records = make_records("server", [Definition.of(tool) for tool in tools], {}, vocabulary)
    vectors = encoder.embed_tools([record.text for record in records])
    entries = [Entry(one.server, one.name, one.counts, vector) for one, vector in zip(records, vectors, strict=True)]
    return SearchIndex(entries, vocabulary, encoder)


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_the_encoder_reads_no_more_of_a_long_request_than_of_one_that_people_write(text: str) -> None:
    encoder = Listening()
    index, everything = index_with(encoder), np.ones(2, dtype=np.bool_)
    index.search(text, text, everything, 5)
    index.ranking(text, everything, 5)
    index.contributions(text, [0, 1])
    assert encoder.asked
    assert all(len(asked) <= REQUEST_CHARS + KEYWORD_CHARS + 1 for asked in encoder.asked)
    assert sum(map(len, encoder.asked)) <= 3 * 2 * (REQUEST_CHARS + KEYWORD_CHARS + 1)


def test_an_ordinary_request_is_read_to_its_end() -> None:
    request = "Look up every open issue of the project, and then tell the team in its channel what is to do. " * 17
    assert len(request) > 1_500
    assert request_read(request) == request
    assert keywords_read("github issue tracker, team chat, messages") == "github issue tracker, team chat, messages"


def test_a_request_is_cut_after_a_word() -> None:
    assert request_read("of " * 1_000) == ("of " * REQUEST_WORDS).strip()
