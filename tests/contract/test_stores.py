"""Every store's file is what `scripts/make_stores.py` makes of one source, and is what the store wants."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema_rs
import pytest
import yaml

from mcp_optimizer import __version__
from mcp_optimizer.config.known_clients.table import CLIENTS
from mcp_optimizer.config.packages.draft import Draft
from mcp_optimizer.config.packages.registry import draft_of
from tests.conftest import ROOT

SERVER_SCHEMA = {
    # What the registry's schema of 2025-12-11 demands of the parts that we use.
    "type": "object",
    "required": ["$schema", "name", "description", "version", "packages"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
        "name": {"type": "string", "pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "minLength": 3, "maxLength": 200},
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": {"type": "string", "maxLength": 255, "pattern": r"^\d+\.\d+\.\d+([a-z0-9.]+)?$"},
        "repository": {"type": "object", "required": ["url", "source"], "additionalProperties": {"type": "string"}},
        "packages": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["registryType", "identifier", "transport", "version"],
                "additionalProperties": False,
                "properties": {
                    "registryType": {"enum": ["npm", "pypi", "oci", "nuget", "mcpb"]},
                    "identifier": {"type": "string"},
                    "version": {"type": "string", "minLength": 1, "not": {"const": "latest"}},
                    "runtimeHint": {"enum": ["npx", "uvx", "docker", "dnx"]},
                    "transport": {"type": "object", "properties": {"type": {"const": "stdio"}}, "required": ["type"]},
                    "packageArguments": {
                        "type": "array",
                        "items": {"type": "object", "required": ["type", "value"]},
                    },
                    "environmentVariables": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {"format": {"enum": ["string", "number", "boolean", "filepath"]}},
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def stores() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        spec = importlib.util.spec_from_file_location("make_stores", ROOT / "scripts" / "make_stores.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def read(name: str) -> Any:
    return json.loads((ROOT / name).read_text(encoding="utf-8"))


def test_committed_files_are_what_the_script_makes(stores: ModuleType) -> None:
    made: Mapping[str, str] = stores.committed()
    different = [name for name, text in made.items() if (ROOT / name).read_text(encoding="utf-8") != text]
    assert different == [], "run: python scripts/make_stores.py"
    there = {path.name for path in (ROOT / "deploy" / "helm").rglob("*") if path.is_file()}
    assert there == {Path(name).name for name in made if name.startswith("deploy/helm/")}


def test_the_entry_of_the_registry_keeps_to_its_schema() -> None:
    jsonschema_rs.validator_for(SERVER_SCHEMA).validate(read("server.json"))


def test_our_own_add_understands_the_entry_of_the_registry() -> None:
    draft = draft_of(read("server.json"), "", ["uvx"])
    assert isinstance(draft, Draft)
    assert f"mcp-optimizer-gateway=={__version__}" in str(draft) or f"mcp-optimizer-gateway@{__version__}" in str(draft)


def test_readme_and_image_carry_the_mark_that_the_registry_looks_for() -> None:
    name = read("server.json")["name"]
    assert f"mcp-name: {name} " in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f'LABEL io.modelcontextprotocol.server.name="{name}"' in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_links_that_install_decode_to_what_connect_writes(stores: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    cursor, vscode = re.findall(r"\]\((https://(?:cursor|vscode)[^)]+)\)", readme)
    given = parse_qs(urlsplit(cursor).query)
    assert given["name"] == ["mcp-optimizer"]
    assert json.loads(base64.b64decode(given["config"][0], validate=True)) == stores.entry("cursor")
    given = parse_qs(urlsplit(vscode).query)
    assert json.loads(given["config"][0]) == stores.entry("vscode")
    gateway = stores.STARTED_BY_UVX
    assert gateway.args == (f"mcp-optimizer-gateway@{__version__}", "serve")
    assert stores.entry("cursor") == CLIENTS["cursor"].writing.entry(gateway, "mcp-optimizer")


def test_every_file_names_the_version_of_the_package() -> None:
    manifest, plugin = read("stores/mcpb/manifest.json"), read("stores/claude-code/.claude-plugin/plugin.json")
    marketplace = read(".claude-plugin/marketplace.json")
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "Chart.yaml").read_text(encoding="utf-8"))
    named = [manifest["version"], plugin["version"], marketplace["plugins"][0]["version"], chart["version"]]
    assert {*named, read("server.json")["version"]} == {__version__}
    # Said once in the sources: everything else is made or reads it.
    said = re.compile(rf'["\']{re.escape(__version__)}["\']')
    places = [path for path in (ROOT / "src").rglob("*.py") if said.search(path.read_text(encoding="utf-8"))]
    assert places == [ROOT / "src" / "mcp_optimizer" / "__init__.py"]


def test_the_parts_of_the_plugin_are_where_claude_code_looks() -> None:
    plugin = ROOT / read(".claude-plugin/marketplace.json")["plugins"][0]["source"]
    assert read(f"{plugin.relative_to(ROOT)}/.mcp.json")["mcpServers"]["mcp-optimizer"]["alwaysLoad"] is True
    hook = read(f"{plugin.relative_to(ROOT)}/hooks/hooks.json")["hooks"]["PreToolUse"][0]
    # The tool's name with the plugin, and after `connect`.
    for name in ("mcp__plugin_mcp-optimizer_mcp-optimizer__call_tool", "mcp__mcp-optimizer__call_tool_read"):
        assert re.fullmatch(hook["matcher"], name)
    assert not re.fullmatch(hook["matcher"], "mcp__plugin_mcp-optimizer_mcp-optimizer__find_tool")
    skill = (plugin / "skills" / "mcp-optimizer" / "SKILL.md").read_text(encoding="utf-8")
    about = yaml.safe_load(skill.split("---\n")[1])
    assert about["name"] == "mcp-optimizer"
    assert len(about["description"]) <= 1024


# The chart


def rendered(text: str, values: Mapping[str, Any], release: str) -> str:
    """A template of our chart: the few forms that it uses, and an error for any other."""
    text = re.sub(
        r"{{- if (not )?\.Values\.(\w+) }}\n(.*?){{- end }}\n",
        lambda found: found[3] * (bool(values[found[2]]) != bool(found[1])),
        text,
        flags=re.DOTALL,
    )
    text = re.sub(r"{{ \.Values\.(\w+) \| toJson }}", lambda found: json.dumps(values[found[1]]), text)
    text = re.sub(r"{{ \.Values\.(\w+) \| default \.Release\.Name }}", lambda found: values[found[1]] or release, text)
    text = re.sub(r"{{ \.Values\.(\w+) }}", lambda found: str(values[found[1]]), text)
    text = text.replace("{{ .Release.Name }}", release)
    assert "{{" not in text, text
    return text


def chart(release: str, **changed: Any) -> dict[str, Any]:
    folder = ROOT / "deploy" / "helm"
    values = yaml.safe_load((folder / "values.yaml").read_text(encoding="utf-8"))
    assert changed.keys() <= values.keys()
    objects: dict[str, Any] = {}
    for path in sorted((folder / "templates").glob("*.yaml")):
        for one in yaml.safe_load_all(rendered(path.read_text(encoding="utf-8"), values | changed, release)):
            if one is not None:
                objects[one["kind"]] = one
    return objects


def test_the_chart_gives_the_objects_of_the_file_that_it_is_made_from() -> None:
    wanted = yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8"))
    found = chart("mcp-optimizer")
    for one in wanted:
        given = found.pop(one["kind"])
        if one["kind"] == "ConfigMap":
            one["data"], given["data"] = (json.loads(each["data"]["mcp.json"]) for each in (one, given))
        assert given == one
    assert found == {}


def test_values_of_the_chart_reach_their_places() -> None:
    found = chart(
        "tools",
        image="registry.example/gateway:1",
        existingSecret="ours",
        replicas=2,
        podMetrics=False,
        servers={"a": {"command": 'x"y'}},
    )
    assert "Secret" not in found
    container = found["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example/gateway:1"
    assert container["envFrom"] == [{"secretRef": {"name": "ours"}}]
    assert [one["type"] for one in found["HorizontalPodAutoscaler"]["spec"]["metrics"]] == ["Resource"]
    assert json.loads(found["ConfigMap"]["data"]["mcp.json"]) == {"mcpServers": {"a": {"command": 'x"y'}}}
    assert {one["metadata"]["name"] for one in found.values()} == {"tools"}
    assert found["Service"]["spec"]["selector"] == found["Deployment"]["spec"]["selector"]["matchLabels"]


def test_helm_accepts_the_chart() -> None:
    program = shutil.which("helm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("helm is not installed")
    subprocess.run([program, "lint", "--strict", str(ROOT / "deploy" / "helm")], check=True, timeout=60)


# The formula


def test_the_formula_of_a_release_is_ruby_and_names_the_wheel_with_its_digest(stores: ModuleType) -> None:
    text = stores.formula("x-1-py3-none-any.whl", "0" * 64)
    assert f"/v{__version__}/x-1-py3-none-any.whl" in text
    assert f'sha256 "{"0" * 64}"' in text
    if shutil.which("ruby") is None:
        pytest.skip("ruby is not installed, so only its parts are checked")
    checked = subprocess.run(["ruby", "-c", "-"], input=text, text=True, capture_output=True, check=False, timeout=30)
    assert checked.returncode == 0, checked.stderr


# The hook of the plugin


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    path = ROOT / "stores" / "claude-code" / "hooks" / "inner_tool.py"
    spec = importlib.util.spec_from_file_location("inner_tool", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(hook: ModuleType, folder: Path, permissions: object, **arguments: object) -> dict[str, Any]:
    file = folder / "settings.json"
    file.write_text(permissions if isinstance(permissions, str) else json.dumps({"permissions": permissions}))
    said: dict[str, Any] = hook.answer({"tool_name": "x__call_tool", "tool_input": arguments}, [file])
    inside: dict[str, Any] = said.get("hookSpecificOutput", said)
    return inside


DELETE = {"tool_name": "delete_repo", "server_name": "git hub", "parameters": {"name": "a"}}


@pytest.mark.parametrize("rule", ["mcp__git_hub__delete_repo", "mcp__git_hub", "mcp__git_hub__*", "mcp__*__delete_*"])
def test_a_rule_about_the_tool_inside_is_applied(hook: ModuleType, tmp_path: Path, rule: str) -> None:
    for kind in ("deny", "ask", "allow"):
        said = asked(hook, tmp_path, {kind: ["Bash", rule]}, **DELETE)
        assert said["permissionDecision"] == kind
        assert "git hub: delete_repo" in said["permissionDecisionReason"]
    assert asked(hook, tmp_path, {"allow": [rule], "deny": [rule]}, **DELETE)["permissionDecision"] == "deny"


@pytest.mark.parametrize("spelling", ["delete-repo", "DeleteRepo", "github.delete_repo", "github__delete_repo"])
def test_no_spelling_that_the_gateway_takes_gets_around_a_rule(hook: ModuleType, tmp_path: Path, spelling: str) -> None:
    call = {"tool_name": spelling, "server_name": "github"}
    for rule in ("mcp__github__delete_repo", "mcp__github"):
        assert asked(hook, tmp_path, {"deny": [rule]}, **call)["permissionDecision"] == "deny"
    # What is allowed is allowed by its own name alone.
    assert "systemMessage" in asked(hook, tmp_path, {"allow": ["mcp__github__delete_repo"]}, **call)
    assert "systemMessage" in asked(hook, tmp_path, {"deny": ["mcp__github__repo"]}, **call)


def test_without_a_rule_the_tool_inside_is_only_shown(hook: ModuleType, tmp_path: Path) -> None:
    rules = {"deny": ["mcp__git_hub__other", "mcp__another__delete_repo", "Bash(rm:*)"]}
    assert asked(hook, tmp_path, rules, **DELETE) == {"systemMessage": 'git hub: delete_repo {"name": "a"}'}


def test_a_call_without_a_server_is_allowed_nothing_and_refused_what_may_be_denied(
    hook: ModuleType, tmp_path: Path
) -> None:
    call = {"tool_name": "delete_repo"}
    assert "systemMessage" in asked(hook, tmp_path, {"allow": ["mcp__github__delete_repo"]}, **call)
    refused = asked(hook, tmp_path, {"deny": ["mcp__github"]}, **call)
    assert refused["permissionDecision"] == "deny"
    assert "Give server_name" in refused["permissionDecisionReason"]
    assert asked(hook, tmp_path, {"ask": ["mcp__github__delete_repo"]}, **call)["permissionDecision"] == "ask"


@pytest.mark.parametrize("broken", ["{", "[]", '{"permissions": 5}', '{"permissions": {"deny": 7}}'])
def test_permissions_that_cannot_be_read_are_asked_about(hook: ModuleType, tmp_path: Path, broken: str) -> None:
    assert asked(hook, tmp_path, broken, **DELETE)["permissionDecision"] == "ask"


def test_what_is_shown_of_a_call_is_short_and_printable(hook: ModuleType, tmp_path: Path) -> None:
    said = asked(hook, tmp_path, {}, tool_name="x\x1b[2J\n", server_name="s", parameters={"a": "b" * 5000})
    assert said["systemMessage"].isprintable()
    assert len(said["systemMessage"]) <= 300


def test_the_hook_answers_on_its_own(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps({"permissions": {"deny": ["mcp__git_hub"]}}))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"tool_input": DELETE, "cwd": str(tmp_path)})))
    hook.main()
    assert json.loads(capsys.readouterr().out)["hookSpecificOutput"]["permissionDecision"] == "deny"
