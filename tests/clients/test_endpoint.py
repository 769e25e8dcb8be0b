"""The scripted model speaks four protocols, streaming or not; a client of each is imitated by a few lines of JSON."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.endpoint import DONE, Call, Endpoint
from tests.clients.story import result_id
from tests.clients.wire import texts_in

Ask = Callable[[str, dict[str, Any]], str]
CUT = '[Cut: 87 of 640 rows shown. Read on with read_result(result_id="r1d58a6cff", offset=87).]'
_CALL_ID = re.compile(r"call_s0_[0-9a-f]+")


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    with Endpoint(tmp_path).running() as running:
        yield running


@pytest.fixture
def ask(endpoint: Endpoint) -> Ask:
    def asking(path: str, body: dict[str, Any]) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
        connection.request("POST", f"/talk{path}", json.dumps(body), {"content-type": "application/json"})
        try:
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    return asking


def anthropic(results: dict[str, str]) -> dict[str, Any]:
    told = [{"type": "tool_result", "tool_use_id": call, "content": text} for call, text in results.items()]
    return {"tools": [{"name": "mcp__us__find_tool"}], "messages": [{"role": "user", "content": told}]}


def responses(results: dict[str, str]) -> dict[str, Any]:
    told = [{"type": "function_call_output", "call_id": call, "output": text} for call, text in results.items()]
    space = {"type": "namespace", "name": "us", "tools": [{"type": "function", "name": "find_tool"}]}
    return {"tools": [space], "input": told}


def chat(results: dict[str, str]) -> dict[str, Any]:
    told = [{"role": "tool", "tool_call_id": call, "content": text} for call, text in results.items()]
    return {"tools": [{"type": "function", "function": {"name": "us_find_tool"}}], "messages": told}


def gemini(results: dict[str, str]) -> dict[str, Any]:
    asked = [{"functionCall": {"id": call}} for call in results]
    told = [{"functionResponse": {"response": {"output": text}}} for text in results.values()]
    declared = {"functionDeclarations": [{"name": "us_find_tool"}]}
    return {"tools": [declared], "contents": [{"parts": asked}, {"parts": told}]}


PROTOCOLS = [
    pytest.param("/v1/messages", anthropic, {"stream": True}, id="anthropic, streaming"),
    pytest.param("/v1/messages", anthropic, {}, id="anthropic"),
    pytest.param("/v1/responses", responses, {"stream": True}, id="responses, streaming"),
    pytest.param("/v1/responses", responses, {}, id="responses"),
    pytest.param("/v1/chat/completions", chat, {"stream": True}, id="chat, streaming"),
    pytest.param("/v1/chat/completions", chat, {}, id="chat"),
    pytest.param("/v1beta/models/m:streamGenerateContent?alt=sse", gemini, {}, id="gemini, streaming"),
    pytest.param("/v1beta/models/m:generateContent", gemini, {}, id="gemini"),
]


@pytest.mark.parametrize(("path", "body", "more"), PROTOCOLS)
def test_a_script_is_followed_and_what_was_read_is_kept(
    endpoint: Endpoint, ask: Ask, path: str, body: Callable[[dict[str, str]], dict[str, Any]], more: dict[str, Any]
) -> None:
    talk = endpoint.begin("talk", "log", [Call(("call_tool_read", "find_tool"), {"tool_description": "orders"})])
    called = ask(path, {**body({}), **more})
    assert "find_tool" in called
    assert "tool_description" in called
    call_id = _CALL_ID.search(called)
    assert call_id is not None
    assert DONE in ask(path, {**body({call_id[0]: CUT}), **more})
    read = talk.read(0)
    assert read is not None
    assert result_id(read.text) == "r1d58a6cff"
    assert talk.missing == []


def test_a_tool_that_is_not_offered_is_searched_for_and_then_missed(endpoint: Endpoint, ask: Ask) -> None:
    talk = endpoint.begin("talk", "log", [Call(("find_tool",))])
    searching = {"tools": [{"name": "ToolSearch"}], "messages": []}
    assert "call_s0x_" in ask("/v1/messages", searching)
    assert talk.missing == []
    assert "There is no find_tool" in ask("/v1/messages", {"tools": [{"name": "Bash"}], "messages": []})
    assert talk.missing == ["find_tool"]


def test_a_step_may_follow_from_what_was_read_last(endpoint: Endpoint, ask: Ask) -> None:
    read_on = Call(("find_tool",), lambda read: {"result_id": result_id(read)})
    endpoint.begin("talk", "log", [Call(("find_tool",)), read_on])
    assert "r1d58a6cff" in ask("/v1/chat/completions", chat({"call_s0_ab": CUT}))


def test_an_id_is_found_wherever_a_client_puts_the_text() -> None:
    nested = {"output": json.dumps({"content": [{"type": "text", "text": CUT}]})}
    assert result_id("\n".join(texts_in(nested))) == "r1d58a6cff"
    assert result_id("87 of 640 rows") == ""


def test_a_request_without_tools_is_answered_without_a_step(endpoint: Endpoint, ask: Ask) -> None:
    talk = endpoint.begin("talk", "log", [Call(("find_tool",))])
    assert "call_s" not in ask("/v1/messages", {"messages": [{"role": "user", "content": "a title, please"}]})
    assert "call_s0_" in ask("/v1/messages", anthropic({}))
    assert talk.first.offered == ("mcp__us__find_tool",)
