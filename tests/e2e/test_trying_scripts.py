"""`script try`: a script from a terminal, once, by a running gateway or with the servers started for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import WriteServers
from tests.e2e.running import Finished, command, demo_entry, gateway_at

pytestmark = pytest.mark.slow

COUNTING = "cards = kanban.list_cards(board_id=1)['cards']\nprint('looked')\nlen(cards)\n"
CREATING = "kanban.create_card(column_id=11, title='New')['card']['title']\n"


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"kanban": demo_entry("kanban")})


async def tried(folder: Path, text: str, config: Path, *options: object, scripts: str = "write") -> Finished:
    path = folder / "script.py"
    path.write_text(text)
    shared = ("--config", config, "--database", folder / "catalog.db")
    return await command(
        "script",
        "try",
        path,
        *shared,
        *options,
        env={"MCP_OPTIMIZER_SCRIPTS": scripts, "MCP_OPTIMIZER_ENCODER": "none"},
    )


async def test_a_script_is_run_once_by_a_running_gateway_or_without_one(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = await tried(tmp_path, COUNTING, config)
    assert (alone.code, alone.out.split()[0]) == (0, "looked"), alone.err
    monkeypatch.setenv("MCP_OPTIMIZER_SCRIPTS", "write")
    async with gateway_at(config, "--database", tmp_path / "catalog.db", "--encoder", "none"):
        asked = await tried(tmp_path, COUNTING, config)
        # Whether scripts are on is the gateway's matter.
        monkeypatch.setenv("MCP_OPTIMIZER_SCRIPTS", "off")
        listed = await command("script", "list", "--config", config, "--database", tmp_path / "catalog.db")
    assert asked.out == alone.out
    assert (listed.out.strip(), listed.err) == ("0 stored scripts", "")


async def test_what_changes_something_is_named_first(config: Path, tmp_path: Path) -> None:
    refused = await tried(tmp_path, CREATING, config)
    assert refused.code == 1
    assert "may_change" in refused.out + refused.err
    done = await tried(tmp_path, CREATING, config, "--may-change", "kanban.create_card")
    assert (done.code, done.out.strip()) == (0, "New"), done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [("kanban.list_cardz(board_id=1)\n", "list_cards"), ("1 +\n", "line 1"), ("x" * 70_000, "script_characters")],
    ids=["misspelt", "not Python", "too long"],
)
async def test_a_wrong_script_is_told_before_anything_is_called(
    config: Path, tmp_path: Path, text: str, said: str
) -> None:
    wrong = await tried(tmp_path, text, config)
    assert wrong.code in (1, 2)
    assert said in wrong.out + wrong.err


async def test_where_scripts_are_off_or_a_file_is_missing_the_error_says_what_to_do(
    config: Path, tmp_path: Path
) -> None:
    off = await tried(tmp_path, COUNTING, config, scripts="off")
    assert (off.code, "--scripts read" in off.err) == (2, True)
    options = ("--config", config, "--database", tmp_path / "catalog.db", "--scripts", "read")
    missing = await command("script", "try", tmp_path / "nothing.py", *options)
    assert (missing.code, "Cannot read the script" in missing.err) == (2, True)
    direct = await command("call", "run_script", "--arg", "script=1", *options)
    assert (direct.code, "`mcp-optimizer script try FILE`" in direct.err) == (2, True)
