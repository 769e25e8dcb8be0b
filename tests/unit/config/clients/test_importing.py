"""What is taken over from each client's documented format, and what not and why."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.config.clients.files import Machine, file_named
from mcp_optimizer.config.clients.importing import ImportOutcome, WantedServers, beside_stored, planned, with_entries
from mcp_optimizer.config.known_clients.table import CLIENTS
from mcp_optimizer.config.serverfile.parser import parse_server_file
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import parsed
from tests.unit.config.clients.golden import GOLDEN, made_machine, plan_of, shown

EMPTY = '{\n  "mcpServers": {}\n}\n'


@pytest.mark.parametrize("client", CLIENTS)
def test_every_key_of_a_clients_format_is_taken_over_or_named(client: str, tmp_path: Path) -> None:
    plan = plan_of(made_machine(tmp_path, client), client)
    assert shown(plan, tmp_path) == json.loads((GOLDEN / client / "expected.json").read_text())


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("client", CLIENTS)
def test_what_was_taken_over_can_be_read_and_is_not_taken_again(client: str, tmp_path: Path) -> None:
    machine = made_machine(tmp_path, client)
    plan = plan_of(machine, client)
    for stored in (False, True):
        text = with_entries(EMPTY, ("mcpServers",), plan.taken, stored=stored)
        specs = parse_server_file(text, tmp_path / "mcp.json", dict.fromkeys(VARIABLES, "x"))
        assert [spec.name for spec in specs] == [entry.name for entry in plan.taken]
        assert [spec.problem for spec in specs if "secret set" not in spec.problem and spec.problem] == []
        again = plan_of(machine, client, parsed(text, FileKind.JSON)["mcpServers"])
        assert again.taken == ()


VARIABLES = (
    "TZ API_KEY MY_TOKEN CLIENT_SECRET GITHUB_TOKEN USER_NAME MY_API_TOKEN OTHER_VALUE TOKEN MY_VALUE MY_API_KEY "
    "CLIENT_ID GITHUB_PERSONAL_ACCESS_TOKEN BRAVE_API_KEY LINEAR_TOKEN FIGMA_TEAM FIGMA_TOKEN HOME DOCS_TOKEN DOCS_ORG"
).split()


def machine_with(tmp_path: Path, servers: dict[str, Any]) -> Machine:
    machine = made_machine(tmp_path)
    (machine.home / ".cursor").mkdir()
    (machine.home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return machine


def test_a_server_with_the_name_of_another_gets_a_new_name(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {"git": {"command": "git-mcp"}})
    plan = plan_of(machine, "cursor", {"git": {"command": "other"}, "git-cursor": {"command": "third"}})
    [entry] = plan.taken
    assert entry.name == "git-cursor-2"
    assert "another server" in entry.notes[0]


def test_one_server_under_two_names_is_taken_once(tmp_path: Path) -> None:
    servers = {"a": {"command": "x", "env": {"K": "1"}}, "b": {"command": "x", "env": {"K": "1"}}}
    first, second = plan_of(machine_with(tmp_path, servers), "cursor").entries
    assert (first.outcome, second.outcome) == (ImportOutcome.TAKEN, ImportOutcome.SKIPPED)
    assert second.reason == "it is there already, as 'a'"


def test_two_accounts_of_one_server_are_two_servers(tmp_path: Path) -> None:
    servers = {"a": {"command": "x", "env": {"ACCOUNT": "1"}}, "b": {"command": "x", "env": {"ACCOUNT": "2"}}}
    assert len(plan_of(machine_with(tmp_path, servers), "cursor").taken) == 2


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "mcp-optimizer", "args": ["serve"]},
        {"command": "/usr/bin/python3", "args": ["-m", "mcp_optimizer", "serve", "--config", "x"]},
        {"command": "uvx", "args": ["mcp-optimizer-gateway@1.0", "serve"]},
        {"command": "C:\\bin\\mcp-optimizer.EXE", "args": ["serve"]},
    ],
)
def test_the_gateway_itself_is_never_taken(entry: dict[str, Any], tmp_path: Path) -> None:
    [planned_entry] = plan_of(machine_with(tmp_path, {"all": entry}), "cursor").entries
    assert (planned_entry.outcome, planned_entry.is_there) == (ImportOutcome.SKIPPED, False)


def test_the_gateway_by_its_address_is_never_taken(tmp_path: Path) -> None:
    servers = {"mcp-optimizer": {"url": "http://127.0.0.1:8765/mcp"}}
    assert plan_of(machine_with(tmp_path, servers), "cursor").taken == ()


def test_a_disabled_server_that_is_named_is_taken_and_stays_disabled(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {"a": {"command": "x", "disabled": True}, "b": {"command": "y"}})
    [entry] = plan_of(machine, "cursor", wanted=WantedServers(["a"])).entries
    assert (entry.outcome, entry.entry) == (ImportOutcome.TAKEN, {"command": "x", "disabled": True})


def test_a_server_that_holds_something_in_memory_is_written_to_never_stop_and_why(tmp_path: Path) -> None:
    browser = {"command": "npx", "args": ["@playwright/mcp@latest"]}
    servers = {"web": browser, "short": {**browser, "idle_timeout": 30}, "git": {"command": "git-mcp"}}
    plan = plan_of(machine_with(tmp_path, servers), "cursor", wanted=WantedServers(["web", "git"]))
    assert [(entry.name, dict(entry.entry), entry.notes) for entry in plan.taken] == [
        (
            "web",
            {**browser, "idle_timeout": "never"},
            ("never stops when idle, because it holds an open browser",),
        ),
        ("git", {"command": "git-mcp"}, ()),
    ]
    [short] = plan_of(machine_with(tmp_path / "other", servers), "cursor", wanted=WantedServers(["short"])).taken
    assert dict(short.entry)["idle_timeout"] == 30


def test_servers_of_all_projects_are_taken_when_asked_for(tmp_path: Path) -> None:
    plan = plan_of(
        made_machine(tmp_path, "claude-code"), "claude-code", wanted=WantedServers(["there"], all_projects=True)
    )
    assert [dict(entry.entry) for entry in plan.taken] == [{"command": "there-mcp", "cwd": "/srv/elsewhere"}]


def test_secrets_are_kept_under_names_that_nothing_else_has(tmp_path: Path) -> None:
    entry = {
        "command": "x",
        "args": ["--api-key", "abcd-1234-efgh", "--token=abcd-5678", "--level", "2"],
        "env": {"API_TOKEN": "abcd-9012", "LEVEL": "debug", "OTHER_KEY": "${OTHER}"},
    }
    [taken] = plan_of(machine_with(tmp_path, {"my server": entry}), "cursor").taken
    assert taken.secrets == {
        "my_server.api-key": "abcd-1234-efgh",
        "my_server.token": "abcd-5678",
        "my_server.API_TOKEN": "abcd-9012",
    }
    assert taken.with_references == {
        "command": "x",
        "args": ["--api-key", "${secret:my_server.api-key}", "--token=${secret:my_server.token}", "--level", "2"],
        "env": {"API_TOKEN": "${secret:my_server.API_TOKEN}", "LEVEL": "debug", "OTHER_KEY": "${OTHER}"},
    }
    beside = beside_stored(taken, {"my_server.token": "somebody else's", "my_server.API_TOKEN": "abcd-9012"})
    assert set(beside.secrets) == {"my_server.api-key", "my_server.token-2", "my_server.API_TOKEN"}


def test_a_secret_in_a_header_or_an_address_becomes_a_reference(tmp_path: Path) -> None:
    entry = {"url": "https://x.example/mcp?api_key=abcd1234&page=2", "headers": {"Authorization": "Bearer abcd-1234"}}
    [taken] = plan_of(machine_with(tmp_path, {"x": entry}), "cursor").taken
    assert taken.with_references == {
        "url": "https://x.example/mcp?api_key=${secret:x.api_key}&page=2",
        "headers": {"Authorization": "Bearer ${secret:x.Authorization}"},
    }
    assert "abcd" not in repr(taken)


@pytest.mark.parametrize(
    ("entry", "stored"),
    [
        (
            {"command": "x", "env": {"OPENAPI_MCP_HEADERS": '{"Authorization": "Bearer ntn_planted1"}'}},
            {"command": "x", "env": {"OPENAPI_MCP_HEADERS": "${secret:x.OPENAPI_MCP_HEADERS}"}},
        ),
        (
            {"command": "x", "env": {"DATABASE_URL": "postgresql://me:planted1@host/db"}},
            {"command": "x", "env": {"DATABASE_URL": "${secret:x.DATABASE_URL}"}},
        ),
        (
            {"command": "x", "args": ["--password", "planted1", "--api-key=planted2"]},
            {"command": "x", "args": ["--password", "${secret:x.password}", "--api-key=${secret:x.api-key}"]},
        ),
        (
            {"command": "x", "args": ["postgresql://me:planted1@host/db", "--verbose"]},
            {"command": "x", "args": ["${secret:x.argument}", "--verbose"]},
        ),
        (
            {"command": "x", "args": ["run", "-e", "MY_TOKEN=planted1", "--header", "Authorization: Bearer planted2"]},
            {"command": "x", "args": ["run", "-e", "MY_TOKEN=${secret:x.MY_TOKEN}", "--header", "${secret:x.header}"]},
        ),
        (
            {"url": "https://me:planted1@x.example/mcp"},
            {"url": "https://me:${secret:x.password}@x.example/mcp"},
        ),
        (
            {"command": "x", "args": ["https://host:8080/a", "--level=debug", "A=b"], "env": {"URL": "http://a@host/"}},
            {"command": "x", "args": ["https://host:8080/a", "--level=debug", "A=b"], "env": {"URL": "http://a@host/"}},
        ),
    ],
)
def test_secrets_inside_of_values_become_references(
    tmp_path: Path, entry: dict[str, Any], stored: dict[str, Any]
) -> None:
    [taken] = plan_of(machine_with(tmp_path, {"x": entry}), "cursor").taken
    assert taken.with_references == stored
    assert taken.left == ()


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        ({"command": "x", "env": {"URL": "postgresql://me:planted1@${HOST}/db"}}, ("env.URL",)),
        ({"command": "x", "env": {"MY_TOKEN": "${MY_TOKEN:-planted1}"}}, ("env.MY_TOKEN",)),
        ({"command": "x", "args": ["a", "--dsn=${A}planted1"]}, ("args[1]",)),
        ({"url": "https://x.example/planted1planted1planted1/mcp"}, ("url",)),
        ({"command": "x", "env": {"MY_TOKEN": "${MY_TOKEN}", "URL": "postgresql://me:${PW}@host/db"}}, ()),
    ],
)
def test_what_looks_like_a_secret_and_cannot_be_stored_is_named(
    tmp_path: Path, entry: dict[str, Any], left: tuple[str, ...]
) -> None:
    [taken] = plan_of(machine_with(tmp_path, {"x": entry}), "cursor").taken
    assert taken.left == left
    assert "planted" not in repr(taken)


@pytest.mark.parametrize("value", ["a" * 9_000, "${" + ":-" * 40_000, "://a:" * 15_000, "a:" * 4_900])
def test_long_values_take_no_time_to_look_through(tmp_path: Path, value: str) -> None:
    entry = {"command": "x", "args": [value], "env": {"A": value, "B": f"${{C}}{value}"}}
    begun = time.monotonic()
    plan_of(machine_with(tmp_path, {"x": entry}), "cursor")
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("path", "client"),
    [
        ("codex/home/.codex/config.toml", "codex"),
        ("goose/home/.config/goose/config.yaml", "goose"),
        ("continue/home/.continue/config.yaml", "continue"),
        ("continue/home/.continue/config.json", "continue"),
        ("zed/home/.config/zed/settings.json", "zed"),
        ("amp/home/.config/amp/settings.json", "amp"),
        ("vscode/home/.config/Code/User/mcp.json", "vscode"),
        ("opencode/home/.config/opencode/opencode.json", "opencode"),
        ("claude-code/home/.claude.json", "claude-code"),
        ("lm-studio/home/.lmstudio/mcp.json", "file"),
    ],
)
def test_a_file_in_another_place_is_recognised_by_what_it_says(path: str, client: str, tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    elsewhere = tmp_path / f"copy{Path(path).suffix}"
    elsewhere.write_bytes((GOLDEN / path).read_bytes())
    found = file_named(elsewhere, machine)
    assert found.client.name == client
    assert planned([found], {}, machine, WantedServers(from_folder=True)).taken


def test_a_projects_file_is_recognised_by_its_place_in_any_project(tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    path = tmp_path / "other" / ".cursor" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": {"a": {"command": "${workspaceFolder}/run"}}}')
    found = file_named(path, machine)
    [entry] = planned([found], {}, machine, WantedServers(from_folder=True)).taken
    assert entry.entry == {"command": f"{tmp_path}/other/run", "cwd": f"{tmp_path}/other"}
