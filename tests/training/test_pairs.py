"""The pair builder takes nothing from the dev sets."""

import json
from pathlib import Path
from typing import Any

import pytest

from training import pairs, sets

real_data = pytest.mark.skipif(
    not (sets.data_folder() / "retrieval" / "train").exists(), reason="the shared data is not on this machine"
)


def write_set(folder: Path, tools: list[dict[str, Any]], queries: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True)
    (folder / "tools.jsonl").write_text("".join(json.dumps(tool) + "\n" for tool in tools))
    if queries:
        (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))


def tool(name: str, description: str = "Sends a letter. Takes a stamp.") -> dict[str, Any]:
    return {"id": name, "server": "post", "name": name, "description": description, "inputSchema": {}}


@pytest.fixture
def small_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One query a train set, one a dev set; a corpus that holds a dev set's gold tool."""
    root = tmp_path / "retrieval"
    for name in sets.TRAIN_SETS:
        queries = [
            {"id": "1", "query": "Send, a LETTER to Anna!", "relevant": ["send"]},
            {"id": "2", "query": f"only in {name}", "relevant": ["send"]},
        ]
        write_set(root / "train" / name, [tool("send")], queries)
    for name in (*sets.DEV_SETS, sets.EXTRA_DEV_SET):
        gold = tool("dev_gold", "Weighs a parcel on the dev scale.")
        write_set(
            root / "dev" / name, [gold], [{"id": "1", "query": "send a letter to anna", "relevant": ["dev_gold"]}]
        )
    for name in sets.CORPORA:
        shared = tool("dev_gold", "Weighs a parcel on the dev scale.")
        write_set(root / "corpora" / name, [shared, tool(f"own_{name}", f"Stamps the {name}. Twice.")], [])
    (tmp_path / "mcp-tools-manifest.json").write_text("[]")
    monkeypatch.setenv("TRAINING_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("small_data")
def test_a_query_that_a_dev_set_also_has_is_left_out_however_it_is_written() -> None:
    _, found = pairs.build(seed=7)
    queries = {pair.query for pair in found}
    assert "Send, a LETTER to Anna!" not in queries
    assert "only in metatool" in queries


@pytest.mark.usefixtures("small_data")
def test_a_corpus_tool_that_answers_a_dev_query_is_left_out() -> None:
    tools, _ = pairs.build(seed=7)
    names = {one.name for one in tools}
    assert "dev gold" not in names
    assert "own corpus docker" in names


@pytest.mark.usefixtures("small_data")
def test_the_same_seed_gives_the_same_pairs() -> None:
    assert pairs.build(seed=3) == pairs.build(seed=3)


@pytest.mark.slow
@real_data
def test_no_dev_query_no_dev_gold_tool_and_no_dev_folder_is_in_the_real_pairs() -> None:
    tools, found = pairs.build(seed=7)
    assert not {pairs.normalised(pair.query) for pair in found} & pairs.dev_queries()
    assert {pair.source for pair in found} <= {*sets.TRAIN_SETS, *sets.CORPORA, "mcp_tools_free"}
    train_tools = sum(len(sets.load_train(name).tools) for name in sets.TRAIN_SETS)
    assert not {pairs.identity(one) for one in tools[train_tools:]} & pairs.dev_gold_tools()
