"""server.json becomes a draft, with all that it asks for, and nothing that it must not say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.config.packages.draft import Answers, Draft, entry_of
from mcp_optimizer.config.packages.registry import BundleAt, draft_of, ways_to_run
from mcp_optimizer.errors import ConfigurationError

PROGRAMS = frozenset("npx uvx docker dnx".split())
NPM: dict[str, Any] = {
    "registryType": "npm",
    "registryBaseUrl": "https://registry.npmjs.org",
    "identifier": "@acme/weather",
    "version": "1.4.2",
    "runtimeHint": "npx",
    "transport": {"type": "stdio"},
    "runtimeArguments": [{"type": "named", "name": "-y"}],
    "packageArguments": [
        {"type": "positional", "valueHint": "folder", "format": "filepath", "isRequired": True, "isRepeated": True},
        {"type": "named", "name": "--units", "default": "metric", "choices": ["metric", "imperial"]},
        {"type": "named", "name": "--verbose", "format": "boolean"},
        {"type": "named", "name": "--mode", "value": "stdio"},
        {
            "type": "named",
            "name": "--at",
            "value": "{host}:{port}",
            "variables": {"host": {"isRequired": True}, "port": {"default": "80"}},
        },
    ],
    "environmentVariables": [
        {"name": "WEATHER_KEY", "description": "From your account", "isRequired": True, "isSecret": True},
        {"name": "WEATHER_CACHE", "default": "on"},
        {"name": "WEATHER_EXTRA"},
    ],
}


def server(**parts: Any) -> dict[str, Any]:
    return {"name": "io.github.acme/weather", "description": "Weather", "version": "1.4.2", **parts}


def draft(document: dict[str, Any], wanted: str = "", **options: bool) -> Draft:
    found = draft_of(document, wanted, PROGRAMS, **options)
    assert isinstance(found, Draft)
    return found


def entry(made: Draft, answers: Answers) -> dict[str, Any]:
    return entry_of(made, made.with_defaults(answers))


def test_every_field_of_a_package_is_used() -> None:
    made = draft(server(packages=[NPM]))
    assert [one.key for one in made.missing({})] == ["WEATHER_KEY", "folder", "host"]
    assert made.wanted["WEATHER_KEY"].is_secret
    assert made.is_foreign
    answers = {"WEATHER_KEY": ("${secret:w}",), "folder": ("/a", "/b"), "host": ("h",), "verbose": ("true",)}
    made_entry = entry(made, answers)
    assert made_entry == {
        "command": "npx",
        "args": "-y @acme/weather@1.4.2 /a /b --units metric --verbose --mode stdio --at h:80".split(),
        "env": {"WEATHER_KEY": "${secret:w}", "WEATHER_CACHE": "on"},
    }


def test_variables_of_a_container_never_have_values_on_the_command_line() -> None:
    package = {
        "registryType": "oci",
        "identifier": "ghcr.io/acme/weather:1.4.2",
        "runtimeArguments": [
            {
                "type": "named",
                "name": "-e",
                "value": "TOKEN={token}",
                "variables": {"token": {"isSecret": True, "isRequired": True}},
            },
            {
                "type": "named",
                "name": "--mount",
                "value": "type=bind,src={src},dst=/d",
                "variables": {"src": {"isRequired": True}},
            },
        ],
        "environmentVariables": [{"name": "UNITS", "value": "metric"}],
    }
    made = draft(server(packages=[package]))
    found = entry(made, {"token": ("${secret:t}",), "src": ("/s",)})
    assert found["args"] == [
        *"run -i --rm --mount type=bind,src=/s,dst=/d -e UNITS -e TOKEN ghcr.io/acme/weather:1.4.2".split()
    ]
    assert found["env"] == {"UNITS": "metric", "TOKEN": "${secret:t}"}


def test_a_remote_has_variables_in_its_address_and_headers() -> None:
    remotes = [
        {"type": "sse", "url": "https://acme.example/sse"},
        {
            "type": "streamable-http",
            "url": "https://{tenant}.acme.example/mcp",
            "variables": {"tenant": {"description": "Your tenant", "choices": ["eu", "us"]}},
            "headers": [
                {
                    "name": "Authorization",
                    "value": "Bearer {key}",
                    "variables": {"key": {"isSecret": True}},
                    "isRequired": True,
                },
                {"name": "X-Region", "default": "any"},
            ],
        },
    ]
    made = draft(server(remotes=remotes))
    assert [one.key for one in made.missing({})] == ["tenant", "key"]
    assert entry(made, {"tenant": ("eu",), "key": ("${secret:k}",)}) == {
        "type": "http",
        "url": "https://eu.acme.example/mcp",
        "headers": {"Authorization": "Bearer ${secret:k}", "X-Region": "any"},
    }


def test_the_first_package_that_can_run_here_is_chosen_unless_the_user_chooses() -> None:
    cargo = {"registryType": "cargo", "identifier": "x", "version": "1.0.0"}
    pypi = {"registryType": "pypi", "identifier": "weather", "version": "1.0"}
    both = server(
        packages=[cargo, {**NPM, "packageArguments": []}, pypi],
        remotes=[{"type": "sse", "url": "https://a.example/sse"}],
    )
    assert draft_of(both, "", {"uvx"}).__dict__["command"] == "uvx"
    assert draft(both, "npm").command == "npx"
    assert draft(both, "remote").transport == "sse"
    assert ways_to_run(both) == ["cargo", "npm", "pypi", "remote"]
    with pytest.raises(ConfigurationError, match="ways to run it: cargo, npm, pypi, remote"):
        draft(both, "oci")
    with pytest.raises(ConfigurationError, match="ways to run it: none"):
        draft(server())


def test_a_bundle_needs_its_checksum() -> None:
    package = {"registryType": "mcpb", "identifier": "https://a.example/x.mcpb", "fileSha256": "A" * 64}
    assert draft_of(server(packages=[package]), "", ()) == BundleAt("https://a.example/x.mcpb", "a" * 64)
    with pytest.raises(ConfigurationError, match="no SHA-256"):
        draft_of(server(packages=[{**package, "fileSha256": None}]), "", ())


@pytest.mark.parametrize(
    "changed",
    [
        {"identifier": "-x"},
        {"identifier": "x; curl evil"},
        {"identifier": "${HOME}"},
        {"identifier": ["x"]},
        {"version": "latest"},
        {"version": None},
        {"runtimeHint": "sh -c"},
        {"transport": {"type": "streamable-http", "url": "http://127.0.0.1"}},
        {"environmentVariables": [{"name": "A=B"}]},
        {"environmentVariables": [{"name": "A", "value": "${AWS_SECRET_ACCESS_KEY}"}]},
        {"environmentVariables": [{"name": "A", "default": "$HOME"}]},
        {"environmentVariables": [{"name": "A", "value": "x\x1b[31m"}]},
        {"environmentVariables": [{"name": "A"}] * 101},
        {"environmentVariables": {"A": "B"}},
        {"packageArguments": [{"type": "other"}]},
        {"packageArguments": [{"type": "named", "name": "--a b"}]},
        {"packageArguments": [{"type": "positional", "value": "x" * 5_000}]},
        {"packageArguments": ["x"]},
    ],
)
def test_a_package_that_says_what_it_must_not_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        draft(server(packages=[{**NPM, **changed}]))


@pytest.mark.parametrize(
    "remote",
    [
        {"type": "streamable-http", "url": "http://acme.example/mcp"},
        {"type": "streamable-http", "url": "file:///etc/passwd"},
        {"type": "streamable-http", "url": "https://a.example/${secret:github}"},
        {"type": "streamable-http", "url": "https://user:pass@a.example/"},
        {"type": "streamable-http", "url": "https://a.example", "headers": [{"name": "Host", "value": "x"}]},
        {"type": "streamable-http", "url": "https://a.example", "headers": [{"name": "X", "value": "${HOME}"}]},
        {"type": "streamable-http", "url": "https://a.example", "headers": [{"name": "X\r\nY", "value": "a"}]},
        {"type": ["sse"], "url": "https://a.example"},
        {"type": "carrier-pigeon", "url": "https://a.example"},
    ],
)
def test_a_remote_that_says_what_it_must_not_is_refused(remote: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        draft(server(remotes=[remote]))


@pytest.mark.parametrize(
    "name", ["PATH", "LD_PRELOAD", "NODE_OPTIONS", "npm_config_registry", "PYTHONPATH", "HTTPS_PROXY"]
)
def test_variables_that_change_what_runs_are_named(name: str) -> None:
    made = draft(server(packages=[{**NPM, "environmentVariables": [{"name": name, "value": "x"}]}]))
    assert any(name in note for note in made.notes)


def test_two_inputs_of_one_name_stay_two() -> None:
    package = {
        **NPM,
        "packageArguments": [
            {"type": "named", "name": "--a", "value": "{x}", "variables": {"x": {"description": "one"}}},
            {"type": "named", "name": "--b", "value": "{x}", "variables": {"x": {"description": "two"}}},
            {"type": "named", "name": "--c", "value": "{x}", "variables": {"x": {"description": "one"}}},
        ],
        "environmentVariables": [],
    }
    made = draft(server(packages=[package]))
    assert entry(made, {"x": ("1",), "x_2": ("2",)})["args"][2:] == ["--a", "1", "--b", "2", "--c", "1"]


def test_the_key_of_an_input_can_be_written_on_a_command_line() -> None:
    package = {
        **NPM,
        "packageArguments": [{"type": "positional", "valueHint": "path} to=x"}],
        "environmentVariables": [],
    }
    made = draft(server(packages=[package]))
    assert list(made.wanted) == ["path_to_x"]
    assert entry(made, {"path_to_x": ("/a",)})["args"][-1] == "/a"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["x", "${A}", "npm", "positional", "named", "-y"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from("name value type variables default".split()), inner)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(list(NPM)), values), st.booleans())
def test_any_document_gives_a_draft_or_a_refusal(changed: dict[str, Any], is_whole: bool) -> None:
    try:
        found = draft_of(
            server(packages=[{**NPM, **changed}], **({} if is_whole else {"remotes": [changed]})), "", PROGRAMS
        )
    except ConfigurationError:
        return
    if isinstance(found, Draft):
        answers = dict.fromkeys(found.wanted, ("answer",))
        assert "${" not in str(entry_of(found, answers))
