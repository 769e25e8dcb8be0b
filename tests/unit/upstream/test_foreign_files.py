"""Server files that another program wrote: what is read as it is, and what is recognised and has to be imported."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.config.serverfile.parser import parse_server_file, read_server_file
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.errors import ConfigurationError

GOLDEN = Path(__file__).parents[2] / "golden" / "clients"


def one(entry: dict[str, Any], path: Path, **environment: str) -> ServerSpec:
    [spec] = parse_server_file(json.dumps({"mcpServers": {"x": entry}}), path, environment)
    return spec


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("codex/home/.codex/config.toml", "a Codex file"),
        ("vibe/home/.vibe/config.toml", "a Mistral Vibe file"),
        ("goose/home/.config/goose/config.yaml", "a Goose file"),
        ("continue/home/.continue/config.yaml", "a Continue file"),
        ("continue/home/.continue/config.json", "a Continue file"),
        ("zed/home/.config/zed/settings.json", "a Zed file"),
        ("amp/home/.config/amp/settings.json", "an Amp file"),
        ("opencode/home/.config/opencode/opencode.json", "an opencode file"),
        ("opencode/project/opencode.jsonc", "an opencode file"),
    ],
)
def test_a_file_of_another_format_is_recognised_and_the_command_that_reads_it_named(file: str, kind: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"is {kind}.*mcp-optimizer import .*{Path(file).name}"):
        read_server_file(GOLDEN / file, {})


@pytest.mark.parametrize("file", ["copilot-cli/home/.copilot/mcp-config.json", "kiro/home/.kiro/settings/mcp.json"])
def test_other_files_are_read_as_they_are(file: str) -> None:
    specs = read_server_file(GOLDEN / file, {"BRAVE_API_KEY": "x", "API_TOKEN": "x"})
    assert [spec.problem for spec in specs] == [""] * len(specs)


def test_a_local_server_is_one_that_is_started(tmp_path: Path) -> None:
    assert one({"type": "local", "command": "x"}, tmp_path / "mcp.json").transport is Transport.STDIO


def test_a_name_that_is_there_twice_is_an_error_that_says_where(tmp_path: Path) -> None:
    text = '{"mcpServers": {\n"a": {"command": "x"},\n"b": {"command": "x"},\n"a": {"command": "y"}}}'
    with pytest.raises(ConfigurationError, match=r"mcpServers\.a \(lines 2, 4\)"):
        parse_server_file(text, tmp_path / "mcp.json", {})


def test_keys_that_mean_nothing_here_are_kept_by_name(tmp_path: Path) -> None:
    spec = one({"command": "x", "sandbox": {}, "autoApprove": ["a"], "watchPaths": []}, tmp_path / "mcp.json")
    assert spec.unread == ("sandbox", "watchPaths")
    assert one({"url": "http://x", "gallery": 1}, tmp_path / "mcp.json").unread == ("gallery",)


@pytest.mark.parametrize("folder", [".vscode", ".cursor"])
def test_the_folder_of_a_project_is_known_from_its_file(folder: str, tmp_path: Path) -> None:
    path = tmp_path / "project" / folder / "mcp.json"
    spec = one({"command": "${workspaceFolder}/run", "args": ["${workspaceFolderBasename}"]}, path)
    assert (spec.command, spec.args) == (f"{tmp_path}/project/run", ("project",))


def test_a_users_file_belongs_to_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".cursor" / "mcp.json"
    assert "write the path of the folder" in one({"command": "${workspaceFolder}/run"}, path).problem
    assert one({"command": "${userHome}/run"}, path).command == f"{tmp_path}/run"


@pytest.mark.parametrize("folder", [".gemini", ".qwen"])
def test_a_variable_without_braces_is_one_only_where_its_client_says_so(folder: str, tmp_path: Path) -> None:
    entry = {"command": "x", "args": ["$NAME", "${NAME}", "$5", "$UNSET"]}
    spec = one(entry, tmp_path / folder / "settings.json", NAME="ada")
    assert spec.args == ("ada", "ada", "$5", "$UNSET")
    assert one(entry, tmp_path / "mcp.json", NAME="ada").args == ("$NAME", "ada", "$5", "$UNSET")


def test_variables_come_from_a_file_that_the_entry_names(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "# comment\n\nexport A=1 # one\nB = two words\nC='# three'\nD=\"four\\nlines\" # x\nE=\nF=a=b\nG=`g`\n"
    )
    spec = one({"command": "x", "envFile": ".env", "env": {"A": "mine"}}, tmp_path / "mcp.json")
    assert spec.env == {
        "A": "mine",
        "B": "two words",
        "C": "# three",
        "D": "four\nlines",
        "E": "",
        "F": "a=b",
        "G": "g",
    }


def test_the_file_of_variables_of_a_project_is_in_the_project(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1\n")
    assert one({"command": "x", "envFile": ".env"}, tmp_path / ".vscode" / "mcp.json").env == {"A": "1"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "does not exist"),
        (b"planted", "line 1"),
        (b"A=1\n=planted\n", "line 2"),
        (b"A=" + b"x" * 70_000, "larger than 64 KB"),
        (b"\xff\xfe", "not text"),
    ],
)
def test_a_file_of_variables_that_cannot_be_read_is_the_problem_of_its_entry(
    content: bytes | None, reason: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / ".env").write_bytes(content)
    problem = one({"command": "x", "envFile": ".env"}, tmp_path / "mcp.json").problem
    assert reason in problem
    assert "planted" not in problem


def test_a_file_of_variables_that_is_a_folder_or_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        assert one({"command": "x", "envFile": name}, tmp_path / "mcp.json").problem


@pytest.mark.parametrize("value", [1, [], {}, True])
def test_a_file_of_variables_must_be_a_path(value: Any, tmp_path: Path) -> None:
    assert '"envFile" must be a string' in one({"command": "x", "envFile": value}, tmp_path / "mcp.json").problem


@pytest.mark.parametrize("timeout", [10**400, float("inf"), 0, -1])
def test_a_time_without_end_is_refused(timeout: float, tmp_path: Path) -> None:
    text = json.dumps({"mcpServers": {"x": {"command": "x", "timeout": timeout}}}).replace("Infinity", "1e400")
    [spec] = parse_server_file(text, tmp_path / "mcp.json", {})
    assert '"timeout" must be' in spec.problem


def test_a_file_of_variables_full_of_blanks_is_read_quickly(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("  A = x" + " " * 60_000 + "y  \n")
    begin = time.process_time()
    spec = one({"command": "x", "envFile": ".env"}, tmp_path / "mcp.json")
    assert time.process_time() - begin < 5
    assert spec.env["A"].split() == ["x", "y"]
