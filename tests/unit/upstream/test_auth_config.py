"""How an entry says how to log in: our `auth`, the keys of other programs, and what is wrong with either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.config.serverfile.redaction import Redactor
from mcp_optimizer.config.serverfile.spec import NO_AUTH, AuthKind, AuthSpec
from mcp_optimizer.domain.failure_kinds import FailureKind
from tests.unit.upstream.login_entries import ACCOUNT, KEY, SECRET, URL, auth, one, problem


def test_an_entry_without_a_word_about_it_has_the_default() -> None:
    assert auth({}) == auth({"auth": None, "oauth": None, "headersHelper": None}) == NO_AUTH


@pytest.mark.parametrize("kind", ["none", "oauth"])
def test_a_word_is_enough(kind: str) -> None:
    assert auth({"auth": kind}) == auth({"auth": {"type": kind}}) == AuthSpec(AuthKind(kind))


def test_every_key_of_auth_is_read() -> None:
    given = {
        "type": "oauth",
        "client_id": "gateway",
        "client_secret": SECRET,
        "scopes": "read write read",
        "issuer": "https://login.example.com/tenant",
        "resource": "https://example.com/",
        "client_metadata_url": "https://example.org/client.json",
        "callback_port": 8123,
        "pkce": "assume",
        "principal": "shared",
        "algorithm": "RS256",
    }
    assert auth({"auth": given}) == AuthSpec(
        AuthKind.OAUTH,
        client_id="gateway",
        client_secret=SECRET,
        algorithm="RS256",
        scopes=("read", "write"),
        issuer="https://login.example.com/tenant",
        resource="https://example.com/",
        client_metadata_url="https://example.org/client.json",
        callback_port=8123,
        assumes_pkce=True,
    )


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            {"oauth": {"clientId": "c", "callbackPort": 3118, "scopes": "a b"}},
            AuthSpec(AuthKind.OAUTH, client_id="c", callback_port=3118, scopes=("a", "b")),
        ),
        ({"oauth": {"clientId": "c"}}, AuthSpec(AuthKind.OAUTH, client_id="c")),
        (
            {
                "oauth": {
                    "enabled": True,
                    "clientId": "c",
                    "clientSecret": SECRET,
                    "scopes": ["a"],
                    "issuer": "https://login.example.com",
                    "authorizationUrl": "https://login.example.com/authorize",
                    "redirectUri": 7,
                }
            },
            AuthSpec(
                AuthKind.OAUTH, client_id="c", client_secret=SECRET, scopes=("a",), issuer="https://login.example.com"
            ),
        ),
        ({"oauth": {"enabled": False, "clientId": ""}}, AuthSpec(AuthKind.NONE)),
        (
            {"oauth": {"clientId": "c", "clientSecret": SECRET, "scope": "a b"}},
            AuthSpec(AuthKind.OAUTH, client_id="c", client_secret=SECRET, scopes=("a", "b")),
        ),
        ({"oauth": {}}, AuthSpec(AuthKind.OAUTH)),
        ({"oauth": False}, AuthSpec(AuthKind.NONE)),
        (
            {"oauth": {"client_id": "c"}, "scopes": ["a"], "oauth_resource": "https://example.com/r"},
            AuthSpec(AuthKind.OAUTH, client_id="c", scopes=("a",), resource="https://example.com/r"),
        ),
        ({"scopes": ["a"]}, AuthSpec(scopes=("a",))),
        (
            {"auth": {"CLIENT_ID": "c", "CLIENT_SECRET": SECRET, "scopes": ["a"]}},
            AuthSpec(AuthKind.OAUTH, client_id="c", client_secret=SECRET, scopes=("a",)),
        ),
    ],
    ids=[
        "Claude Code",
        "VS Code",
        "Gemini CLI",
        "Gemini CLI, off",
        "opencode",
        "opencode, discovered",
        "opencode, off",
        "Codex",
        "Codex, scopes only",
        "Cursor",
    ],
)
def test_what_other_programs_write_is_understood(entry: dict[str, Any], expected: AuthSpec) -> None:
    assert auth(entry) == expected


def test_auth_has_the_last_word_and_completes_what_others_say() -> None:
    entry = {"oauth": {"clientId": "c", "scopes": ["a"]}, "auth": {"scopes": ["b"], "pkce": "assume"}}
    assert auth(entry) == AuthSpec(AuthKind.OAUTH, client_id="c", scopes=("b",), assumes_pkce=True)
    assert auth({**entry, "auth": "none"}).kind is AuthKind.NONE


def test_headers_of_codex_come_from_the_entry_and_the_environment() -> None:
    entry = {
        "http_headers": {"X-Region": "eu", "authorization": "old"},
        "env_http_headers": {"X-Tenant": "TENANT"},
        "bearer_token_env_var": "TOKEN",
    }
    found = one({**URL, **entry}, TENANT="acme", TOKEN="t0ken")
    assert found.headers == {"X-Region": "eu", "X-Tenant": "acme", "Authorization": "Bearer t0ken"}


@pytest.mark.parametrize(
    "entry",
    [
        {"bearer_token_env_var": SECRET},
        {"env_http_headers": {"X": SECRET}},
        {"auth": {**ACCOUNT, "client_secret_env": SECRET}},
    ],
)
def test_a_variable_that_is_not_set_is_a_problem_that_does_not_repeat_its_name(entry: dict[str, Any]) -> None:
    # People write the token itself where its variable is asked for.
    assert "environment variable" in problem(entry)
    assert one({**URL, **entry}).problem_kind is FailureKind.VARIABLE


def test_a_command_for_headers_is_read_as_written_with_its_environment_and_folder(tmp_path: Path) -> None:
    entry = {"headersHelper": "print ${TOKEN}", "env": {"TOKEN": "${TOKEN}"}, "cwd": "bin"}
    found = one({**URL, **entry}, tmp_path, TOKEN="t0ken")
    assert found.auth == AuthSpec(headers_command="print ${TOKEN}")
    assert (found.env, found.cwd) == ({"TOKEN": "t0ken"}, str(tmp_path / "bin"))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"oauth": "x"}, '"oauth" must be an object, or false'),
        ({"oauth": {"clientId": 7}}, '"oauth.clientId" must be a string'),
        ({"oauth_resource": "x"}, '"oauth_resource" must be a URL'),
        ({"scopes": 7}, '"scopes" must be a list of scopes'),
        ({"headersHelper": ["x"]}, '"headersHelper" must be a string'),
        ({"headersHelper": ""}, '"headersHelper" is empty'),
        ({"headersHelper": "x\0"}, '"headersHelper" is not a usable command'),
        ({"headersHelper": "x", "auth": "oauth"}, '"auth" and "headersHelper" both say who calls; keep one'),
        ({"headers_helper": "x"}, 'did you mean "headersHelper"?'),
        ({"httpHeaders": {}}, 'did you mean "http_headers"?'),
        ({"oatuh": {}}, 'did you mean "oauth"?'),
    ],
)
def test_wrong_values_of_other_programs_keys_are_problems_too(entry: dict[str, Any], reason: str) -> None:
    assert reason in problem(entry)


def test_keys_that_only_resemble_ours_are_left_alone() -> None:
    assert auth({"author": "ada", "scope": "user", "oauth": {"client": "x", "clientid2": 7}}).kind is AuthKind.OAUTH


def test_a_server_that_is_started_has_no_login() -> None:
    found = one({"command": "x", "auth": {"type": "oauth"}})
    assert 'give a server with a "command" its secrets in "env"' in found.problem
    assert not one({"command": "x", "auth": "none", "oauth": {}}).problem


def test_a_disabled_server_need_not_say_it_right() -> None:
    assert not one({**URL, "auth": 7, "disabled": True}).problem


def test_a_fingerprint_tells_accounts_apart_and_stays_what_it_was_without_one() -> None:
    plain = one(URL).fingerprint
    # As it was before there were logins.
    assert plain == "4a67248037e18e4f"
    assert one({**URL, "headersHelper": "x"}).fingerprint == plain
    assert one({**URL, "auth": {"type": "oauth", "client_id": "c", "client_secret": SECRET}}).fingerprint == (
        one({**URL, "auth": {"type": "oauth", "client_id": "c"}}).fingerprint
    )
    different = ["oauth", "none", {"client_id": "c"}, {"issuer": "https://a"}, {"resource": "https://a"}]
    assert len({plain, *(one({**URL, "auth": given}).fingerprint for given in different)}) == 6


def test_secrets_of_a_login_are_redacted(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    for secret in ({"client_secret": SECRET}, {"private_key_file": "key"}):
        found = one({**URL, "auth": {**ACCOUNT, **secret}}, tmp_path)
        assert SECRET not in Redactor(found).text(f"it failed with {SECRET}")
    found = one({**URL, "headersHelper": f"print --token {SECRET}"})
    assert SECRET not in Redactor(found).text(f"it failed with {SECRET}")


KEYS = "type client_id clientId client_secret scopes issuer resource callback_port pkce enabled private_key_file"
OF_ENTRIES = "auth oauth headersHelper scopes oauth_resource bearer_token_env_var http_headers env_http_headers cwd"
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text() | st.sampled_from(["oauth", "none", "shared"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.sampled_from(KEYS.split()), inner, max_size=5)
    ),
    max_leaves=10,
)


@pytest.mark.slow
@given(entry=st.dictionaries(st.sampled_from(OF_ENTRIES.split()), VALUES))
def test_any_value_gives_a_spec_or_a_problem(entry: dict[str, Any]) -> None:
    found = one({**URL, **entry})
    assert found.problem or found.url
    assert one({"command": "x", **entry}).name == "it"
