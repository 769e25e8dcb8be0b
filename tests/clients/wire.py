"""The four protocols in which clients talk to models, as far as a scripted model needs them.

Each says what a request offers and what it tells the model of earlier calls, and writes an answer, as a stream of
events or as a whole. Knows nothing of scripts and of HTTP; `endpoint` uses it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Body = Mapping[str, Any]
Event = tuple[str, Any]
"""The name of a server-sent event ("" if it has none), and its data."""

_COUNTED = {"input_tokens": 100, "output_tokens": 10}
_CREATED = 1_700_000_000


@dataclass(frozen=True)
class Result:
    """What a request tells the model of one call: the client's words, not the server's."""

    call_id: str
    raw: str
    """As it is in the request, which is what it costs."""
    text: str
    """All texts in it, one after another, without the escapes that JSON adds."""


@dataclass(frozen=True)
class Said:
    """The model answers with a text."""

    text: str


@dataclass(frozen=True)
class Called:
    """The model calls a tool by the name under which it was offered."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]


Act = Said | Called


class WireProtocol(Protocol):
    """What is known of a protocol."""

    def offered(self, body: Body) -> list[str]:
        """The names of the tools that the model may call now."""

    def results(self, body: Body) -> list[Result]:
        """What the model reads of earlier calls, in their order."""

    def whole(self, body: Body, acts: Sequence[Act]) -> Any:
        """An answer as one document."""

    def events(self, body: Body, acts: Sequence[Act]) -> Iterator[Event]:
        """An answer as a stream."""


def fresh(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:16]}"


def texts_in(value: Any) -> Iterator[str]:
    """Every text of a value, with those that JSON documents inside of texts hold."""
    if isinstance(value, str):
        yield value
        inner = _document(value)
        if inner is not None:
            yield from texts_in(inner)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from texts_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one)


def _document(text: str) -> Any:
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _result(call_id: str, value: Any) -> Result:
    """`value` is a text, or parts of which the texts count."""
    if isinstance(value, list) and all(isinstance(part, dict) and "text" in part for part in value):
        value = "\n".join(part["text"] for part in value)
    raw = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Result(call_id, raw, "\n".join(texts_in(value)))


class Anthropic:
    """Messages."""

    def offered(self, body: Body) -> list[str]:
        told = [result.get("content") for result in self._blocks(body, "tool_result")]
        parts = [part for content in told if isinstance(content, list) for part in content]
        loaded = [part["tool_name"] for part in parts if part.get("type") == "tool_reference"]
        shown = [tool["name"] for tool in body.get("tools") or () if "name" in tool and not tool.get("defer_loading")]
        return [*shown, *loaded]

    def results(self, body: Body) -> list[Result]:
        return [_result(one["tool_use_id"], one.get("content", "")) for one in self._blocks(body, "tool_result")]

    def _blocks(self, body: Body, kind: str) -> Iterator[dict[str, Any]]:
        for message in body.get("messages") or ():
            if isinstance(message["content"], list):
                yield from (block for block in message["content"] if block.get("type") == kind)

    def whole(self, body: Body, acts: Sequence[Act]) -> Any:
        return {**self._message(body), "content": [self._block(act) for act in acts], "stop_reason": self._stop(acts)}

    def events(self, body: Body, acts: Sequence[Act]) -> Iterator[Event]:
        yield self._event("message_start", message=self._message(body))
        for index, act in enumerate(acts):
            block = self._block(act)
            if isinstance(act, Said):
                empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": act.text}
            else:
                empty = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(act.arguments)}
            yield self._event("content_block_start", index=index, content_block=empty)
            yield self._event("content_block_delta", index=index, delta=delta)
            yield self._event("content_block_stop", index=index)
        stop = {"stop_reason": self._stop(acts), "stop_sequence": None}
        yield self._event("message_delta", delta=stop, usage={"output_tokens": 10})
        yield self._event("message_stop")

    def _event(self, kind: str, **more: Any) -> Event:
        return kind, {"type": kind, **more}

    def _message(self, body: Body) -> dict[str, Any]:
        return {
            "id": fresh("msg"),
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _COUNTED,
        }

    def _block(self, act: Act) -> dict[str, Any]:
        if isinstance(act, Said):
            return {"type": "text", "text": act.text}
        return {"type": "tool_use", "id": act.call_id, "name": act.name, "input": act.arguments}

    def _stop(self, acts: Sequence[Act]) -> str:
        return "tool_use" if any(isinstance(act, Called) for act in acts) else "end_turn"


