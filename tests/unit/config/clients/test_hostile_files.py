"""Files that no client would write: each is refused with a reason, quickly, and stops nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.config.clients.files import LARGEST, FoundFile, found_files
from mcp_optimizer.config.clients.importing import ImportOutcome, ImportPlan, WantedServers, planned
from mcp_optimizer.config.known_clients.table import CLIENTS
from mcp_optimizer.config.textfiles.kinds import FileKind
from tests.unit.config.clients.golden import GOLDEN, made_machine, plan_of

MAIN = {FileKind.JSON: "cursor", FileKind.TOML: "codex", FileKind.YAML: "goose"}


def plan_for(tmp_path: Path, content: bytes, client: str = "cursor") -> ImportPlan:
    """The plan when this is the content of a client's main file."""
    machine = made_machine(tmp_path)
    path = CLIENTS[client].files(machine.home, machine.environment, machine.platform)[0].path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return plan_of(machine, client)


@pytest.mark.parametrize("kind", FileKind)
@pytest.mark.parametrize(
    "content",
    [b"\x00\x01\x02", b"\xff\xfe\x00", b"[1, 2", b"\x00", b"\xc3(", b"{" * 100_000, b"[" * 100_000, b'{"a":' * 50_000],
)
def test_what_is_not_text_of_its_kind_is_refused(kind: FileKind, content: bytes, tmp_path: Path) -> None:
    plan = plan_for(tmp_path, content, MAIN[kind])
    assert plan.entries == ()
    [(_, note)] = plan.notes
    assert note


@pytest.mark.parametrize("content", [b"[]", b'"text"', b"1", b"true", b'[{"mcpServers": {}}]'])
def test_a_file_that_is_not_an_object_is_refused(content: bytes, tmp_path: Path) -> None:
    assert "not a JSON object" in plan_for(tmp_path, content).notes[0][1]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("content", [b"", b"\n", b"{}"])
def test_a_file_without_servers_has_none(client: str, content: bytes, tmp_path: Path) -> None:
    assert plan_for(tmp_path, content, client).entries == ()


def test_a_mark_at_the_beginning_and_line_ends_of_windows_are_read(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, b'\xef\xbb\xbf{\r\n"mcpServers": {\r\n"a": {"command": "x"}}}')
    assert [entry.name for entry in plan.taken] == ["a"]


