"""What of a caller may go into a header or a variable, and what is refused without being repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.config.serverfile.parser import given_servers
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.caller import ANYONE, LOCAL_PRINCIPAL, CallerValueMissing, Principal


def ada(**claims: Any) -> Principal:
    return Principal("token:https://login.example ada", "corp:ada", claims={"sub": "ada", **claims})


def entry(**given: Any) -> ServerSpec:
    [spec] = given_servers({"crm": given}, {"HOME_DIR": "/srv", "TRICK": "${caller.email}"})
    return spec


def header(text: str) -> ServerSpec:
    return entry(url="https://crm.example/mcp", headers={"X-User": text, "X-Plain": "same"})


def variable(text: str) -> ServerSpec:
    return entry(command="crm", env={"USER": text, "PLAIN": "same"})


@pytest.mark.parametrize(
    ("text", "claims", "value"),
    [
        ("${caller.email}", {"email": "ada@example.com"}, "ada@example.com"),
        ("${caller.email}", {"email": "ada@example.com", "email_verified": True}, "ada@example.com"),
        ("${caller.email}", {"email": "ada@example.com", "email_verified": "true"}, "ada@example.com"),
        ("${caller.name}", {}, "corp:ada"),
        ("${caller.id}", {}, "token:https://login.example ada"),
        ("${caller.claim.department}", {"department": "R & D; eu"}, "R & D; eu"),
        ("${caller.claim.number}", {"number": 7}, "7"),
        ("${caller.claim.org.unit}", {"org": {"unit": "eu"}}, "eu"),
        ("${caller.claim.https://corp.example/unit}", {"https://corp.example/unit": "eu"}, "eu"),
        ("user=${caller.email} at ${HOME_DIR}", {"email": "a+b@example.com"}, "user=a+b@example.com at /srv"),
        ("${caller.claim.a}${caller.claim.b}", {"a": "x", "b": "y"}, "xy"),
    ],
)
def test_values_of_a_verified_caller_are_put_in(text: str, claims: dict[str, Any], value: str) -> None:
    assert header(text).for_caller(ada(**claims)).headers == {"X-User": value, "X-Plain": "same"}
    assert variable(text).for_caller(ada(**claims)).env == {"USER": value, "PLAIN": "same"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "is missing"),
        ("", "is empty"),
        ("x" * 1_001, "longer than 1,000"),
        (["a"], "as a text"),
        ({"a": "b"}, "as a text"),
        (True, "as a text"),
        (1.5, "as a text"),
        ("eu\r\nX-Role: planted", "characters that are not allowed"),
        ("eu\nplanted", "characters that are not allowed"),
        ("planted\0", "characters that are not allowed"),
        ("planted\u202e", "characters that are not allowed"),
        ("\ud800planted", "characters that are not allowed"),
        (" planted", "characters that are not allowed"),
        ("planted\t", "characters that are not allowed"),
    ],
)
def test_what_a_hostile_claim_says_is_refused_by_its_name_and_never_repeated(said: Any, why: str) -> None:
    claims = {} if said is None else {"unit": said}
    for spec, where in (
        (header("${caller.claim.unit}"), "header 'X-User'"),
        (variable("${caller.claim.unit}"), "'USER'"),
    ):
        with pytest.raises(CallerValueMissing) as refused:
            spec.for_caller(ada(**claims))
        assert why in str(refused.value)
        assert "'unit'" in str(refused.value)
        assert where in str(refused.value)
        assert "planted" not in str(refused.value)
        assert str(refused.value) in spec.missing_of(ada(**claims))


def test_a_header_is_ascii_and_a_variable_may_be_any_text() -> None:
    zoe = ada(given="Zoë")
    with pytest.raises(CallerValueMissing, match="'given'"):
        header("${caller.claim.given}").for_caller(zoe)
    assert variable("${caller.claim.given}").for_caller(zoe).env["USER"] == "Zoë"


@pytest.mark.parametrize(
    "said",
    [
        "x; role=admin",
        "a,b",
        'a"b',
        "../bob",
        "..",
        "-x",
        "a b",
        "a/b",
        "a:b",
        "a@b/c",
        "x&y=z",
        "%2e",
        "a\\b",
        "$HOME",
    ],
)
def test_inside_a_longer_text_a_claim_cannot_end_its_part(said: str) -> None:
    for text in ("user=${caller.claim.unit}", "/data/${caller.claim.unit}", "${caller.claim.unit}${caller.claim.unit}"):
        with pytest.raises(CallerValueMissing, match="a meaning of their own"):
            variable(text).for_caller(ada(unit=said))
    assert variable("${caller.claim.unit}").for_caller(ada(unit=said)).env["USER"] == said


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({}, "missing"),
        ({"email": "ada@example.com", "email_verified": False}, "not verified"),
        ({"email": "ada@example.com", "email_verified": "False"}, "not verified"),
        ({"email": "ada@example.com", "email_verified": "no"}, "not verified"),
        ({"email": "ada@example.com", "email_verified": None}, "not verified"),
        ({"email": "ada"}, "not an address"),
        ({"email": "a@b@c"}, "not an address"),
        ({"email": ["ada@example.com"]}, "not an address"),
        ({"email": "x" * 5_000 + "@example.com"}, "not an address"),
    ],
)
def test_an_email_is_an_address_that_its_issuer_does_not_doubt(claims: dict[str, Any], why: str) -> None:
    with pytest.raises(CallerValueMissing, match=why):
        header("${caller.email}").for_caller(ada(**claims))


@pytest.mark.parametrize("caller", [LOCAL_PRINCIPAL, ANYONE, Principal("key:1", "key:ci")])
def test_a_caller_without_a_token_has_no_claims(caller: Principal) -> None:
    for text in ("${caller.email}", "${caller.claim.email}"):
        with pytest.raises(CallerValueMissing, match="'email'"):
            header(text).for_caller(caller)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"command": "crm", "env": {"A": "${caller.phone}"}}, "is not known"),
        ({"command": "crm", "env": {"A": "${caller.claim.}"}}, "is not known"),
        ({"command": "crm", "env": {"A": f"${{caller.claim.{'x' * 201}}}"}}, "is not known"),
        ({"command": "crm", "env": {"A": "user ${caller.name}"}}, "must be the whole value"),
        ({"command": "crm", "args": ["${caller.email}"]}, 'only values of "headers"'),
        ({"command": "${caller.email}"}, 'only values of "headers"'),
        ({"command": "crm", "env": {"${caller.email}": "x"}}, ""),
        ({"url": "https://${caller.claim.org}.example"}, 'only values of "headers"'),
    ],
)
def test_values_of_a_caller_go_into_headers_and_variables_only(given: dict[str, Any], why: str) -> None:
    assert why in entry(**given).problem
    assert not entry(**given).by_caller


def test_a_value_that_looks_like_one_of_the_caller_is_text() -> None:
    spec = entry(command="crm", env={"A": "${TRICK}", "B": "${caller.email} ${TRICK}"})
    assert [one.name for one in spec.by_caller] == ["B"]
    made = spec.for_caller(ada(email="ada@example.com"))
    assert made.env == {"A": "${caller.email}", "B": "ada@example.com ${caller.email}"}


def test_an_entry_is_the_same_server_whoever_calls_and_shows_no_value() -> None:
    spec = header("${caller.email}")
    made = spec.for_caller(ada(email="ada@example.com"))
    assert spec.is_of_each_caller
    assert made.fingerprint == spec.fingerprint != entry(url="https://crm.example/mcp").fingerprint
    assert "ada@example.com" not in f"{spec!r} {made!r} {ada(email='ada@example.com')!r}"


def test_a_file_of_variables_has_no_values_of_callers(tmp_path: Path) -> None:
    (tmp_path / "one.env").write_text("A=${caller.email}\n")
    spec = entry(command="crm", envFile=str(tmp_path / "one.env"))
    assert (spec.env, spec.by_caller) == ({"A": "${caller.email}"}, ())
