"""The clients: where each keeps its servers, in which form, and how it is asked one question without a person.

A table and pure functions. `bench` starts them; `installing` brings them. What is here is each client's own spelling,
written down apart from the product's tables, which it is to check.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.installing import install_from_pypi, native, package_folder
from tests.clients.lab import TOKEN_VARIABLE, TOOLS, WALLET

QUESTION = "What was sold today?"
OUR_NAME = ("mcp-optimizer",)
"""Our entry, which takes the place of all servers."""
Servers = Mapping[str, Sequence[str]]
"""Commands of servers by name. The one called `WALLET` needs a variable of the user's environment."""


@dataclass(frozen=True)
class Setup:
    """What a client's files are made from."""

    servers: Servers
    url: str
    """Where its model is."""
    forbidden: str = ""
    """`server/tool` that the user has forbidden."""
    asked: str = ""
    """`server/tool` that the user wants to be asked about, where the client can say that of one tool."""

    def forbidden_of(self, server: str) -> list[str]:
        name, _, tool = self.forbidden.partition("/")
        return [tool] if name == server else []


@dataclass(frozen=True)
class RealClient:
    """A client, and how it is driven."""

    name: str
    """As `connect` calls it."""
    title: str
    package: str
    """On npm, or the name of an environment from PyPI."""
    file: str
    """Where it keeps its servers, below the user's home."""
    files: Callable[[Setup], dict[str, str]]
    """The files of a user who has these servers, by their path below the user's home."""
    started_by: Callable[[str, Path], list[str]]
    """The command, from Node and the folder of its package."""
    arguments: Callable[[str], list[str]]
    """What makes it answer this question, and end. The model is at the URL."""
    environment: Callable[[str], dict[str, str]] = lambda _url: {}
    trusting: tuple[str, ...] = ()
    """Options with which nobody is asked before a call."""
    patient: Callable[[Iterable[str]], list[str]] = lambda _servers: []
    """Options with which it waits for these servers before it asks its model, where it does not by itself."""
    waits: Mapping[str, str] = field(default_factory=dict)
    """Variables that do the same."""
    careful: tuple[str, ...] | None = None
    """Options with which only tools that read may be called, if it has such a way of working."""
    adds: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that it wants from its model with every call."""
    is_plain: bool = False
    """Whether its files are written here without a variable that is passed on, and without a tool that is forbidden."""
    is_from_npm: bool = True
    """Else from PyPI."""

    def command(self, node: str) -> list[str]:
        folder = package_folder(self.package) if self.is_from_npm else install_from_pypi(self.package)
        return self.started_by(node, folder)


def _split(command: Sequence[str]) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:])}


def _token(name: str, reference: str, key: str = "env") -> dict[str, Any]:
    """How an entry passes the user's token on, where it has to be said."""
    return {key: {TOKEN_VARIABLE: reference}} if name == WALLET else {}


def _json(document: object) -> str:
    return json.dumps(document, indent=2) + "\n"


def _script(path: str) -> Callable[[str, Path], list[str]]:
    return lambda node, folder: [node, str(folder / path)]


def _native(package: str, path: str) -> Callable[[str, Path], list[str]]:
    """The program in a package beside it that is for this machine only."""
    return lambda _node, _folder: [str(package_folder(f"{package}-{native()}") / path)]


# Claude Code


def _claude_files(setup: Setup) -> dict[str, str]:
    servers = {
        name: {"type": "stdio", **_split(command), **_token(name, f"${{{TOKEN_VARIABLE}}}")}
        for name, command in setup.servers.items()
    }
    state = {"hasCompletedOnboarding": True, "mcpServers": servers}
    denied, asked = ([f"mcp__{tool.replace('/', '__')}"] if tool else [] for tool in (setup.forbidden, setup.asked))
    allowed = [f"mcp__{name}" for name in (*setup.servers, "mcp-optimizer")]
    return {
        ".claude.json": _json(state),
        ".claude/settings.json": _json({"permissions": {"allow": allowed, "deny": denied, "ask": asked}}),
    }


# Codex


def _codex_files(setup: Setup) -> dict[str, str]:
    lines = ["# servers"]
    for name, command in setup.servers.items():
        lines += [f"[mcp_servers.{name}]", f"command = {json.dumps(command[0])}", f"args = {json.dumps(command[1:])}"]
        if name == WALLET:
            lines.append(f"env_vars = {json.dumps([TOKEN_VARIABLE])}")
        if forbidden := setup.forbidden_of(name):
            lines.append(f"disabled_tools = {json.dumps(forbidden)}")
        lines.append("")
    return {".codex/config.toml": "\n".join(lines)}


