"""One attempt to log in: what it asks for, and which answers it accepts."""

from __future__ import annotations

import base64
import hashlib
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from mcp_optimizer.identity.oauth_client import Attempt, ClientId, Provider
from mcp_optimizer.identity.web import LoginFailed

ISSUER = "https://login.example"
REDIRECT = "http://localhost:1234/callback"


def made(*, says_issuer: bool = False) -> Attempt:
    endpoints = f"{ISSUER}/authorize?tenant=1", f"{ISSUER}/token"
    provider = Provider(ISSUER, *endpoints, "https://mcp.example/mcp", says_issuer=says_issuer)
    return Attempt(provider, ClientId("me"), REDIRECT, ("read", "write"))


def redirect(**given: str) -> str:
    return f"{REDIRECT}?{urlencode(given)}"


def test_the_address_asks_for_a_code_with_pkce_for_the_server_and_its_scopes() -> None:
    attempt = made()
    asked = parse_qs(urlsplit(attempt.address).query)
    digest = hashlib.sha256(attempt.verifier.encode()).digest()
    assert asked == {
        "tenant": ["1"],
        "response_type": ["code"],
        "client_id": ["me"],
        "redirect_uri": [REDIRECT],
        "state": [attempt.state],
        "code_challenge": [base64.urlsafe_b64encode(digest).decode().rstrip("=")],
        "code_challenge_method": ["S256"],
        "resource": ["https://mcp.example/mcp"],
        "scope": ["read write"],
    }


def test_no_two_attempts_share_a_state_or_a_verifier() -> None:
    attempts = [made() for _ in range(50)]
    assert len({attempt.state for attempt in attempts}) == 50
    assert len({attempt.verifier for attempt in attempts}) == 50


def test_neither_verifier_nor_state_shows_in_a_representation() -> None:
    attempt = made()
    assert attempt.verifier not in repr(attempt)
    assert attempt.state not in repr(attempt)


def test_the_code_of_the_own_answer_is_accepted_in_any_form_that_people_paste() -> None:
    attempt = made()
    whole = redirect(code="c1", state=attempt.state, iss=ISSUER)
    assert attempt.code_in(f"  {whole}\n") == "c1"
    assert attempt.code_in(whole.partition("?")[2]) == "c1"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"code": "c1", "state": "another"}, "state"),
        ({"code": "c1"}, "state"),
        ({"code": "c1", "iss": "https://evil.example"}, "another authorization server"),
        ({"code": "c1", "iss": f"{ISSUER}/"}, "another authorization server"),
        ({"error": "access_denied"}, "access_denied"),
        ({"error": "x\x1b[31m"}, "no readable reason"),
        ({}, "no code"),
    ],
)
def test_another_answer_is_refused_with_the_reason(given: dict[str, str], why: str) -> None:
    attempt = made()
    own = {} if "state" in given or given == {"code": "c1"} else {"state": attempt.state}
    with pytest.raises(LoginFailed, match=why):
        attempt.code_in(redirect(**own, **given))


def test_an_answer_without_issuer_is_refused_if_the_issuer_promised_to_name_itself() -> None:
    attempt = made(says_issuer=True)
    with pytest.raises(LoginFailed, match="no iss"):
        attempt.code_in(redirect(code="c1", state=attempt.state))


def test_an_error_of_another_issuer_is_not_believed() -> None:
    attempt = made()
    with pytest.raises(LoginFailed, match="another authorization server"):
        attempt.code_in(redirect(error="access_denied", state=attempt.state, iss="https://evil.example"))


def test_a_parameter_that_is_given_twice_counts_as_none() -> None:
    attempt = made()
    with pytest.raises(LoginFailed):
        attempt.code_in(redirect(code="c1", state=attempt.state) + "&code=c2")


@pytest.mark.parametrize("pasted", ["", "?", "http://[", "http://[?code=1", "x" * 1_000_000, "a=b&" * 100_000])
def test_whatever_is_pasted_gets_a_reason(pasted: str) -> None:
    with pytest.raises(LoginFailed):
        made().code_in(pasted)
