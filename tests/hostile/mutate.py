"""Changes messages at random from a seed, but keeps their structure, so most still look valid."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from tests.hostile.deeds import BEGIN, HELLO, STREAM, Asked, Deed, Exit, Say, Wire

_MARK = "\x00here\x00"

ODD = (
    "null", "true", "false", "0", "-1", "1.5", "1e999", "-1e999", "NaN", "9" * 400, "1" * 5_000,
    '""', '"x"', '"\\u0000"',
    '"\\ud800"', '"\\u001b[2J\\r\\n"', '"__proto__"', "[]", "{}", "[[]]", "[null]", '{"a":{"b":[1]}}', '{"":""}',
    '{"a":1,"a":2}', "[" * 200 + "]" * 200, '"' + "y" * 5_000 + '"', '"2026-07-28"', '"http://127.0.0.1:9/"', '"file:///"',
)  # fmt: skip
"""Values, as JSON, that a reader seldom expects."""

HUGE = ('"' + "z" * 300_000 + '"', "[" * 50_000 + "]" * 50_000, "[" + "0," * 50_000 + "0]")
"""Large values of the same kind, used once in a hundred."""

_NAMES = (
    "id",
    "method",
    "params",
    "result",
    "error",
    "_meta",
    "name",
    "uri",
    "type",
    "",
    "jsonrpc",
    "__class__",
    "\x00",
)

NOTICES: tuple[dict[str, Any], ...] = (
    {"method": "notifications/progress", "params": {"progressToken": 5, "progress": 1, "total": 2, "message": "m"}},
    {"method": "notifications/message", "params": {"level": "info", "logger": "l", "data": {"a": 1}}},
    {"method": "notifications/cancelled", "params": {"requestId": 5, "reason": "r"}},
    {"method": "notifications/tools/list_changed"},
    {"method": "notifications/prompts/list_changed"},
    {"method": "notifications/resources/list_changed", "params": {}},
    {"method": "notifications/resources/updated", "params": {"uri": "hostile://one"}},
    {"method": "notifications/elicitation/complete", "params": {"elicitationId": "e"}},
    {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": {"toolsListChanged": True}}},
    {"method": "notifications/tasks/status", "params": {"taskId": "t", "status": "working"}},
)
_QUESTIONS: tuple[dict[str, Any], ...] = (
    {"id": 1, "method": "ping"},
    {"id": "a", "method": "roots/list", "params": {}},
    {
        "id": 2,
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "t"}}], "maxTokens": 10},
    },
    {
        "id": "b",
        "method": "elicitation/create",
        "params": {
            "message": "your name?",
            "requestedSchema": {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]},
        },
    },
)
_ANSWERS: tuple[dict[str, Any], ...] = (
    {"id": 5, "result": {"content": [{"type": "text", "text": "t"}], "structuredContent": {"a": 1}, "isError": False}},
    {"id": 6, "error": {"code": -32000, "message": "rate limited", "data": {"retry": 1}}},
    {"id": 7, "result": {"resultType": "input_required", "inputRequests": {"q": {"method": "roots/list"}}}},
    {"id": 8, "result": {"tools": [{"name": "late", "inputSchema": {"type": "object"}}], "nextCursor": "c"}},
)
SERVER_MESSAGES = (*NOTICES, *_QUESTIONS, *_ANSWERS)


class Mutator:
    """Changes messages. The same seed and messages give the same changes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._last: Any = {"a": [1, {"b": "c"}]}

    def message(self, message: Any) -> tuple[bytes, str]:
        """A changed message, and the kinds of changes."""
        kinds, text = [], ""
        value = json.loads(json.dumps(message))
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            kind = self.random.choice(("type", "type", "type", "delete", "rename", "double", "wrap", "grow", "splice"))
            value, text = getattr(self, f"_{kind}")(value)
            kinds.append(kind)
        self._last = message
        data = text.encode("utf-8", "surrogatepass")
        if self.random.random() < 0.1:
            kind = self.random.choice(("truncate", "flip", "twice", "nul", "bom"))
            data = getattr(self, f"_{kind}")(data)
            kinds.append(kind)
        # A message stays on one line; only `_frames` splits lines.
        return data.replace(b"\n", b" "), "+".join(kinds)

    def odd(self) -> str:
        return self.random.choice(HUGE) if self.random.random() < 0.01 else self.random.choice(ODD)

    def _places(self, value: Any) -> list[tuple[Any, Any]]:
        """Every container and key of a value."""
        found: list[tuple[Any, Any]] = []
        pending = [value]
        while pending:
            place = pending.pop()
            keys: Any = list(place) if isinstance(place, dict) else range(len(place)) if isinstance(place, list) else ()
            for key in keys:
                found.append((place, key))
                pending.append(place[key])
        return found

    def _place(self, value: Any) -> tuple[Any, Any]:
        places = self._places(value)
        return self.random.choice(places) if places else ({}, "")

    def _written(self, value: Any) -> tuple[Any, str]:
        return value, json.dumps(value)

    def _type(self, value: Any) -> tuple[Any, str]:
        place, key = self._place(value)
        odd = self.odd()
        if not place:
            return self._written(value)
        before, place[key] = place[key], _MARK
        text = json.dumps(value).replace(json.dumps(_MARK), odd)
        place[key] = before
        try:
            return json.loads(text), text
        except (ValueError, RecursionError):
            return value, text

    def _delete(self, value: Any) -> tuple[Any, str]:
        place, key = self._place(value)
        if place:
            del place[key]
        return self._written(value)

    def _rename(self, value: Any) -> tuple[Any, str]:
        place, key = self._place(value)
        if isinstance(place, dict) and place:
            place[self.random.choice(_NAMES)] = place.pop(key)
        return self._written(value)

    def _double(self, value: Any) -> tuple[Any, str]:
        """Repeat a key with a second value."""
        place, key = self._place(value)
        if not isinstance(place, dict) or not place:
            return self._written(value)
        again = f"{json.dumps(str(key))}: {self.odd()}, "
        before, place[key] = place[key], _MARK
        text = json.dumps(value)
        place[key] = before
        name = f"{json.dumps(str(key))}: "
        return value, text.replace(name + json.dumps(_MARK), again + name + json.dumps(before), 1)

    def _wrap(self, value: Any) -> tuple[Any, str]:
        place, key = self._place(value)
        if place:
            place[key] = [place[key]] if self.random.random() < 0.5 else {"x": place[key]}
        return self._written(value)

    def _grow(self, value: Any) -> tuple[Any, str]:
        lists = [place[key] for place, key in self._places(value) if isinstance(place[key], list) and place[key]]
        if lists:
            grown = self.random.choice(lists)
            grown.extend(grown[-1:] * self.random.choice((1, 10, 1_000)))
        return self._written(value)

    def _splice(self, value: Any) -> tuple[Any, str]:
        """Replace a part of this message by a part of the previous one."""
        place, key = self._place(value)
        other, part = self._place(self._last)
        if place and other:
            place[key] = json.loads(json.dumps(other[part]))
        return self._written(value)

    def _truncate(self, data: bytes) -> bytes:
        return data[: self.random.randrange(len(data))] if data else data

    def _flip(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(min(len(changed), self.random.choice((1, 3, 10)))):
            changed[self.random.randrange(len(changed))] = self.random.randrange(256)
        return bytes(changed)

    def _twice(self, data: bytes) -> bytes:
        return data + data

    def _nul(self, data: bytes) -> bytes:
        return data.replace(b" ", b"\x00", 3)

    def _bom(self, data: bytes) -> bytes:
        return b"\xef\xbb\xbf" + data


_SPARED = {HELLO: 0.5, "tools/list": 0.5, BEGIN: 0.97}
"""How often to stay honest on an occasion, because a server that never comes up gets no calls to misbehave in."""

_HEADERS = (
    b"content-encoding: gzip", b"content-length: 7", b"transfer-encoding: chunked", b"location: file:///x", b"x: \xff",
    b"mcp-session-id: \xe4 other", b"set-cookie: a=" + b"b" * 5_000,
    b"content-type: text/html", b"x-long: " + b"h" * 100_000,
    b"connection: close, keep-alive", b"retry-after: -1", b"content-type: text/event-stream", b"no colon", b": x",
)  # fmt: skip

_LINES = (
    b"retry: 0", b"retry: " + b"9" * 400, b"id: a\x00\xff", b"event: other", b": c", b"", b"data", b"\xff: x",
    b"data: {", b"id", b"retry: -5", b"event: endpoint", b"\r", b"data: " + b"d" * 10_000,
)  # fmt: skip


class ServerMutations:
    """What a hostile server does on each occasion: it changes its answers and sends unsolicited messages. The seed and
    the number of its start decide the changes."""

    def __init__(self, seed: int | None, life: int, *, is_http: bool = False) -> None:
        self._mutator = Mutator((seed or 0) * 1_000_003 + life)
        self._is_http = is_http

    def at(self, occasion: str, asked: Asked) -> tuple[Sequence[Deed], list[str]]:
        """What to do, and the kinds of changes; nothing means to stay honest this time."""
        choice = self._mutator.random
        if choice.random() < _SPARED.get(occasion, 0.2):
            return (), []
        deeds: list[Deed] = []
        kinds: list[str] = []
        if occasion in ("tools/call", STREAM):
            for _ in range(choice.choice((1, 5, 20, 60))):
                made = choice.choice(SERVER_MESSAGES)
                data, kind = self._mutator.message({"jsonrpc": "2.0", **made})
                deeds.append(Say(data))
                kinds.append(f"{made.get('method') or 'answer'} {kind}")
        if asked.answer and occasion != BEGIN:
            deed, kind = self._answer(asked)
            deeds.append(deed)
            kinds.append(f"{asked.method} {kind}")
        if deeds and occasion != STREAM and choice.random() < 0.02:
            deeds.append(Exit())
            kinds.append("exit")
        return deeds, kinds

    def _answer(self, asked: Asked) -> tuple[Deed, str]:
        choice = self._mutator.random
        data, kind = self._mutator.message(json.loads(asked.answer))
        if not self._is_http or choice.random() < 0.7:
            return Say(data), kind
        if choice.random() < 0.3:
            return Wire(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + self._frames(data)), "frames"
        status = choice.choice((100, 200, 200, 200, 202, 204, 301, 307, 400, 401, 404, 429, 500, 503, 599, 999))
        lines = [b"content-type: application/json", b"content-length: %d" % len(data)]
        for _ in range(choice.choice((0, 1, 3))):
            lines.insert(choice.randrange(len(lines) + 1), choice.choice(_HEADERS))
        return Wire(b"HTTP/1.1 %d Odd\r\n%b\r\n\r\n%b" % (status, b"\r\n".join(lines), data)), "head"

    def _frames(self, data: bytes) -> bytes:
        """An event stream that contains the message among other lines."""
        choice = self._mutator.random
        lines = [choice.choice(_LINES) for _ in range(choice.choice((1, 3, 8)))]
        lines.insert(choice.randrange(len(lines) + 1), b"data: " + data + b"\n")
        return b"\n".join(lines) + b"\n\n"
