"""What a client refuses or asks about still holds through the gateway, and is never loosened."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.access.policy.policy import RuleBook
from mcp_optimizer.config.clients.files import Machine, found_files
from mcp_optimizer.config.clients.importing import WantedServers, planned
from mcp_optimizer.config.clients.permissions import CarriedRules, carried, with_rules
from mcp_optimizer.config.known_clients.table import CLIENTS
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import parsed
from mcp_optimizer.domain.caller import LOCAL, Effect, Risk, RiskClass, Rule
from tests.unit.config.clients.golden import made_machine

LAB: dict[str, Any] = {"lab": {"command": "lab-mcp"}, "lab two": {"command": "two-mcp"}}


def written(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def rules_of(machine: Machine, client: str, existing: dict[str, Any] | None = None) -> CarriedRules:
    files = found_files(machine, [CLIENTS[client]])
    plan = planned(files, existing or {}, machine, WantedServers(from_folder=True))
    return carried(plan, existing or {}, machine)


def claude(tmp_path: Path, **permissions: Any) -> CarriedRules:
    machine = made_machine(tmp_path)
    written(machine.home / ".claude.json", {"mcpServers": LAB})
    written(machine.home / ".claude" / "settings.json", {"permissions": permissions})
    return rules_of(machine, "claude-code")


def decided(rules: CarriedRules, tool: str, server: str = "lab") -> Effect:
    return RuleBook(rules.rules).decide(LOCAL.principal, server, tool, RiskClass(Risk.READ, "name")).effect


@pytest.mark.parametrize(
    "text",
    [
        "mcp__lab",
        "mcp__lab__*",
        "mcp__lab__drop_all",
        "mcp__lab__drop*",
        "mcp__*",
        "mcp__*__drop_all",
        "mcp__lab*__drop_all",
        "mcp__la*",
    ],
)
def test_what_claude_code_denies_is_denied(text: str, tmp_path: Path) -> None:
    rules = claude(tmp_path, deny=[text])
    assert decided(rules, "drop_all") is Effect.DENY
    # Claude Code shows it under the same name.
    assert decided(rules, "drop.all") is Effect.DENY
    if "drop" in text:
        assert decided(rules, "get_rows") is Effect.ALLOW


def test_a_refusal_beats_a_question_however_wide(tmp_path: Path) -> None:
    rules = claude(tmp_path, deny=["mcp__lab"], ask=["mcp__lab__drop_all"], allow=["mcp__lab__drop_all"])
    assert decided(rules, "drop_all") is Effect.DENY
    assert decided(rules, "anything") is Effect.DENY


def test_rules_about_other_servers_and_tools_are_not_ours(tmp_path: Path) -> None:
    rules = claude(
        tmp_path, deny=["mcp__labs__x", "Bash", "mcp__lab_two__x", "mcp__other", "", 3, None, "mcp__lab__" + "x" * 900]
    )
    assert [(rule.server, rule.tool) for rule in rules.rules] == [("lab two", "x")]


def test_every_settings_file_of_claude_code_counts(tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    written(machine.home / ".claude.json", {"mcpServers": LAB})
    places = [
        machine.home / ".claude" / "settings.json",
        machine.home / ".claude" / "settings.local.json",
        machine.folder / ".claude" / "settings.json",
        machine.folder / ".claude" / "settings.local.json",
    ]
    for number, place in enumerate(places):
        written(place, {"permissions": {"deny": [f"mcp__lab__t{number}"]}})
    assert {rule.tool for rule in rules_of(machine, "claude-code").rules} == {"t0", "t1", "t2", "t3"}
    written(places[0], "{broken")
    found = rules_of(machine, "claude-code")
    assert {rule.tool for rule in found.rules} == {"t1", "t2", "t3"}
    assert any("its permissions are not carried over" in one for one in found.left)


@pytest.mark.parametrize("permissions", [None, [], "x", {"deny": {}}, {"deny": "mcp__lab"}, {"deny": [["mcp__lab"]]}])
def test_permissions_of_another_type_are_no_rules(permissions: Any, tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    written(machine.home / ".claude.json", {"mcpServers": LAB})
    written(machine.home / ".claude" / "settings.json", {"permissions": permissions})
    assert rules_of(machine, "claude-code").rules == ()


@pytest.mark.slow
def test_a_million_permissions_do_not_take_long(tmp_path: Path) -> None:
    began = time.perf_counter()
    rules = claude(tmp_path, deny=[f"mcp__lab__t{number}" for number in range(200_000)])
    assert len(rules.rules) <= 1_000
    assert time.perf_counter() - began < 20


CODEX = """
[mcp_servers.lab]
command = "lab-mcp"
default_tools_approval_mode = "prompt"
disabled_tools = ["drop_all"]
[mcp_servers.lab.tools.get_rows]
approval_mode = "approve"
[mcp_servers.lab.tools.send]
approval_mode = "prompt"
"""


def test_codex_asks_about_what_it_asked_about(tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    written(machine.home / ".codex" / "config.toml", CODEX)
    rules = rules_of(machine, "codex")
    assert [decided(rules, tool) for tool in ("get_rows", "send", "other")] == [Effect.ALLOW, Effect.ASK, Effect.ASK]


def test_tools_that_a_client_left_out_are_denied_where_our_entry_was_there_before(tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    text = CODEX.replace("disabled_tools", 'enabled_tools = ["get_rows"]\ndisabled_tools')
    written(machine.home / ".codex" / "config.toml", text)
    rules = rules_of(machine, "codex", {"lab": {"command": "lab-mcp"}})
    assert decided(rules, "drop_all") is Effect.DENY
    assert any("lab: Codex offered only get_rows" in one for one in rules.left)


def test_what_one_client_allowed_does_not_loosen_what_another_asks_about(tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    written(machine.home / ".codex" / "config.toml", CODEX)
    written(machine.home / ".claude.json", {"mcpServers": {"lab": {"command": "lab-mcp"}}})
    written(machine.home / ".claude" / "settings.json", {"permissions": {"ask": ["mcp__lab"]}})
    files = found_files(machine, [CLIENTS["claude-code"], CLIENTS["codex"]])
    rules = carried(planned(files, {}, machine, WantedServers()), {}, machine)
    assert decided(rules, "get_rows") is Effect.ASK


@pytest.mark.parametrize(
    ("permission", "expected"),
    [
        ({"lab_drop*": "deny"}, {"drop_all": Effect.DENY, "get_rows": Effect.ALLOW}),
        ({"*": "ask", "lab_get_rows": "allow"}, {"drop_all": Effect.ASK, "get_rows": Effect.ALLOW}),
        ({"lab_get_rows": "allow", "*": "ask"}, {"drop_all": Effect.ASK, "get_rows": Effect.ASK}),
        ("deny", {"drop_all": Effect.DENY}),
        ({"lab_drop_all": {"*": "allow", "x": "ask"}}, {"drop_all": Effect.ASK}),
        ({"bash": "deny", "edit": 3, "lab_x": None}, {"drop_all": Effect.ALLOW}),
    ],
)
def test_opencode_s_permissions_hold(permission: Any, expected: dict[str, Effect], tmp_path: Path) -> None:
    machine = made_machine(tmp_path)
    servers = {"lab": {"type": "local", "command": ["lab-mcp"]}}
    written(machine.home / ".config" / "opencode" / "opencode.json", {"mcp": servers, "permission": permission})
    rules = rules_of(machine, "opencode")
    assert {tool: decided(rules, tool) for tool in expected} == expected


def test_refusals_go_before_the_rules_that_are_there_and_the_rest_behind() -> None:
    there = '# mine\ndetail = "full"\n\n[[rules]] # first\neffect = "allow"\n\n[limits]\nsessions = 3\n'
    rules = [Rule(Effect.DENY, "lab", "a?b"), Rule(Effect.DENY, "x[[]y"), Rule(Effect.ASK, "git", reason='"says" ask')]
    text = with_rules(there, rules)
    assert [rule["effect"] for rule in parsed(text, FileKind.TOML)["rules"]] == ["deny", "deny", "allow", "ask"]
    assert "# first" in text
    assert text.startswith('# mine\ndetail = "full"\n')
    assert parsed(with_rules("", rules), FileKind.TOML)["rules"][2] == {
        "effect": "ask",
        "server": "git",
        "reason": '"says" ask',
    }
