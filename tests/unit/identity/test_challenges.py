"""What a server that refused wants is read from its challenge, whatever else it says."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.identity.challenges import Challenge, challenge_in, scopes_of


def test_a_challenge_names_the_metadata_and_the_scopes() -> None:
    header = 'Bearer resource_metadata="https://a.example/.well-known/x", scope="files:read files:write"'
    assert challenge_in(header) == Challenge("", ("files:read", "files:write"), "https://a.example/.well-known/x")


@pytest.mark.parametrize(
    "header",
    ['bearer error=insufficient_scope, scope="a"', 'Basic realm="x", Bearer error="insufficient_scope",scope=a'],
)
def test_a_challenge_is_found_however_it_is_written(header: str) -> None:
    found = challenge_in(header)
    assert found is not None
    assert found.wants_more_scopes
    assert found.scopes == ("a",)


@pytest.mark.parametrize("header", ["", "Basic realm=x", "Bearerish x=1", 'Negotiate abc, Digest realm="Bear"'])
def test_what_is_no_bearer_challenge_asks_for_no_login(header: str) -> None:
    assert challenge_in(header) is None


def test_parameters_of_another_challenge_do_not_count() -> None:
    found = challenge_in('Bearer error="invalid_token", Basic realm="x", scope="everything"')
    assert found == Challenge("invalid_token")


def test_scopes_without_a_parameter_are_not_known_and_empty_ones_are_none() -> None:
    assert challenge_in("Bearer") == Challenge(scopes=None)
    assert challenge_in('Bearer scope=" "') == Challenge(scopes=())


def test_scopes_that_cannot_be_sent_are_left_out() -> None:
    assert scopes_of('a "b" c\\d é a e') == ("a", "e")
    assert len(scopes_of(" ".join(f"s{number}" for number in range(10_000)))) == 100


@given(st.text())
def test_any_header_is_read(header: str) -> None:
    challenge_in(header)
    challenge_in(f"Bearer {header}")


@pytest.mark.parametrize("header", ["Bearer " + 'a="' * 100_000, "Bearer " + "a=" * 100_000, "Bearer " + " " * 500_000])
def test_a_long_header_takes_no_time(header: str) -> None:
    began = time.process_time()
    challenge_in(header)
    assert time.process_time() - began < 1