@pytest.mark.parametrize("servers", [1, "x", None, True, [[]], [1, None, "x"], {"a": 1, "b": None, "c": [], "": {}}])
@pytest.mark.parametrize("client", ["cursor", "zed", "opencode", "continue", "claude-code", "amp"])
def test_servers_of_a_wrong_type_are_named_and_not_taken(client: str, servers: Any, tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    for place in CLIENTS[client].files(machine.home, machine.environment, machine.platform):
        if place.kind is FileKind.JSON:
            document: Any = servers
            for key in reversed(place.servers[0]):
                document = {key: document}
            place.path.parent.mkdir(parents=True, exist_ok=True)
            place.path.write_text(json.dumps(document))
    assert plan_of(machine, client).taken == ()


WRONG: list[Any] = [1, True, "x\0y", [], {}, [1, {}], {"a": {"b": []}}, 10**400, "${", "a" * 100_000]


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("client", [name for name in CLIENTS if CLIENTS[name].kind is FileKind.JSON])
def test_no_wrong_type_of_any_key_is_more_than_a_reason(client: str, tmp_path: Path) -> None:
    machine = made_machine(tmp_path, client)
    for file in found_files(machine, [CLIENTS[client]]):
        for entry in planned([file], {}, machine, WantedServers(all_projects=True)).entries:
            for key in {**entry.listed.value, "enabled": 1, "env": 1, "args": 1, "transport": 1, "timeout": 1}:
                for wrong in WRONG:
                    servers: Any = {"x": {**entry.listed.value, key: wrong}}
                    if entry.listed.index is not None:
                        servers = list(servers.values())
                    document: Any = servers
                    for part in reversed(file.place.servers[0]):
                        document = {part: document}
                    changed = FoundFile(file.client, file.place, b"", document)
                    for one in planned([changed], {}, machine, WantedServers(from_folder=True)).entries:
                        assert one.reason or one.outcome is ImportOutcome.TAKEN
                        assert len(one.reason) < 1_000


def test_a_crowd_of_servers_are_not_read(tmp_path: Path) -> None:
    text = '{"mcpServers": {' + ",".join(f'"s{number}": 1' for number in range(20_000)) + "}}"
    plan = plan_for(tmp_path, text.encode())
    assert len(plan.entries) == 500
    assert "20,000 servers" in plan.notes[0][1]


def test_a_crowd_of_keys_are_not_read(tmp_path: Path) -> None:
    entry = ",".join(f'"k{number}": 1' for number in range(20_000))
    plan = plan_for(tmp_path, ('{"mcpServers": {"a": {"command": "x", ' + entry + "}}}").encode())
    assert "20,001 keys" in plan.entries[0].reason


@pytest.mark.parametrize("kind", FileKind)
def test_a_file_that_is_too_large_is_refused(kind: FileKind, tmp_path: Path) -> None:
    plan = plan_for(tmp_path, b" " * (LARGEST[kind] + 1), MAIN[kind])
    assert "larger than" in plan.notes[0][1]


def test_aliases_that_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    plan = plan_for(tmp_path, "\n".join([*lines, "extensions: *a11", ""]).encode(), "goose")
    assert plan.entries == ()
    assert plan.notes


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system [id]", "!!python/name:os.system"])
def test_yaml_that_would_run_something_is_refused(tag: str, tmp_path: Path) -> None:
    plan = plan_for(tmp_path, f"extensions:\n  x: {tag}\n".encode(), "goose")
    assert plan.entries == ()
    assert plan.notes


def test_a_name_that_is_there_twice_is_an_error_with_its_lines(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, b'{"mcpServers": {\n"a": {"command": "x"},\n"a": {"command": "y"}}}')
    assert plan.entries == ()
    assert "mcpServers.a (lines 2, 3)" in plan.notes[0][1]


def test_what_a_client_repeats_elsewhere_does_not_matter(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, b'{"theme": 1, "theme": 2, "mcpServers": {"a": {"command": "x"}}}')
    assert len(plan.taken) == 1


@pytest.mark.parametrize("made", ["folder", "loop", "pipe", "broken", "unreadable"])
def test_what_is_not_a_plain_file_is_refused_without_waiting(made: str, tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    path = machine.home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    if made == "folder":
        path.mkdir()
    elif made == "pipe":
        os.mkfifo(path)
    elif made == "unreadable":
        path.symlink_to("/proc/self/mem")
    else:
        path.symlink_to(path if made == "loop" else tmp_path / "missing")
    plan = plan_of(machine, "cursor")
    assert plan.entries == ()
    assert plan.notes[0][1]


def test_a_broken_file_does_not_stop_the_others(tmp_path: Path) -> None:
    machine = made_machine(tmp_path, "cursor")
    (machine.home / ".cursor" / "mcp.json").write_text("{")
    plan = plan_of(machine, "cursor")
    assert [entry.name for entry in plan.taken] == ["project"]
    assert "line 1" in plan.notes[0][1]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[31m", "x" * 10_000])
def test_a_name_that_cannot_be_shown_is_refused(name: str, tmp_path: Path) -> None:
    plan = plan_for(tmp_path, json.dumps({"mcpServers": {name: {"command": "x"}}}).encode())
    assert "name cannot be used" in plan.entries[0].reason


def test_reasons_and_notes_never_show_a_value(tmp_path: Path) -> None:
    hidden = "planted-5d41402abc4b"
    for client in CLIENTS:
        (tmp_path / client).mkdir()
        machine = made_machine(tmp_path / client, client)
        for file in found_files(machine, [CLIENTS[client]]):
            for entry in planned([file], {}, machine, WantedServers(from_folder=True)).entries:
                document: Any = {"x": _planted(entry.listed.value, hidden)}
                for part in reversed(file.place.servers[0]):
                    document = {part: document}
                plan = planned(
                    [FoundFile(file.client, file.place, b"", document)], {}, machine, WantedServers(from_folder=True)
                )
                assert hidden not in json.dumps([(one.reason, one.notes) for one in plan.entries])
                assert hidden not in repr(plan)


def _planted(value: Any, hidden: str) -> Any:
    """The entry with this in every value; its keys, type and variables stay."""
    if isinstance(value, dict):
        kinds = ("type", "transport")
        return {
            key: item if key in kinds and isinstance(item, str) else _planted(item, hidden)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_planted(item, hidden) for item in value]
    return hidden if isinstance(value, str) else value


def test_every_client_has_a_golden_home() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(CLIENTS)
