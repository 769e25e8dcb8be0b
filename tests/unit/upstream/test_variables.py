"""Secrets in a server file: looked up by name if used, kept out of everything that is shown of a server."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.config.serverfile.parser import parse_server_file
from mcp_optimizer.config.serverfile.redaction import Redactor
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.config.serverfile.variables import SecretValues
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.gateway.reply_text import places

FILE = Path("/home/ada/mcp.json")


def read(document: dict[str, Any], **stored: str) -> list[ServerSpec]:
    """The servers of a document, where these secrets are stored."""
    values = {name.replace("__", ":"): value for name, value in stored.items()}
    return parse_server_file(json.dumps(document), FILE, {"HOST": "h"}, lambda _: SecretValues(values))


def one(entry: Any, **stored: str) -> ServerSpec:
    [spec] = read({"mcpServers": {"it": entry}}, **stored)
    return spec


def test_secrets_are_replaced_in_arguments_variables_headers_and_urls() -> None:
    local = one({"command": "x", "args": ["-k", "${secret:a}"], "env": {"T": "<${secret:b}>"}}, a="1", b="2")
    assert (local.args, local.env, local.problem) == (("-k", "1"), {"T": "<2>"}, "")
    remote = one({"url": "https://${HOST}/${secret:a}", "headers": {"X": "Bearer ${secret:a}"}}, a="1")
    assert (remote.url, remote.headers, remote.secrets) == ("https://h/1", {"X": "Bearer 1"}, {"a": "1"})


def test_a_value_that_looks_like_a_variable_is_not_replaced_again() -> None:
    assert one({"command": "x", "env": {"T": "${secret:a}"}}, a="${secret:b}", b="2").env == {"T": "${secret:b}"}


def test_secrets_are_looked_up_once_and_only_if_the_file_uses_any() -> None:
    asked: list[Collection[str]] = []

    def look_up(names: Collection[str]) -> SecretValues:
        asked.append(names)
        return SecretValues()

    def parse(*values: str) -> None:
        entries = {f"s{number}": {"command": "x", "env": {"A": value}} for number, value in enumerate(values)}
        parse_server_file(json.dumps({"mcpServers": entries}), FILE, {}, look_up)

    parse("plain", "$secret", "${A:-secret:b}", "{secret:a}")
    assert asked == []
    parse("${secret:a} ${secret:b}", "${secret:a}", "${input:c d}")
    assert asked == [{"a", "b", "input:c d"}]


def test_a_missing_secret_is_the_problem_of_its_entry_alone_and_names_the_command() -> None:
    entries = {"bad": {"command": "x", "env": {"A": "${secret:my key}"}}, "good": {"command": "x"}}
    bad, good = read({"mcpServers": entries})
    assert bad.problem == (
        "\"env.A\" uses ${secret:my key}, which is not stored; run `mcp-optimizer secret set 'my key'` "
        "(in /home/ada/mcp.json)"
    )
    assert bad.problem_kind is FailureKind.UNSTORED
    assert (good.problem, good.command) == ("", "x")


def test_a_secret_that_cannot_be_read_says_why() -> None:
    document = {"mcpServers": {"it": {"command": "x", "env": {"A": "${secret:a}"}}}}
    stored = SecretValues(problems={"a": "the key is lost."})
    [spec] = parse_server_file(json.dumps(document), FILE, {}, lambda _: stored)
    assert "uses ${secret:a}, which cannot be read: the key is lost." in spec.problem


@pytest.mark.parametrize("nested", [True, False])
def test_an_input_of_vs_code_is_a_secret_and_described_if_missing(nested: bool) -> None:
    inputs = [
        {"type": "promptString", "id": "token", "description": "GitHub\ntoken", "password": True},
        {"id": 3, "description": []},
        "odd",
    ]
    servers = {"it": {"type": "http", "url": "https://h", "headers": {"A": "Bearer ${input:token}"}}}
    inside: dict[str, Any] = {"inputs": inputs, "servers": servers}
    document = {"mcp": inside} if nested else inside
    [missing] = read(document)
    assert "uses ${input:token} (GitHub token), which is not stored; run `mcp-optimizer secret set input:token`" in (
        missing.problem
    )
    [found] = read(document, input__token="t0p")
    assert (found.headers, found.problem) == ({"A": "Bearer t0p"}, "")


def test_odd_inputs_of_a_file_are_ignored() -> None:
    odd: list[Any] = [None, 3, {"id": "a"}, [[]]]
    for inputs in odd:
        [spec] = read({"inputs": inputs, "servers": {"it": {"command": "x", "env": {"A": "${input:a}"}}}})
        assert "secret set input:a" in spec.problem


@pytest.mark.parametrize("key", ["type", "timeout", "cwd", "tools", "command"])
def test_a_secret_where_it_would_be_shown_is_refused_without_showing_it(key: str) -> None:
    spec = one({"command": "x", key: "${secret:a}"}, a="planted")
    assert f"\"{key}\" is not kept secret, so it cannot contain the secret 'a'" in spec.problem
    assert "planted" not in spec.problem


def test_no_value_is_shown_with_a_server_or_part_of_its_fingerprint() -> None:
    entries = [
        {"command": "x", "args": ["/srv/${secret:a}"], "env": {"T": "${secret:a}"}},
        {"url": "https://h/${secret:a}/mcp?k=${secret:a}", "headers": {"X": "${secret:a}"}},
    ]
    for entry in entries:
        spec, later = one(entry, a="planted"), one(entry, a="changed")
        assert "planted" not in repr(spec) + spec.target
        assert spec.fingerprint == later.fingerprint


def test_a_stored_path_is_not_told_to_models(tmp_path: Path) -> None:
    args = [str(tmp_path), "${secret:a}"]
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    assert places(one({"command": "x", "args": args}, a=str(hidden))) == (str(tmp_path),)


def test_a_stored_secret_is_redacted_even_where_it_looks_like_an_ordinary_word() -> None:
    redactor = Redactor(one({"command": "x", "args": ["--mode", "${secret:mode}"]}, mode="production"))
    assert redactor.text("started in production, cHJvZHVjdGlvbg==") == ("started in [redacted: mode], [redacted: mode]")
