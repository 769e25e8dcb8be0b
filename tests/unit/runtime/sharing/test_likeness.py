"""Clients share a gateway only if everything that it depends on is the same for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mcp_optimizer.runtime.sharing.client_process import wants_to_share
from mcp_optimizer.runtime.sharing.likeness import digests, like_now, likeness, named_now

ARGUMENTS = ["serve", "--shared", "--config", "servers.json"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "servers.json").write_text('{"mcpServers": {"one": {"command": "x", "env": {"KEY": "${MY_KEY}"}}}}')
    (tmp_path / "mcp-optimizer.toml").write_text("find_limit = 3\n")
    return tmp_path


def of(folder: Path, arguments: Sequence[str] = ARGUMENTS, **variables: str) -> str:
    environment: Mapping[str, str] = {"PATH": "/bin", "HOME": str(folder), **variables}
    return likeness(arguments, environment, folder)


def test_the_same_start_is_the_same(folder: Path) -> None:
    assert of(folder) == of(folder) == of(folder, [one for one in ARGUMENTS if one != "--shared"])


def test_what_only_a_terminal_or_a_client_knows_is_no_difference(folder: Path) -> None:
    assert of(folder) == of(folder, TERM="xterm", SHELL="/bin/zsh", WINDOWID="7", SOME_API_KEY="1")


def test_folders_in_which_other_programs_are_found_are_no_difference_but_another_program_of_an_entry_is(
    folder: Path,
) -> None:
    for name, program in (("of-client", "apply_patch"), ("of-user", "my-server"), ("of-other", "my-server")):
        (folder / name).mkdir()
        (folder / name / program).touch(0o755)
    (folder / "servers.json").write_text('{"mcpServers": {"one": {"command": "my-server"}}}')
    before = of(folder, PATH=f"{folder}/of-user:/bin")
    assert before == of(folder, PATH=f"{folder}/of-client:{folder}/gone:{folder}/of-user:/bin")
    assert before != of(folder, PATH=f"{folder}/of-other:{folder}/of-user:/bin")
    assert before != of(folder, PATH="/bin")


@pytest.mark.parametrize(
    "variable", ["PATH", "LC_ALL", "https_proxy", "MY_KEY", "MCP_OPTIMIZER_MODE", "XDG_CONFIG_HOME"]
)
def test_a_variable_that_reaches_the_settings_or_a_server_is_a_difference(folder: Path, variable: str) -> None:
    assert of(folder) != of(folder, **{variable: "another"})


def test_other_arguments_another_folder_and_changed_settings_are_differences(folder: Path, tmp_path: Path) -> None:
    before = of(folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert before != of(folder, [*ARGUMENTS, "--servers", "one"])
    assert before != likeness(ARGUMENTS, {"PATH": "/bin", "HOME": str(folder)}, elsewhere)
    (folder / "mcp-optimizer.toml").write_text("find_limit = 30\n")
    assert before != of(folder)


def test_a_server_file_may_change_because_the_gateway_follows_it(folder: Path) -> None:
    before = of(folder)
    (folder / "servers.json").write_text('{"mcpServers": {"two": {"command": "y", "env": {}}}}')
    assert before == of(folder)


def test_who_comes_after_a_change_of_the_server_file_must_have_the_variables_that_it_names_now(folder: Path) -> None:
    environment = {"PATH": "/bin", "HOME": str(folder), "OTHER_KEY": "a", "MCP_OPTIMIZER_LINK": "7"}
    before = of(folder, OTHER_KEY="a")
    (folder / "servers.json").write_text('{"mcpServers": {"one": {"command": "x", "env": {"KEY": "${OTHER_KEY}"}}}}')
    assert "OTHER_KEY" in named_now(ARGUMENTS, environment, folder)
    assert like_now(before, ARGUMENTS, environment, folder) == of(folder, OTHER_KEY="a") != of(folder, OTHER_KEY="b")
    assert digests(environment) == digests({**environment, "MCP_OPTIMIZER_LINK": "8"})
    assert digests(environment)["OTHER_KEY"] != digests({"OTHER_KEY": "b"})["OTHER_KEY"]


def test_arguments_that_are_no_paths_do_no_harm(folder: Path) -> None:
    assert of(folder, ["serve", "--config", "x" * 10_000, "nul\0", "=", ""])


def test_what_a_process_may_do_is_a_difference(folder: Path) -> None:
    before = of(folder)
    mask = os.umask(0o027)
    try:
        assert of(folder) != before
    finally:
        os.umask(mask)
    assert of(folder) == before


CONFINED = """
import ctypes, sys
from pathlib import Path
from mcp_optimizer.runtime.sharing.likeness import likeness
if sys.argv[1:]: ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
print(likeness([], {}, Path("/")))
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say how a process is confined")
def test_a_process_in_a_sandbox_is_not_like_one_outside() -> None:
    outside, again, inside = (
        subprocess.run([sys.executable, "-c", CONFINED, *more], capture_output=True, text=True, check=True).stdout
        for more in ([], [], ["confined"])
    )
    assert outside == again != inside


def test_whether_clients_share_a_gateway_is_said_in_words_and_is_no_difference(folder: Path) -> None:
    assert of(folder) == of(folder, MCP_OPTIMIZER_SHARED="1")


def test_a_gateway_on_stdio_is_shared_unless_something_may_say_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "own.toml"
    reading, writing = os.pipe()
    saved = [os.dup(0), os.dup(1)]
    try:
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        settings.write_text("find_limit = 3\n")
        wanted = [
            wants_to_share(["serve"], {}),
            wants_to_share(ARGUMENTS, {}),
            wants_to_share(["serve"], {"MCP_OPTIMIZER_SHARED": "true"}),
            wants_to_share(["serve", "--settings", "own.toml"], {}),
            wants_to_share(["serve", "--shared"], {"MCP_OPTIMIZER_SHARED": "0", "MCP_OPTIMIZER_DEPTH": "1"}),
        ]
        settings.write_text("shared = true\n")
        unwanted = [
            # Its whole meaning is not known here.
            wants_to_share(["serve", "--settings", "own.toml"], {}),
            wants_to_share(["serve"], {"MCP_OPTIMIZER_SETTINGS": str(settings)}),
            wants_to_share(["serve"], {"MCP_OPTIMIZER_SHARED": "0"}),
            wants_to_share(["serve"], {"MCP_OPTIMIZER_SHARED": "nonsense"}),
            wants_to_share(["serve"], {"MCP_OPTIMIZER_DEPTH": "1"}),
            wants_to_share(["serve", "--alone"], {}),
            wants_to_share(["serve", "--no-shared"], {}),
            wants_to_share(["find", "--shared"], {}),
            wants_to_share([*ARGUMENTS, "--http", "127.0.0.1:1"], {}),
            wants_to_share([*ARGUMENTS, "--help"], {}),
            wants_to_share(ARGUMENTS, {"MCP_OPTIMIZER_HTTP": "127.0.0.1:1"}),
        ]
    finally:
        for descriptor, before in enumerate(saved):
            os.dup2(before, descriptor)
        for one in (reading, writing, *saved):
            os.close(one)
    assert (wanted, unwanted) == ([True] * 5, [False] * 11)
