"""A message of many megabytes is read like any other, without blocking everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.largejson.large_messages import read_large as read_raw
from mcp_optimizer.largejson.raw import plain
from mcp_optimizer.largejson.spans import decoded_parts, long_strings


def read_large(line: bytes, parse: Any) -> Any:
    """The message, parsed completely."""
    read = read_raw(line, parse)
    if isinstance(read, dict) and isinstance(read.get("result"), dict):
        return {**read, "result": plain(read["result"])}
    return read


TEXTS = st.text(st.characters(exclude_categories=()), max_size=200)


@given(TEXTS, st.booleans(), st.integers(13, 40))
def test_a_string_decoded_in_chunks_is_the_string(text: str, ascii_only: bool, chunk: int) -> None:
    raw = json.dumps(text, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert "".join(decoded_parts(raw, 1, len(raw) - 1, chunk)) == json.loads(raw)


@given(st.lists(TEXTS, max_size=8), st.booleans(), st.integers(0, 60))
def test_long_strings_are_found_wherever_they_are(texts: list[str], ascii_only: bool, length: int) -> None:
    data = json.dumps({"a": texts, "b": {"c": texts}}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = [data[start:end] for start, end in long_strings(data, length)]
    bodies = [json.dumps(text, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")[1:-1] for text in texts]
    assert found == [body for body in bodies if len(body) + 1 > length] * 2 or length < 3


def message(text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": text}], "isError": False}}


@pytest.mark.parametrize(
    "text",
    [
        "plain " * 60_000,
        'quoted "text" \\ with \n lines ' * 30_000,
        "é漢字😀" * 60_000,
        "\ud83d" + "x" * 300_000 + "\\",
        "",
    ],
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_large_message_is_read_like_any_other(text: str, ascii_only: bool) -> None:
    line = json.dumps(message(text), ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert read_large(line, json.loads) == message(text)


@pytest.mark.slow
def test_large_containers_are_parsed_in_parts() -> None:
    rows = [{"id": number, "name": f"person {number}", "tags": ["a,b", "{", "]"]} for number in range(20_000)]
    value = {
        "jsonrpc": "2.0",
        "result": {"structuredContent": {"rows": rows, "map": {str(n): n for n in range(60_000)}}},
    }
    assert read_large(json.dumps(value).encode(), json.loads) == value
    assert read_large(json.dumps(value, indent=1).encode(), json.loads) == value
    assert read_large(json.dumps([[[rows]]]).encode(), json.loads) == [[[rows]]]


def test_several_long_strings_and_a_long_key_all_come_back() -> None:
    value = {"x" * 100_000: ["y" * 100_000, {"z": "w" * 70_000}], "short": "s"}
    assert read_large(json.dumps(value).encode(), json.loads) == value


@pytest.mark.parametrize(
    "line",
    [
        b"x" * 100_000,
        b'{"a": "' + b"x" * 100_000,
        b'{"a": "' + b"\\q" * 50_000 + b'"}',
        b"[" + b"1," * 200_000 + b"]",
    ],
)
def test_what_is_no_json_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_large(line, json.loads)