class Responses:
    """OpenAI's Responses. Tools may come in namespaces, and later ones with the input."""

    def offered(self, body: Body) -> list[str]:
        return [name for name, _ in self._named(body)]

    def _named(self, body: Body) -> Iterator[tuple[str, str]]:
        """Names of tools, with their namespace."""
        later = [tool for item in self._input(body) for tool in item.get("tools") or ()]
        for tool in [*(body.get("tools") or ()), *later]:
            if tool.get("type") == "namespace":
                yield from ((inner["name"], tool["name"]) for inner in tool.get("tools") or ())
            else:
                yield tool.get("name") or tool["type"], ""

    def _input(self, body: Body) -> list[dict[str, Any]]:
        return body["input"] if isinstance(body.get("input"), list) else []

    def results(self, body: Body) -> list[Result]:
        return [
            _result(item.get("call_id") or "", item.get("output", item.get("tools", "")))
            for item in self._input(body)
            if str(item.get("type")).endswith("_output")
        ]

    def whole(self, body: Body, acts: Sequence[Act]) -> Any:
        return {
            "id": fresh("resp"),
            "object": "response",
            "created_at": _CREATED,
            "status": "completed",
            "model": body.get("model"),
            "output": [self._item(body, act) for act in acts],
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": {
                **_COUNTED,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 110,
            },
        }

    def events(self, body: Body, acts: Sequence[Act]) -> Iterator[Event]:
        response = self.whole(body, acts)
        begun = {**response, "status": "in_progress", "output": []}
        steps: list[Event] = [("response.created", {"response": begun})]
        for index, item in enumerate(response["output"]):
            steps += self._item_events(index, item)
        steps.append(("response.completed", {"response": response}))
        for number, (kind, data) in enumerate(steps):
            yield kind, {"type": kind, "sequence_number": number, **data}

    def _item_events(self, index: int, item: dict[str, Any]) -> Iterator[Event]:
        at = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            part, begun = item["content"][0], {**item, "status": "in_progress", "content": []}
            empty = {**part, "text": ""}
            yield "response.output_item.added", {"output_index": index, "item": begun}
            yield "response.content_part.added", {**at, "content_index": 0, "part": empty}
            yield "response.output_text.delta", {**at, "content_index": 0, "delta": part["text"]}
            yield "response.output_text.done", {**at, "content_index": 0, "text": part["text"]}
            yield "response.content_part.done", {**at, "content_index": 0, "part": part}
        elif item["type"] == "function_call":
            begun = {**item, "status": "in_progress", "arguments": ""}
            yield "response.output_item.added", {"output_index": index, "item": begun}
            yield "response.function_call_arguments.delta", {**at, "delta": item["arguments"]}
            yield "response.function_call_arguments.done", {**at, "arguments": item["arguments"]}
        else:
            yield "response.output_item.added", {"output_index": index, "item": item}
        yield "response.output_item.done", {"output_index": index, "item": item}

    def _item(self, body: Body, act: Act) -> dict[str, Any]:
        if isinstance(act, Said):
            part = {"type": "output_text", "text": act.text, "annotations": []}
            done = {"id": fresh("msg"), "status": "completed"}
            return {"type": "message", **done, "role": "assistant", "content": [part]}
        done = {"id": fresh("fc"), "status": "completed", "call_id": act.call_id}
        if act.name == "tool_search":
            return {"type": "tool_search_call", **done, "execution": "client", "arguments": act.arguments}
        space = next((space for name, space in self._named(body) if name == act.name and space), "")
        named = {"name": act.name, **({"namespace": space} if space else {})}
        return {"type": "function_call", **done, **named, "arguments": json.dumps(act.arguments)}


