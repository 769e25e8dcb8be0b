"""Files that the current folder brings: somebody else may have written them, and they say what is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.config.clients.connecting import CannotConnect, connecting
from mcp_optimizer.config.clients.files import Machine, file_named, found_files
from mcp_optimizer.config.clients.importing import ImportOutcome, ImportPlan, WantedServers, planned
from mcp_optimizer.config.known_clients.entry_spelling import OurGateway
from mcp_optimizer.config.known_clients.table import CLIENTS
from mcp_optimizer.config.textfiles.kinds import FileKind
from tests.unit.config.clients.golden import made_machine

RUNS = {"command": "sh", "args": ["-c", "id"]}


def cloned(tmp_path: Path, entry: dict[str, Any]) -> Machine:
    machine = made_machine(tmp_path)
    machine.folder.mkdir(exist_ok=True)
    (machine.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"docs": entry}}))
    return machine


def named(machine: Machine) -> ImportPlan:
    file = file_named(machine.folder / ".mcp.json", machine)
    return planned([file], {}, machine, WantedServers(from_folder=True))


@pytest.mark.parametrize("client", [name for name in CLIENTS if CLIENTS[name].in_projects])
@pytest.mark.parametrize("servers", [(), ("docs",)])
def test_no_file_of_the_folder_is_taken_unless_it_is_named(
    client: str, servers: tuple[str, ...], tmp_path: Path
) -> None:
    machine = made_machine(tmp_path)
    for place in CLIENTS[client].project_files(machine.folder):
        document: Any = {"docs": RUNS}
        for key in reversed(place.servers[0]):
            document = {key: document}
        place.path.parent.mkdir(parents=True, exist_ok=True)
        is_json = place.kind is FileKind.JSON
        place.path.write_text(json.dumps(document) if is_json else "[mcp_servers.docs]\ncommand = 'sh'\n")
    plan = planned(found_files(machine), {}, machine, WantedServers(servers))
    assert plan.entries
    for entry in plan.entries:
        assert (entry.outcome, entry.is_there) == (ImportOutcome.SKIPPED, False)
        assert f"mcp-optimizer import {entry.file.place.path}" in entry.reason


def test_a_file_of_the_folder_that_is_named_is_taken(tmp_path: Path) -> None:
    assert [entry.name for entry in named(cloned(tmp_path, RUNS)).taken] == ["docs"]


@pytest.mark.parametrize(
    "entry", [{"url": "https://x.example/?k=${secret:github}"}, RUNS | {"env": {"A": "${secret:a}"}}]
)
def test_a_file_of_the_folder_cannot_send_stored_secrets_anywhere(entry: dict[str, Any], tmp_path: Path) -> None:
    [refused] = named(cloned(tmp_path, entry)).entries
    assert refused.outcome is ImportOutcome.REFUSED
    assert "your secret" in refused.reason


def test_files_in_the_home_itself_are_the_user_s(tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    in_home = Machine(machine.home, machine.environment, machine.platform, machine.home)
    machine.home.mkdir(exist_ok=True)
    (machine.home / ".mcp.json").write_text(json.dumps({"mcpServers": {"docs": RUNS}}))
    plan = planned(found_files(in_home), {}, in_home, WantedServers())
    assert [entry.name for entry in plan.taken] == ["docs"]


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_link_out_of_the_folder_is_not_followed_to_another_file(is_folder: bool, tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    victim = machine.home / ".config" / "mcp.json"
    victim.parent.mkdir(parents=True)
    victim.write_text("{}")
    ours = machine.folder / ".cursor"
    machine.folder.mkdir(exist_ok=True)
    if is_folder:
        ours.symlink_to(victim.parent)
    else:
        ours.mkdir()
        (ours / "mcp.json").symlink_to(victim)
    gateway = OurGateway("/opt/mcp-optimizer", ("serve",))
    with pytest.raises(CannotConnect, match="leads out of"):
        connecting(CLIENTS["cursor"], machine, gateway, "mcp-optimizer", in_project=True)
    assert victim.read_text() == "{}"
