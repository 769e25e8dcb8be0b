"""What of a server file is corrected, to what, and what stays for a person to decide."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.config.serverfile.file_edits import entry_fixes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


def of(entry: Any, *, starts_itself: bool = False) -> list[tuple[tuple[str, ...], Any]]:
    found = entry_fixes({"mcpServers": {"one": entry}}, {"one"} if starts_itself else ())
    return [(fix.path[2:], fix.value) for fix in found]


@pytest.mark.parametrize(
    ("entry", "key", "value"),
    [
        ({"url": "example.com/mcp?key=x"}, "url", "https://example.com/mcp?key=x"),
        ({"url": "localhost:3000/mcp"}, "url", "http://localhost:3000/mcp"),
        ({"serverUrl": "127.0.0.1:3000"}, "serverUrl", "http://127.0.0.1:3000"),
        ({"url": "https://a.b", "type": "htpp"}, "type", "http"),
        ({"url": "https://a.b", "transport": "https"}, "transport", "http"),
        ({"command": "x", "type": "studio"}, "type", "stdio"),
        ({"command": "/usr/bin/docker", "args": ["run", "-it", "a"]}, "args", ["run", "-i", "a"]),
    ],
)
def test_what_has_one_right_form_gets_it(entry: Any, key: str, value: Any) -> None:
    assert of(entry) == [((key,), value)]


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "https://example.com/mcp"},
        {"url": "ftp://example.com"},
        {"url": "${BASE}/mcp"},
        {"url": "mcp"},
        {"url": "/mcp"},
        {"url": "two words.com"},
        {"url": 5},
        {"type": "websocket", "url": "https://a.b"},
        {"type": "streamable-http", "url": "https://a.b"},
        {"type": ["http"]},
        {"command": "docker", "args": ["run", "--rm", "image", "-it"]},
        {"command": "docker", "args": "run -it"},
        {"command": "server", "args": ["run", "-it"]},
        "text",
        None,
    ],
)
def test_what_would_be_a_guess_stays(entry: Any) -> None:
    assert of(entry) == []


def test_an_entry_that_starts_the_gateway_itself_is_removed_and_nothing_else_of_it_corrected() -> None:
    assert of({"url": "example.com"}, starts_itself=True) == [((), None)]


@pytest.mark.parametrize("keys", [["mcpServers"], ["servers"], ["mcp", "servers"]])
def test_entries_are_found_wherever_a_server_file_has_them(keys: list[str]) -> None:
    document: Any = {"one": {"url": "example.com"}}
    for key in reversed(keys):
        document = {key: document}
    [fix] = entry_fixes(document, ())
    assert fix.path == (*keys, "one", "url")


@given(JSON, st.sampled_from(["mcpServers", "servers", "mcp"]))
def test_any_document_is_read(value: Any, key: str) -> None:
    entry_fixes(value, ())
    entry_fixes({key: value}, ())
    entry_fixes({key: {"servers": value, "one": value}}, ())


def test_what_is_said_quotes_no_value() -> None:
    document = {"mcpServers": {"one": {"url": "hunter2.com/hunter2", "type": "htpp"}}}
    assert all("hunter2" not in fix.says for fix in entry_fixes(document, ()))
