"""The pair builder takes nothing from the dev sets."""

import json
from pathlib import Path
from typing import Any

import pytest
from training.features import normalised

from training import pairs, sets, written

FOLDS = [f"{kind}_{fold}" for kind in ("mcp_tools_free", "written") for fold in range(written.FOLDS)]

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


TRAINS, KEPT_APART = "post-office", next(name for name in map("kept-{}".format, range(99)) if written.is_dev(name))


def write_servers(folder: Path) -> None:
    """Write a server for training and one that is held out, each with requests written for it."""
    (folder / "mcp-tools").mkdir()
    requests: list[dict[str, Any]] = []
    for server in (TRAINS, KEPT_APART):
        name = f"weigh_{server.replace('-', '_')}"
        tools = [
            {"name": name, "description": f"Weighs for {server}. In grams.", "inputSchema": {}},
            {"name": "run_command", "description": f"Runs a command for {server}. In a shell.", "inputSchema": {}},
        ]
        (folder / "mcp-tools" / f"{server}.json").write_text(json.dumps({"tools": tools}))
        requests.append({"server": server, "tool": name, "requests": [f"how heavy is it at {server}"]})
    requests[0]["requests"].append("Send a letter, to Anna.")
    (folder / "mcp-tools-manifest.json").write_text(
        json.dumps([{"server": server, "license": "MIT"} for server in (TRAINS, KEPT_APART)])
    )
    path = folder / "retrieval" / "written"
    path.mkdir()
    (path / "requests.jsonl").write_text("".join(json.dumps(one) + "\n" for one in requests))
    general = [{"server": s, "tool": "run_command", "requests": [f"disk at {s}"]} for s in (TRAINS, KEPT_APART)]
    (path / "general.jsonl").write_text("".join(json.dumps(one) + "\n" for one in general))


@pytest.fixture
def small_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Train and dev sets that share one query, spelled differently, and corpora with a dev set's gold tool."""
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
    write_servers(tmp_path)
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


@pytest.mark.usefixtures("small_data")
def test_written_requests_of_a_server_that_trains_are_pairs() -> None:
    tools, found = pairs.build(seed=7)
    [weighing] = [pair for pair in found if pair.query == f"how heavy is it at {TRAINS}"]
    assert (weighing.kind, tools[weighing.tools[0]].name) == ("written", "weigh post office")
    assert [pair.query for pair in found if pair.kind == "general"] == [f"disk at {TRAINS}"]


@pytest.mark.usefixtures("small_data")
def test_nothing_of_a_server_that_is_kept_apart_trains() -> None:
    tools, found = pairs.build(seed=7)
    assert not [one for one in tools if KEPT_APART in one.description or "kept" in one.name]
    assert not [pair for pair in found if KEPT_APART in pair.query]


@pytest.mark.usefixtures("small_data")
def test_the_kept_apart_servers_are_a_dev_set_with_all_their_tools() -> None:
    dev = sets.load_dev(sets.WRITTEN_DEV)
    assert [one.split("::")[1] for one in dev.ids] == [f"weigh_{KEPT_APART.replace('-', '_')}", "run_command"]
    assert [query.text for query in dev.queries] == [f"how heavy is it at {KEPT_APART}"]


@pytest.mark.usefixtures("small_data")
def test_a_written_request_that_a_dev_set_also_has_is_left_out() -> None:
    _, found = pairs.build(seed=7)
    assert "Send a letter, to Anna." not in {pair.query for pair in found}


def test_the_lists_that_measure_are_dev_queries(small_data: Path) -> None:
    listed = sets.listed_requests()
    assert len(listed) > 500
    assert {normalised(text) for text in listed} <= pairs.dev_queries()


@pytest.mark.full  # two minutes; nothing but new training data can change it
@real_data
def test_no_dev_query_no_dev_gold_tool_and_no_dev_folder_is_in_the_real_pairs() -> None:
    tools, found = pairs.build(seed=7)
    assert not {normalised(pair.query) for pair in found} & pairs.dev_queries()
    assert {pair.source for pair in found} <= {*sets.TRAIN_SETS, *sets.CORPORA, *FOLDS}
    train_tools = sum(len(sets.load_train(name).tools) for name in sets.TRAIN_SETS)
    assert not {one.identity() for one in tools[train_tools:]} & pairs.dev_gold_tools()
