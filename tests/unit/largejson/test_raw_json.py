"""Large values of a result stay as raw text of their message, and mean the same to every reader and writer."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.largejson.compact_json import parsed
from mcp_optimizer.largejson.large_messages import read_large
from mcp_optimizer.largejson.raw import LargeText, LargeValue, Placeholders, has_large, plain, wire_size

ROWS = [{"id": number, "name": f"person {number}", "tags": ["a,b", "{", "é"]} for number in range(20_000)]
TEXT = 'quoted "text" \\ with \n lines, é漢字😀 ' * 5_000


def read(result: dict[str, Any], **how: Any) -> dict[str, Any]:
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}, **how).encode("utf-8", "surrogatepass")
    found: dict[str, Any] = read_large(bytearray(line), json.loads)["result"]
    return found


def sent(result: dict[str, Any]) -> bytes:
    large = Placeholders()
    message = types.JSONRPCResponse(jsonrpc="2.0", id=1, result=large.take(result))
    return b"".join(large.filled(message.model_dump_json(by_alias=True, exclude_unset=True).encode()))


@pytest.mark.slow
@pytest.mark.parametrize("ascii_only", [True, False])
def test_texts_and_structured_content_are_not_parsed_and_are_sent_on_as_they_are(ascii_only: bool) -> None:
    result = {"content": [{"type": "text", "text": TEXT}], "structuredContent": {"rows": ROWS}, "isError": False}
    found = read(result, ensure_ascii=ascii_only)
    assert isinstance(found["content"][0]["text"], LargeText)
    assert isinstance(found["structuredContent"], LargeValue)
    assert found["isError"] is False
    assert plain(found) == result
    assert json.loads(sent(found))["result"] == result
    assert has_large(found)
    assert not has_large(result)


@pytest.mark.slow
def test_whoever_does_not_know_of_large_values_writes_what_they_mean() -> None:
    result = {"content": [{"type": "text", "text": TEXT}], "structuredContent": ROWS}
    found = read(result)
    message = types.JSONRPCResponse(jsonrpc="2.0", id=1, result=found)
    assert json.loads(message.model_dump_json())["result"] == result
    assert pydantic_core.from_json(pydantic_core.to_json(found)) == result


@pytest.mark.slow
def test_a_message_is_sent_on_one_line_however_it_came() -> None:
    result = {"content": [], "structuredContent": {"rows": ROWS}}
    said = sent(read(result, indent=2))
    assert b"\n" not in said
    assert json.loads(said)["result"] == result


def test_a_text_that_structured_content_repeats_is_held_once() -> None:
    result = {"content": [{"type": "text", "text": TEXT}], "structuredContent": {"content": TEXT, "path": "/a"}}
    found = read(result)
    assert found["structuredContent"]["content"] is found["content"][0]["text"]
    assert json.loads(sent(found))["result"] == result
    other = {**result, "structuredContent": {"content": TEXT + "!"}}
    assert isinstance(read(other)["structuredContent"], LargeValue)
    assert plain(read(other)) == other


def test_binary_blocks_and_resources_are_left_as_they_are_too() -> None:
    blob = "A" * 300_000
    blocks = [{"type": "image", "data": blob}, {"type": "resource", "resource": {"uri": "a://b", "blob": blob}}]
    found = read({"content": blocks})
    assert isinstance(found["content"][0]["data"], LargeText)
    assert isinstance(found["content"][1]["resource"]["blob"], LargeText)
    assert plain(found) == {"content": blocks}
    assert plain(read({"contents": [{"uri": "a://b", "text": TEXT}]})) == {"contents": [{"uri": "a://b", "text": TEXT}]}


def test_very_many_blocks_are_written_some_at_a_time() -> None:
    blocks: list[Any] = [{"type": "text", "text": f"block {number}"} for number in range(1_000)]
    blocks[700] = {"type": "text", "text": TEXT}
    found = read({"content": blocks})
    pieces = list(Placeholders().filled(b"{}"))
    assert pieces == [b"{}"]
    large = Placeholders()
    text = json.dumps(large.take(found)).encode()
    written = list(large.filled(text))
    assert max(map(len, written)) < 300_000
    assert json.loads(b"".join(written)) == {"content": blocks}
    assert wire_size(found) == len(b"".join(written)) - len(b" ")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_only_some_read_as_json_is_not_sent_on_as_it_came(number: str) -> None:
    rows = ", ".join(["[1, 2, 3, 4]"] * 40_000)
    line = f'{{"result": {{"structuredContent": {{"rows": [{rows}], "x": {number}}}}}}}'.encode()
    structured = read_large(line, json.loads)["result"]["structuredContent"]
    assert isinstance(structured, dict)
    assert len(structured["rows"]) == 40_000


@pytest.mark.parametrize("broken", ['["a",]', '["a" "b"]', '{"a":}', '["\\q"]', "[1, 2"])
def test_broken_structured_content_is_refused_with_its_message(broken: str) -> None:
    rows = ", ".join([broken] * 60_000)
    with pytest.raises(ValueError, match=r"\w"):
        read_large(f'{{"result": {{"structuredContent": {{"rows": [{rows}]}}}}}}'.encode(), parsed)


@pytest.mark.slow
def test_what_is_nested_very_deeply_ends_soon() -> None:
    line = b'{"result": {"structuredContent": ' + b"[" * 500_000 + b"]" * 500_000 + b"}}"
    with pytest.raises(ValueError, match="nested"):
        read_large(line, parsed)


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=300), st.booleans(), st.integers(4, 50))
def test_a_large_text_is_its_text_in_parts_and_characters(text: str, ascii_only: bool, size: int) -> None:
    raw = json.dumps(text, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    large = LargeText(memoryview(raw))
    meant = json.loads(raw)
    assert large.parsed() == meant
    assert "".join(large.parts(size)) == meant
    assert large.characters == len(meant)
    assert large.size == len(meant.encode("utf-8", "surrogatepass"))
    assert b"".join(large.pieces()) == raw
