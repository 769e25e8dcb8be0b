"""The server file is edited as text: one entry changes, and everything that people wrote around it stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.config.serverfile.file_edits import (
    EMPTY,
    change_file,
    entries_in,
    file_text,
    with_entry,
    with_server_on,
    with_tool_on,
    without_entry,
)
from mcp_optimizer.config.serverfile.parser import parse_server_file, read_server_file
from mcp_optimizer.errors import ConfigurationError

TEXT = """\
{
  // Mine.
  "mcpServers": {
    "a": { "command": "x", "tools": ["read", "list_*"] }, // first
    /* second */
    "b": {"url": "https://b.example/mcp", "enabled": true,},
  },
  "other": [1, 2]
}
"""


def off(text: str) -> list[str]:
    return [spec.name for spec in parse_server_file(text, Path("mcp.json"), {}) if spec.disabled]


def admits(text: str, server: str, tool: str) -> bool:
    specs = {spec.name: spec for spec in parse_server_file(text, Path("mcp.json"), {})}
    return specs[server].tools.admits(tool)


def test_a_server_is_added_and_removed_without_a_trace() -> None:
    more = with_entry(TEXT, "c", {"command": "y"})
    assert list(entries_in(more)) == ["a", "b", "c"]
    assert "// first" in more
    assert without_entry(more, "c") == TEXT
    assert list(entries_in(without_entry(TEXT, "a"))) == ["b"]


def test_a_name_that_is_taken_or_unknown_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="already a server 'a'"):
        with_entry(TEXT, "a", {})
    for edit in (without_entry, lambda text, name: with_server_on(text, name, False)):
        with pytest.raises(ConfigurationError, match="Servers: a, b"):
            edit(TEXT, "z")


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_server_is_switched_off_and_on_again(name: str) -> None:
    switched = with_server_on(TEXT, name, False)
    assert off(switched) == [name]
    assert with_server_on(switched, name, False) == switched
    assert with_server_on(switched, name, True) == TEXT
    assert with_server_on(TEXT, name, True) == TEXT


def test_a_tool_is_switched_off_and_on_again() -> None:
    switched = with_tool_on(TEXT, "a", "read", False)
    assert not admits(switched, "a", "read")
    assert with_tool_on(switched, "a", "read", False) == switched
    assert with_tool_on(switched, "a", "read", True) == TEXT
    both = with_tool_on(switched, "a", "list_all", False)
    assert entries_in(with_tool_on(both, "a", "read", True))["a"]["disabledTools"] == ["list_all"]


def test_a_tool_that_the_entry_does_not_name_is_added_to_those_it_names() -> None:
    assert not admits(TEXT, "a", "write")
    switched = with_tool_on(TEXT, "a", "write", True)
    assert admits(switched, "a", "write")
    assert with_tool_on(TEXT, "a", "list_all", True) == TEXT
    assert with_tool_on(TEXT, "b", "anything", True) == TEXT


def test_a_tool_that_a_pattern_turns_off_is_not_turned_on_behind_its_back() -> None:
    text = with_tool_on(TEXT, "b", "delete_*", False)
    assert not admits(text, "b", "delete_all")
    with pytest.raises(ConfigurationError, match="turns 'delete_all' off"):
        with_tool_on(text, "b", "delete_all", True)
    assert with_tool_on(text, "b", "delete_*", True) == TEXT


def test_other_programs_keys_for_tools_are_used_where_they_are() -> None:
    text = '{"mcpServers": {"a": {"command": "x", "excludeTools": ["one"]}}}'
    assert entries_in(with_tool_on(text, "a", "two", False))["a"]["excludeTools"] == ["one", "two"]
    assert "excludeTools" not in entries_in(with_tool_on(text, "a", "one", True))["a"]


@pytest.mark.parametrize("text", ['{"servers": {}}', '{"mcp": {"servers": {}}}', "{}", '{"mcpServers": {}}'])
def test_servers_go_where_the_file_keeps_them(text: str) -> None:
    more = with_entry(text, "a", {"command": "x"})
    [spec] = parse_server_file(more, Path("mcp.json"), {})
    assert (spec.name, spec.command) == ("a", "x")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"mcpServers": []}', '{"mcpServers": {"a": 1}}', '{"mcpServers": {"a": {"disabledTools": 1}}}'],
)
def test_a_file_that_cannot_be_edited_is_an_error_and_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError):
        change_file(path, lambda found: with_tool_on(found, "a", "x", False))
    assert path.read_text() == text


def test_a_file_is_created_for_its_owner_and_changed_in_place(tmp_path: Path) -> None:
    path = tmp_path / "new" / "mcp.json"
    assert file_text(path) == EMPTY
    assert change_file(path, lambda text: with_entry(text, "a", {"command": "x"}))
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    assert change_file(link, lambda text: with_server_on(text, "a", False))
    assert not change_file(link, lambda text: with_server_on(text, "a", False))
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert off(path.read_text()) == ["a"]


def test_a_file_that_changes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(TEXT)

    def slow(text: str) -> str:
        path.write_text(TEXT + "// of somebody else\n")
        return with_server_on(text, "a", False)

    with pytest.raises(ConfigurationError, match="changed since it was read"):
        change_file(path, slow)
    assert path.read_text().endswith("// of somebody else\n")


blank = st.sampled_from(["", " ", "\n", "\n    ", " // note\n", "/* note */", "\r\n\t"])


@given(st.lists(st.tuples(blank, blank, blank), min_size=1, max_size=4), st.booleans(), st.text(min_size=1, max_size=8))
def test_any_layout_survives_switching_and_adding(layout: list[tuple[str, str, str]], comma: bool, name: str) -> None:
    entries = [f'{a}"s{n}"{b}:{c}{{"command": "x"}}' for n, (a, b, c) in enumerate(layout)]
    text = f'{{{layout[0][0]}"mcpServers":{{{",".join(entries)}{"," if comma else ""}}}}}{layout[0][1]}'
    switched = with_server_on(text, "s0", False)
    assert off(switched) == ["s0"]
    assert with_server_on(switched, "s0", True) == text
    if name not in entries_in(text):
        assert without_entry(with_entry(text, name, {"command": "y"}), name) == text


@pytest.mark.parametrize("made", ["pipe", "device"])
def test_what_has_no_end_is_not_edited(made: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    if made == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(ConfigurationError, match="not a regular file"):
        change_file(path, lambda text: with_entry(text, "a", {"command": "x"}))


def test_a_server_file_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(ConfigurationError, match="larger than"):
        read_server_file(Path("/dev/zero"), {})