def _codex_arguments(url: str) -> list[str]:
    provider = f'{{name="scripted",base_url="{url}/v1",env_key="MODEL_KEY",wire_api="responses"}}'
    options = [f"model_providers.scripted={provider}", "model_provider=scripted", "model=gpt-5"]
    options += ["analytics.enabled=false", "check_for_update_on_startup=false"]
    given = [word for option in options for word in ("-c", option)]
    return ["exec", "--skip-git-repo-check", *given, QUESTION]


# Gemini CLI, and Qwen Code, which began as it


def _gemini_files(folder: str, auth: str) -> Callable[[Setup], dict[str, str]]:
    def files(setup: Setup) -> dict[str, str]:
        servers = {}
        for name, command in setup.servers.items():
            forbidden = setup.forbidden_of(name)
            entry = {**_split(command), **_token(name, f"${TOKEN_VARIABLE}")}
            servers[name] = {**entry, **({"excludeTools": forbidden} if forbidden else {})}
        return {f"{folder}/settings.json": _json({"security": {"auth": {"selectedType": auth}}, "mcpServers": servers})}

    return files


# opencode

_OPENCODE_SCHEMA = "https://opencode.ai/config.json"


def _opencode_files(setup: Setup) -> dict[str, str]:
    servers = {
        name: {
            "type": "local",
            "command": list(command),
            **_token(name, f"{{env:{TOKEN_VARIABLE}}}", "environment"),
        }
        for name, command in setup.servers.items()
    }
    rules = {"permission": {setup.forbidden.replace("/", "_"): "deny"}} if setup.forbidden else {}
    # Without its first line, opencode adds it by itself.
    return {".config/opencode/opencode.json": _json({"$schema": _OPENCODE_SCHEMA, "mcp": servers, **rules})}


def _opencode_environment(url: str) -> dict[str, str]:
    model = {"name": "scripted", "tool_call": True, "limit": {"context": 200_000, "output": 10_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"scripted": model},
    }
    content = {"provider": {"scripted": provider}, "model": "scripted/scripted", "autoupdate": False}
    switches = ("AUTOUPDATE", "MODELS_FETCH", "DEFAULT_PLUGINS", "LSP_DOWNLOAD")
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(content), **{f"OPENCODE_DISABLE_{one}": "1" for one in switches}}


# Copilot CLI


def _copilot_files(setup: Setup) -> dict[str, str]:
    servers = {}
    for name, command in setup.servers.items():
        forbidden = setup.forbidden_of(name)
        tools = [tool["name"] for tool in TOOLS if tool["name"] not in forbidden] if forbidden else ["*"]
        entry = {"type": "local", **_split(command), **_token(name, f"${{{TOKEN_VARIABLE}}}")}
        servers[name] = {**entry, "tools": tools}
    return {".copilot/mcp-config.json": _json({"mcpServers": servers})}


def _copilot_environment(url: str) -> dict[str, str]:
    given = {"BASE_URL": f"{url}/v1", "API_KEY": "none", "WIRE_API": "completions"}
    provider = {f"COPILOT_PROVIDER_{name}": value for name, value in given.items()}
    return {"COPILOT_OFFLINE": "true", "COPILOT_MODEL": "gpt-5", **provider}


# Continue


def _continue_files(setup: Setup) -> dict[str, str]:
    model = {
        "name": "scripted",
        "provider": "openai",
        "model": "gpt-4o",
        "apiBase": f"{setup.url}/v1",
        "apiKey": "none",
    }
    lines = ["name: mine", "version: 1.0.0", "schema: v1", "models:", f"  - {json.dumps(model)}"]
    lines.append("mcpServers:" if setup.servers else "mcpServers: []")
    for name, command in setup.servers.items():
        lines += [f"  - name: {name}", f"    command: {json.dumps(command[0])}", f"    args: {json.dumps(command[1:])}"]
    return {".continue/config.yaml": "\n".join(lines) + "\n"}


# Kimi Code


def _kimi_files(setup: Setup) -> dict[str, str]:
    provider = ["[providers.scripted]", 'type = "openai"', f'base_url = "{setup.url}/v1"', 'api_key = "none"']
    model = ["[models.scripted]", 'provider = "scripted"', 'model = "scripted"', "max_context_size = 200000"]
    config = ['default_model = "scripted"', "telemetry = false", "", *provider, "", *model, ""]
    servers = {name: _split(command) for name, command in setup.servers.items()}
    return {".kimi-code/config.toml": "\n".join(config), ".kimi-code/mcp.json": _json({"mcpServers": servers})}


# Mistral Vibe