class Chat:
    """OpenAI's Chat Completions, which most others speak too."""

    def offered(self, body: Body) -> list[str]:
        return [tool["function"]["name"] for tool in body.get("tools") or () if "function" in tool]

    def results(self, body: Body) -> list[Result]:
        told = [message for message in body.get("messages") or () if message.get("role") == "tool"]
        return [_result(message.get("tool_call_id") or "", message.get("content") or "") for message in told]

    def whole(self, body: Body, acts: Sequence[Act]) -> Any:
        calls = self._calls(acts)
        message = {"role": "assistant", "content": self._text(acts) or None, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": self._finish(acts)}
        return {**self._head(body, "chat.completion"), "choices": [choice], "usage": self._usage()}

    def events(self, body: Body, acts: Sequence[Act]) -> Iterator[Event]:
        head = self._head(body, "chat.completion.chunk")
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": self._text(acts)}]
        deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(self._calls(acts))]
        for delta in deltas:
            yield "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        last = {"index": 0, "delta": {}, "finish_reason": self._finish(acts)}
        yield "", {**head, "choices": [last], "usage": self._usage()}
        yield "", "[DONE]"

    def _head(self, body: Body, kind: str) -> dict[str, Any]:
        return {"id": fresh("chatcmpl"), "object": kind, "created": _CREATED, "model": body.get("model")}

    def _usage(self) -> dict[str, int]:
        return {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}

    def _text(self, acts: Sequence[Act]) -> str:
        return "".join(act.text for act in acts if isinstance(act, Said))

    def _calls(self, acts: Sequence[Act]) -> list[dict[str, Any]]:
        return [
            {
                "id": act.call_id,
                "type": "function",
                "function": {"name": act.name, "arguments": json.dumps(act.arguments)},
            }
            for act in acts
            if isinstance(act, Called)
        ]

    def _finish(self, acts: Sequence[Act]) -> str:
        return "tool_calls" if self._calls(acts) else "stop"


class Gemini:
    """Google's generateContent. Results need not carry the id of their call: then they count in their order."""

    def offered(self, body: Body) -> list[str]:
        return [one["name"] for tool in body.get("tools") or () for one in tool.get("functionDeclarations") or ()]

    def results(self, body: Body) -> list[Result]:
        parts = [part for content in body.get("contents") or () for part in content.get("parts") or ()]
        asked = [part["functionCall"].get("id", "") for part in parts if "functionCall" in part]
        told = [part["functionResponse"] for part in parts if "functionResponse" in part]
        return [
            _result(answer.get("id") or (asked[number] if number < len(asked) else ""), answer.get("response"))
            for number, answer in enumerate(told)
        ]

    def whole(self, body: Body, acts: Sequence[Act]) -> Any:
        if not self.offered(body) and "application/json" in json.dumps(body.get("generationConfig") or {}):
            acts = [Said(json.dumps({"model_choice": "pro", "reasoning": "", "next_speaker": "user"}))]
        candidate = {"content": {"role": "model", "parts": [self._part(act) for act in acts]}, "finishReason": "STOP"}
        counted = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
        return {"candidates": [{**candidate, "index": 0}], "usageMetadata": counted, "modelVersion": "scripted"}

    def events(self, body: Body, acts: Sequence[Act]) -> Iterator[Event]:
        yield "", self.whole(body, acts)

    def _part(self, act: Act) -> dict[str, Any]:
        if isinstance(act, Said):
            return {"text": act.text}
        return {"functionCall": {"id": act.call_id, "name": act.name, "args": act.arguments}}


PROTOCOLS: tuple[tuple[re.Pattern[str], WireProtocol], ...] = (
    (re.compile(r"/messages$"), Anthropic()),
    (re.compile(r"/responses$"), Responses()),
    (re.compile(r"/chat/completions$"), Chat()),
    (re.compile(r":(stream)?[gG]enerateContent$"), Gemini()),
)


def protocol_of(path: str) -> WireProtocol | None:
    """The protocol of a request to this path, without its query; None if it is no question to a model."""
    return next((protocol for pattern, protocol in PROTOCOLS if pattern.search(path)), None)
