"""What an HTTP request says before its body."""

from __future__ import annotations

from starlette.datastructures import Headers

from mcp_optimizer.serving.relay.head import fields_of, is_repeated

TWICE = [(b"host", b"one"), (b"accept", b"a"), (b"host", b"two")]


def test_of_a_field_that_is_there_twice_the_first_counts_as_starlette_reads_it() -> None:
    scope = {"headers": TWICE}
    assert fields_of(scope)[b"host"].decode() == Headers(scope=scope)["host"] == "one"


def test_a_request_made_out_of_another_one_has_its_own_fields() -> None:
    scope = {"headers": TWICE}
    assert fields_of(scope)[b"host"] == b"one"
    other = {**scope, "headers": [(b"host", b"three")]}
    assert fields_of(other) == {b"host": b"three"}


def test_only_the_fields_that_were_asked_about_count_as_repeated() -> None:
    scope = {"headers": TWICE}
    assert is_repeated(scope, (b"mcp-", b"ho"))
    assert not is_repeated(scope, (b"mcp-", b"accept"))
    assert not is_repeated({"headers": TWICE[:2]}, (b"ho",))
