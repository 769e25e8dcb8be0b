"""Servers that moved are switched off in the file they came from, and nothing else in it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_optimizer.config.clients.connecting import switched_off
from mcp_optimizer.config.clients.files import found_files
from mcp_optimizer.config.clients.importing import WantedServers, planned
from mcp_optimizer.config.known_clients.program import SwitchOff
from mcp_optimizer.config.known_clients.table import CLIENTS
from mcp_optimizer.config.textfiles.editing import CannotEdit
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import parsed
from tests.unit.config.clients.golden import made_machine, plan_of


@pytest.mark.parametrize("client", CLIENTS)
def test_what_was_moved_is_off_afterwards_and_the_rest_is_as_before(client: str, tmp_path: Path) -> None:
    machine = made_machine(tmp_path, client)
    for file in found_files(machine, [CLIENTS[client]]):
        if file.place.path.name == "config.json":
            continue  # A list in JSON, below.
        before = planned([file], {}, machine, WantedServers(from_folder=True))
        text = switched_off(file, [entry.listed for entry in before.taken])
        file.place.path.write_text(text)
        after = [one for one in plan_of(machine, client).entries if one.file.place.path == file.place.path]
        assert [one.listed.name for one in after if one.is_there] == []
        others = {entry.listed.name for entry in before.entries} - {entry.listed.name for entry in before.taken}
        assert others <= {entry.listed.name for entry in after}
        if file.client.switch_off is not SwitchOff.REMOVED:
            assert {entry.listed.name for entry in after} == {entry.listed.name for entry in before.entries}


def test_comments_and_order_stay(tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    path = machine.home / ".codeium" / "windsurf" / "mcp_config.json"
    path.parent.mkdir(parents=True)
    path.write_text('{\n  // mine\n  "b": 1,\n  "mcpServers": {\n    "x": {"command": "x"} // good\n  }\n}\n')
    plan = plan_of(machine, "windsurf")
    text = switched_off(plan.files[0], [entry.listed for entry in plan.taken])
    assert text == (
        '{\n  // mine\n  "b": 1,\n  "mcpServers": {\n    "x": {"command": "x", "disabled": true} // good\n  }\n}\n'
    )


def test_several_items_of_a_list_are_removed(tmp_path: Path) -> None:
    machine = made_machine(tmp_path, "continue")
    plan = plan_of(machine, "continue")
    file = next(file for file in plan.files if file.place.kind is FileKind.YAML)
    entries = [entry.listed for entry in plan.taken if entry.file is file]
    kept = switched_off(file, [entry for entry in entries if entry.name != "remote"])
    assert "name: remote" in kept
    assert "SQLite" not in kept
    assert "nameless" not in kept


def test_a_list_in_json_is_left_alone(tmp_path: Path) -> None:
    plan = plan_of(made_machine(tmp_path, "continue"), "continue")
    [entry] = [entry for entry in plan.taken if entry.file.place.kind is FileKind.JSON]
    with pytest.raises(CannotEdit):
        switched_off(entry.file, [entry.listed])


def test_continue_keeps_a_valid_list_when_its_last_server_moves(tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    path = machine.home / ".continue" / "config.yaml"
    path.parent.mkdir()
    path.write_text("name: mine\nmcpServers:\n  - name: lab\n    command: lab-mcp\nmodels: []\n")
    plan = plan_of(machine, "continue")
    text = switched_off(plan.files[0], [entry.listed for entry in plan.taken])
    assert parsed(text, FileKind.YAML) == {"name": "mine", "mcpServers": [], "models": []}


def test_a_moved_server_leaves_no_blank_at_the_end_of_a_line(tmp_path: Path) -> None:
    for client in CLIENTS:
        machine = made_machine(tmp_path / client, client)
        for file in found_files(machine, [CLIENTS[client]]):
            if file.place.path.name == "config.json":
                continue
            taken = planned([file], {}, machine, WantedServers(from_folder=True)).taken
            text = switched_off(file, [entry.listed for entry in taken])
            before = file.text.splitlines()
            assert [line for line in text.splitlines() if line != line.rstrip() and line not in before] == []