def _vibe_files(setup: Setup) -> dict[str, str]:
    lines = ['active_model = "scripted"', "enable_telemetry = false", "enable_update_checks = false", ""]
    lines += ["[[providers]]", 'name = "scripted"', f'api_base = "{setup.url}/v1"', 'api_key_env_var = "MODEL_KEY"', ""]
    lines += ["[[models]]", 'name = "scripted"', 'provider = "scripted"', 'alias = "scripted"', ""]
    for name, command in setup.servers.items():
        lines += ["[[mcp_servers]]", f'name = "{name}"', 'transport = "stdio"']
        lines += [f"command = {json.dumps(command[0])}", f"args = {json.dumps(command[1:])}", ""]
    return {".vibe/config.toml": "\n".join(lines)}


# Libraries, each with a few lines around it


def _library(name: str, title: str) -> RealClient:
    script = str(Path(__file__).with_name("libraries.py"))
    return RealClient(
        name,
        title,
        name,
        "servers.json",
        lambda setup: {"servers.json": _json({"mcpServers": {one: _split(c) for one, c in setup.servers.items()}})},
        lambda _node, folder: [str(folder / "python"), script, name],
        lambda _url: ["../home/servers.json"],
        lambda url: {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none"},
        is_plain=True,
        is_from_npm=False,
    )


LIBRARIES = (
    _library("openai-agents", "OpenAI Agents SDK"),
    _library("langchain-mcp-adapters", "langchain-mcp-adapters"),
    _library("pydantic-ai", "pydantic-ai"),
    _library("strands", "Strands Agents"),
    _library("mcp-use", "mcp-use"),
)
"""Agents made with a library. They have no file that is imported or connected."""

CLIENTS = (
    RealClient(
        "claude-code",
        "Claude Code",
        "@anthropic-ai/claude-code",
        ".claude.json",
        _claude_files,
        _native("@anthropic-ai/claude-code", "claude"),
        lambda _url: ["-p", QUESTION, "--model", "claude-sonnet-4-5"],
        lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
        waits={"CLAUDE_CODE_MCP_STARTUP_WAIT_MS": "20000"},
        careful=("--permission-mode", "plan"),
    ),
    RealClient(
        "codex",
        "Codex",
        "@openai/codex",
        ".codex/config.toml",
        _codex_files,
        _script("bin/codex.js"),
        _codex_arguments,
        trusting=("--dangerously-bypass-approvals-and-sandbox",),
        patient=lambda servers: [word for one in servers for word in ("-c", f"mcp_servers.{one}.required=true")],
        careful=(),
    ),
    RealClient(
        "gemini",
        "Gemini CLI",
        "@google/gemini-cli",
        ".gemini/settings.json",
        _gemini_files(".gemini", "gemini-api-key"),
        _script("bundle/gemini.js"),
        lambda _url: ["-m", "gemini-2.5-pro", "--approval-mode", "yolo", "-p", QUESTION],
        lambda url: {
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_TELEMETRY_ENABLED": "false",
        },
        adds={"wait_for_previous": True},
    ),
    RealClient(
        "opencode",
        "opencode",
        "opencode-ai",
        ".config/opencode/opencode.json",
        _opencode_files,
        _native("opencode", "bin/opencode"),
        lambda _url: ["run", QUESTION],
        _opencode_environment,
    ),
    RealClient(
        "qwen",
        "Qwen Code",
        "@qwen-code/qwen-code",
        ".qwen/settings.json",
        _gemini_files(".qwen", "openai"),
        _script("cli-entry.js"),
        lambda _url: ["--auth-type", "openai", "--approval-mode", "yolo", "-p", QUESTION],
        lambda url: {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "gpt-5"},
    ),
    RealClient(
        "copilot-cli",
        "Copilot CLI",
        "@github/copilot",
        ".copilot/mcp-config.json",
        _copilot_files,
        _native("@github/copilot", "copilot"),
        lambda _url: ["-p", QUESTION, "--allow-all-tools", "--disable-client-telemetry", "--no-auto-update"],
        _copilot_environment,
    ),
    RealClient(
        "continue",
        "Continue",
        "@continuedev/cli",
        ".continue/config.yaml",
        _continue_files,
        _script("dist/cn.js"),
        lambda _url: ["-p", "--auto", QUESTION],
        is_plain=True,
    ),
    RealClient(
        "kimi",
        "Kimi Code",
        "@moonshot-ai/kimi-code",
        ".kimi-code/mcp.json",
        _kimi_files,
        _script("dist/main.mjs"),
        lambda _url: ["-p", QUESTION],
        is_plain=True,
    ),
    RealClient(
        "vibe",
        "Mistral Vibe",
        "mistral-vibe",
        ".vibe/config.toml",
        _vibe_files,
        lambda _node, folder: [str(folder / "vibe")],
        lambda _url: ["-p", QUESTION, "--agent", "auto-approve"],
        is_plain=True,
        is_from_npm=False,
    ),
    *LIBRARIES,
)
SHORT = ("claude-code", "codex", "gemini", "opencode")
"""The clients of every change; the others are driven by hand."""
