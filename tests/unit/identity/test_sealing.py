"""A sealed secret opens with its key, under its own kind and name, and in no other way."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.identity.vault import NotSealed, key_id_of, new_key, read_key, seal, unseal

KEY = new_key()


@given(st.text(max_size=20), st.text(max_size=20), st.binary(max_size=200))
def test_what_was_sealed_opens_with_its_key(kind: str, name: str, body: bytes) -> None:
    sealed = seal(KEY, kind, name, body)
    assert key_id_of(sealed) == KEY.id
    assert unseal(KEY, kind, name, sealed) == body


def test_it_does_not_open_under_another_name_or_kind_or_with_another_key() -> None:
    sealed = seal(KEY, "value", "a", b"body")
    for key, kind, name in ((KEY, "value", "b"), (KEY, "login", "a"), (new_key(), "value", "a")):
        with pytest.raises(NotSealed):
            unseal(key, kind, name, sealed)


@given(st.data())
def test_a_changed_byte_or_a_cut_is_noticed(data: st.DataObject) -> None:
    sealed = seal(KEY, "value", "a", b"body")
    at = data.draw(st.integers(0, len(sealed) - 1))
    changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
    for damaged in (changed, sealed[:at]):
        with pytest.raises(NotSealed):
            unseal(KEY, "value", "a", damaged)


def test_the_same_secret_is_never_sealed_the_same_way() -> None:
    assert len({seal(KEY, "value", "a", b"body") for _ in range(100)}) == 100


def test_neither_a_key_nor_its_id_shows_it() -> None:
    assert KEY.material.hex() not in repr(KEY)
    assert KEY.text not in repr(KEY)
    assert KEY.id not in KEY.material


def test_a_key_is_read_in_both_alphabets_of_base64() -> None:
    material = bytes(range(224, 256))
    for text in (base64.b64encode(material).decode(), f" {base64.urlsafe_b64encode(material).decode()}\n"):
        assert read_key(text).material == material


@pytest.mark.parametrize(
    "text", ["", "hunter2", "A" * 43, "A" * 1_000_000, "é" * 44, base64.b64encode(b"x" * 31).decode()]
)
def test_anything_else_is_no_key_and_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"it is not 32 bytes in base64$"):
        read_key(text)
