"""What a key looks like, who may be its holder, and when it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.access.callers.keys import (
    Wanted,
    expiry,
    id_of,
    is_secret_of,
    milliseconds,
    new_key,
    overlap_of,
    replacement,
)
from mcp_optimizer.domain.caller import Risk, Role
from mcp_optimizer.errors import ConfigurationError

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)


def test_a_key_is_recognized_by_its_text_and_no_other_is() -> None:
    key, text = new_key(Wanted("ci"), NOW)
    other, other_text = new_key(Wanted("ci"), NOW)
    assert id_of(text) == key.id
    assert is_secret_of(text, key)
    assert not is_secret_of(other_text, key)
    assert not is_secret_of(text, other)
    assert not is_secret_of(text[:-1] + ("A" if text[-1] != "A" else "B"), key)
    assert text.split("_", 2)[2].encode() not in key.digest
    assert "digest" not in repr(key)


def test_a_new_key_may_only_read_for_ninety_days_unless_told_otherwise() -> None:
    key, _ = new_key(Wanted("ci"), NOW)
    assert (key.risk, key.role, key.servers) == (Risk.READ, Role.NONE, None)
    assert key.expires_at_ms == milliseconds(NOW + timedelta(days=90))
    principal = key.principal
    assert (principal.id, principal.name, principal.is_verified) == (f"key:{key.id}", "key:ci", True)


@pytest.mark.parametrize(
    "text",
    ["", "mcpo_", "mcpo_abcdefghijkl_", "mcpo_ABCDEFGHIJKL_" + "a" * 43, "mcpo_abcdefghijkl_" + "a" * 44,
     "mcpo_abcdefghijkl_" + "ä" * 43, "mcpo_abcdefghijkl_" + "a" * 43 + "\n", "xmcpo_abcdefghijkl_" + "a" * 43],
)  # fmt: skip
def test_a_text_of_another_shape_is_no_key(text: str) -> None:
    assert id_of(text) is None


@given(st.text(max_size=100))
def test_no_text_breaks_reading_a_key(text: str) -> None:
    key, _ = new_key(Wanted("ci"), NOW)
    assert not is_secret_of(text, key)
    assert not is_secret_of(f"mcpo_{key.id}_{text}", key)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("12h", NOW + timedelta(hours=12)),
        ("90d", NOW + timedelta(days=90)),
        ("8w", NOW + timedelta(weeks=8)),
        ("2026-11-02", datetime(2026, 11, 2, 23, 59, 59, 999_999, tzinfo=UTC)),
        ("never", None),
    ],
)
def test_a_key_ends_when_it_is_told_to(text: str, ends: datetime | None) -> None:
    assert expiry(text, NOW) == ends


@pytest.mark.parametrize(
    "text", ["", "soon", "0d", "2026-11-01", "-1d", "9999999d", "999999w", "2200-01-01", "1m", "٣d"]
)
def test_an_end_that_makes_no_sense_is_refused_with_its_reason(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--expires"):
        expiry(text, NOW)


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(""),
        Wanted("x" * 65),
        Wanted(" ci"),
        Wanted("a\nb"),
        Wanted("a\u202eb"),
        Wanted("a\x1b[31m"),
        Wanted("ci", servers=[]),
        Wanted("ci", profile="huge"),
        Wanted("ci", calls_per_minute=-1),
        Wanted("ci", holder="a" * 10_000),
        Wanted("ci", holder="ada lovelace"),
        Wanted("ci", holder="ada\n"),
        Wanted("ci", holder="ada\x1b[31m"),
        Wanted("ci", holder="ada\u200b"),
        Wanted("ci", holder="ada\u3000"),
    ],
)
def test_a_key_that_cannot_be_is_refused_before_it_is_made(wanted: Wanted) -> None:
    with pytest.raises(ConfigurationError):
        new_key(wanted, NOW)


def test_all_keys_of_a_person_are_one_caller() -> None:
    laptop, phone = (new_key(Wanted(name, holder="ada@example.com"), NOW)[0].principal for name in ("laptop", "phone"))
    assert laptop.id == phone.id == laptop.name == phone.name == "holder:ada@example.com"
    assert [laptop.name_in_audit, phone.name_in_audit] == [
        "holder:ada@example.com by key laptop",
        "holder:ada@example.com by key phone",
    ]


def test_a_key_is_never_the_person_of_a_token_or_of_another_key() -> None:
    plain = new_key(Wanted("ci"), NOW)[0]
    for holder in ("corp:ada", "token:https://login.example 1", plain.principal.id, "local", "anyone", "dashboard"):
        made = new_key(Wanted("x", holder=holder.replace(" ", "")), NOW)[0].principal
        assert made.id.startswith("holder:")
        assert made.name.startswith("holder:")


def test_what_replaces_a_key_is_the_same_caller_with_the_same_rights_and_another_secret() -> None:
    old, _ = new_key(Wanted("ci", ["a"], Risk.WRITE, calls_per_minute=7, expires="12h"), NOW)
    later = NOW + timedelta(hours=5)
    first, text = replacement(old, None, later)
    assert first.principal == old.principal
    assert (first.servers, first.risk, first.calls_per_minute) == (old.servers, old.risk, 7)
    assert first.id != old.id
    assert is_secret_of(text, first)
    assert first.expires_at_ms == milliseconds(later + timedelta(hours=12))
    second, _ = replacement(first, "never", later)
    assert second.principal == old.principal
    assert second.expires_at_ms is None


@pytest.mark.parametrize(
    ("text", "lasts"),
    [("0", timedelta()), ("0h", timedelta()), ("30m", timedelta(minutes=30)), ("90d", timedelta(days=90))],
)
def test_two_keys_overlap_as_long_as_they_are_told_to(text: str, lasts: timedelta) -> None:
    assert overlap_of(text) == lasts


@pytest.mark.parametrize(
    "text", ["", "-1h", "1", "soon", "91d", "999999w", "1.5h", "1h\n", "never", "٣h", "2027-01-31"]
)
def test_an_overlap_that_makes_no_sense_is_refused_with_its_reason(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--overlap"):
        overlap_of(text)
