"""What an authorization server calls an error is shown only if it cannot quote a secret."""

from __future__ import annotations

import pytest

from mcp_optimizer.identity.web import error_word


@pytest.mark.parametrize("code", ["invalid_grant", "access_denied", "temporarily_unavailable", "slow_down"])
def test_a_word_of_the_standards_is_shown(code: str) -> None:
    assert error_word(code, "else") == code


@pytest.mark.parametrize(
    "code", ["bad token rt-SECRET-4f3c2b1a", "rt-SECRET-4f3c2b1a", "sk_live_4f3c2b1a", "", None, 5, ["x"], "a" * 100]
)
def test_anything_else_is_not(code: object) -> None:
    assert error_word(code, "else") == "else"
