"""The shipped encoder in a running gateway: finds tools by meaning, embeds each once, returns none if none fits."""

from __future__ import annotations

import pytest

from mcp_optimizer import Optimizer


@pytest.fixture(autouse=True)
def _with_the_encoder(monkeypatch: pytest.MonkeyPatch, _by_words: None) -> None:
    monkeypatch.delenv("MCP_OPTIMIZER_ENCODER")


@pytest.mark.slow
async def test_tools_are_found_by_meaning_embedded_once_and_unrelated_ones_are_marked() -> None:
    async with Optimizer.from_config(demo=True, wait=120) as optimizer:
        assert optimizer.ingestion.embedded == 85
        assert not optimizer.snapshot.index.by_words_only
        # The tool's name and description contain no word of the request.
        found = await optimizer.find("relocate a ticket")
        assert "move_card" in [tool.name for tool in found.tools]
        nothing = await optimizer.find("what is the capital of France")
        assert len(nothing.tools) <= 3
        assert (nothing.note or "").startswith("No tool fits")
    async with Optimizer.from_config(demo=True, wait=120) as again:
        assert again.ingestion.embedded == 0
        assert not again.snapshot.index.by_words_only


@pytest.mark.parametrize("encoder", ["static", "none"])
async def test_other_encoders_find_too(encoder: str) -> None:
    async with Optimizer.from_config(demo=True, encoder=encoder) as optimizer:
        found = await optimizer.find("search the web")
        assert found.tools[0].name == "web_search"
        assert optimizer.snapshot.index.by_words_only is (encoder == "none")


async def test_an_encoder_that_cannot_be_used_leaves_search_by_words(caplog: pytest.LogCaptureFixture) -> None:
    async with Optimizer.from_config(demo=True, encoder="/no/such/folder") as optimizer:
        found = await optimizer.find("search the web")
    assert found.tools[0].name == "web_search"
    assert "/no/such/folder" in caplog.text
