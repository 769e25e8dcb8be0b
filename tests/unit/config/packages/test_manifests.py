"""The manifest of a bundle becomes a draft that runs what is in the bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.config.packages.bundles import Surroundings, draft_of_manifest
from mcp_optimizer.config.packages.draft import Draft, InputFormat, entry_of
from mcp_optimizer.errors import ConfigurationError

AROUND = Surroundings(Path("/data/bundles/w-1"), Path("/home/me"), "linux")
FILES = frozenset({"manifest.json", "server/index.js", "bin/run"})
CONFIG: dict[str, Any] = {
    "command": "node",
    "args": [
        "${__dirname}/server/index.js",
        "--root",
        "${HOME}/x",
        "${user_config.folders}",
        "--n=${user_config.number}",
    ],
    "env": {"KEY": "${user_config.key}", "MODE": "plain"},
    "platform_overrides": {"win32": {"command": "node.exe", "env": {"MODE": "windows"}}},
}
USER_CONFIG = {
    "folders": {
        "type": "directory",
        "title": "Folders",
        "multiple": True,
        "required": True,
        "default": ["${HOME}/Desktop"],
    },
    "key": {"type": "string", "sensitive": True, "required": True},
    "number": {"type": "number", "min": 1, "max": 9},
    "unused": {"type": "string", "required": True},
}


def manifest(config: Any = None, **changed: Any) -> dict[str, Any]:
    server = {"type": "node", "entry_point": "server/index.js"} | ({"mcp_config": config} if config is not None else {})
    return {"manifest_version": "0.3", "name": "weather-mcp", "server": server, "user_config": USER_CONFIG, **changed}


def draft(document: dict[str, Any], around: Surroundings = AROUND, **options: bool) -> Draft:
    return draft_of_manifest(document, FILES, around, **options)


def test_variables_and_answers_have_their_places() -> None:
    made = draft(manifest(CONFIG))
    assert made.name == "weather"
    assert list(made.wanted) == ["folders", "key", "number"]
    assert made.wanted["key"].is_secret
    assert made.wanted["folders"].format is InputFormat.PATH
    assert made.wanted["folders"].default == ("/home/me/Desktop",)
    assert (made.wanted["number"].minimum, made.wanted["number"].maximum) == (1, 9)
    answers = made.with_defaults({"folders": ("/a", "/b"), "key": ("${secret:k}",)})
    assert entry_of(made, answers) == {
        "command": "node",
        "args": ["/data/bundles/w-1/server/index.js", "--root", "/home/me/x", "/a", "/b"],
        "env": {"KEY": "${secret:k}", "MODE": "plain"},
    }


def test_a_system_has_its_own_command() -> None:
    around = Surroundings(Path("/data"), Path("/home"), "win32")
    made = draft(manifest(CONFIG), around, runs_anything=True)
    assert (made.command, made.env["MODE"]) == ("node.exe", ("windows",))


@pytest.mark.parametrize(
    ("kind", "entry_point", "command"),
    [
        ("node", "server/index.js", ["node", "/data/bundles/w-1/server/index.js"]),
        ("python", "./server/index.js", ["python3", "/data/bundles/w-1/server/index.js"]),
        ("uv", "bin/run", ["uv", "run", "--directory", "/data/bundles/w-1", "/data/bundles/w-1/bin/run"]),
        ("binary", "bin/run", ["/data/bundles/w-1/bin/run"]),
    ],
)
def test_a_bundle_that_does_not_say_how_is_started_in_the_usual_way(
    kind: str, entry_point: str, command: list[str]
) -> None:
    made = entry_of(draft(manifest(server={"type": kind, "entry_point": entry_point})), {})
    assert [made["command"], *made.get("args", [])] == command


@pytest.mark.parametrize(
    "document",
    [
        manifest(server=None),
        manifest(server={"type": "node", "entry_point": "missing.js"}),
        manifest(server={"type": "perl", "entry_point": "bin/run"}),
        manifest(server={"type": ["node"], "entry_point": "bin/run"}),
        manifest({"command": "${__dirname}/../../bin/sh"}),
        manifest({"command": "${__dirname}/missing"}),
        manifest({"command": "${user_config.key}"}),
        manifest({"command": 5}),
        manifest({"command": "node", "args": ["${__dirname}/../x"]}),
        manifest({"command": "node", "args": ["${__dirname}${/}..${/}x"]}),
        manifest({"command": "node", "args": ["${AWS_SECRET_ACCESS_KEY}"]}),
        manifest({"command": "node", "args": ["${secret:github}"]}),
        manifest({"command": "node", "args": ["${user_config.nothing}"]}),
        manifest({"command": "node", "args": ["${${__dirname}}"]}),
        manifest({"command": "node", "args": "x"}),
        manifest({"command": "node", "args": ["x"] * 101}),
        manifest({"command": "node", "env": {"A B": "x"}}),
        manifest({"command": "node", "env": {"A": None}}),
        manifest(CONFIG, user_config={"key": {"default": "${secret:github}"}}),
        manifest(CONFIG, user_config=[]) | {"user_config": [1]},
        manifest(CONFIG, user_config={**USER_CONFIG, "a b": {"type": "string"}}),
        manifest(CONFIG, name="x\n"),
        manifest(CONFIG, name=None),
        manifest(CONFIG, compatibility={"platforms": ["darwin", "win32"]}),
    ],
    ids=range(24),
)
def test_a_manifest_that_says_what_it_must_not_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        draft(document)


def test_another_program_needs_the_users_word() -> None:
    document = manifest({"command": "/bin/sh", "args": ["-c", "id"]})
    with pytest.raises(ConfigurationError, match="--yes-run"):
        draft(document)
    assert draft(document, runs_anything=True).command == "/bin/sh"


def test_a_variable_that_changes_what_runs_is_named() -> None:
    made = draft(manifest({"command": "node", "env": {"NODE_OPTIONS": "--require ${__dirname}/x.js"}}))
    assert "NODE_OPTIONS" in made.notes[0]
