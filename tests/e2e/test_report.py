"""The commands `report` and `show`, as people and programs use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import DATA
from tests.e2e.running import command


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    schema = {"type": "object", "properties": {"id": {"type": "string", "title": "Id"}}, "$schema": "x"}
    tools = [
        {
            "name": name,
            "description": f"Says {name} to a friend. At length.",
            "inputSchema": schema,
            "outputSchema": schema,
        }
        for name in ("hello", "goodbye")
    ]
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / "as_list.json").write_text(json.dumps(tools))
    (folder / "as_object.json").write_text(json.dumps({"tools": tools[:1]}))
    return folder


@pytest.mark.requirement("B6", "PH-1", "PH-2", "PH-3", "TP-9")
async def test_the_demo_kanban_server_alone_meets_the_targets_of_its_document() -> None:
    report = (await command("report", "--demo", "--servers", "kanban", "--json", cold=True)).json
    assert report["tool_count"] == 65
    assert 38_000 < report["baseline_tokens"] < 40_000
    assert [phase["target_reduction"] for phase in report["phases"]] == [5_600, 24_300, 2_000]
    assert all(phase["achieved"] for phase in report["phases"]), report["phases"]
    assert set(report["largest_three"]["tools"]) == {"create_card", "list_cards", "update_card"}
    assert report["largest_three"]["schema"]["percent"] >= 39
    assert report["total"]["percent"] >= 69
    profiles = {row["profile"]: row for row in report["profiles"]}
    assert [profiles[name]["tools"] for name in ("Minimal", "Standard", "Full")] == [12, 32, 65]
    assert [row["load_strategy"] for row in profiles.values()] == ["Immediate", "OnFirstUse", "OnDemand"]
    assert {row["tier_name"]: row["tool_count"] for row in report["tiers"]} == {"Core": 12, "Common": 20, "Rare": 33}
    for tool in report["tools"]:
        assert tool["signature"] <= tool["baseline"]
        assert tool["schema"] <= tool["baseline"]
    assert {row["measurement_phase"] for row in report["metrics"]} == {
        "Baseline",
        "AfterPhase1",
        "AfterPhase2",
        "AfterPhase3",
    }


async def test_a_report_on_dumps_starts_nothing_and_names_servers_after_files(dumps: Path) -> None:
    report = (await command("report", "--tools-dir", dumps, "--json")).json
    assert {row["server"]: row["tools"] for row in report["servers"]} == {"as_list": 2, "as_object": 1}
    assert not any("target_reduction" in phase for phase in report["phases"])
    shown = await command("report", "--tools-dir", dumps)
    assert "3 tools" in shown.out


@pytest.mark.parametrize("columns", [80, 160])
async def test_a_report_fits_the_terminal(dumps: Path, columns: int) -> None:
    shown = await command("report", "--tools-dir", dumps, env={"COLUMNS": str(columns)})
    assert max(map(len, shown.out.splitlines())) <= columns
    assert "hello" in shown.out


async def test_a_report_is_written_as_one_page(dumps: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = await command("report", "--tools-dir", dumps, "--html", page)
    assert str(page) in done.out
    assert page.read_text().startswith("<!doctype html>")
    nowhere = await command("report", "--tools-dir", dumps, "--html", tmp_path / "absent" / "report.html")
    assert (nowhere.code, "Cannot write" in nowhere.err) == (2, True)


async def test_an_invalid_time_is_refused_with_an_example(dumps: Path) -> None:
    done = await command("report", "--tools-dir", dumps, "--since", "yesterday")
    assert done.code == 2
    assert "12h, 7d or 2w" in done.err


async def test_show_prints_a_tool_before_and_after(dumps: Path) -> None:
    shown = (await command("show", "goodbye", "--tools-dir", dumps, "--json", cold=True)).json
    assert shown["full"]["tokens"] > shown["schema"]["tokens"] > shown["signature"]["tokens"]
    assert "id?: str" in shown["signature"]["tool"]["description"]
    people = await command("show", "goodbye", "--tools-dir", dumps)
    assert "five words" in people.out


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "Cannot read the dump"), ('{"nothing": 1}', "neither a list of tools")],
)
async def test_a_broken_dump_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "broken.json").write_text(content)
    done = await command("report", "--tools-dir", tmp_path)
    assert done.code == 2
    assert message in done.err
    assert "broken.json" in done.err


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = await command("report", "--tools-dir", tmp_path / "absent")
    assert done.code == 2
    assert "absent" in done.err


@pytest.mark.skipif(not (DATA / "mcp-tools").is_dir(), reason="the data folder is not here")
async def test_businessmap_meets_what_its_document_asks(tmp_path: Path) -> None:
    dump = DATA / "mcp-tools" / "edicarlos.lds__businessmap-mcp.json"
    (tmp_path / "businessmap.json").write_bytes(dump.read_bytes())
    report = (await command("report", "--tools-dir", tmp_path, "--json")).json
    assert report["tool_count"] == 93
    assert report["largest_three"]["signature"]["percent"] >= 39
    assert report["total"]["percent"] >= 69
    tiers = {row["tier_name"]: row["tool_count"] for row in report["tiers"]}
    assert tiers["Core"] <= 93 / 5
    assert tiers["Core"] + tiers["Common"] <= 93 / 2
