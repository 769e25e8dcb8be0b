"""A model that follows a script: an HTTP endpoint that logs what clients send and answers with the calls it was told.

What is in its log is what a model would have read, which is all that counts. Each conversation has an address of its
own. Called by the suite; knows the protocols from `wire` and nothing of clients and gateways.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.clients.wire import Act, Called, Result, Said, WireProtocol, fresh, protocol_of

MODELS = ("claude-sonnet-4-5", "gpt-5", "gemini-2.5-pro")
DONE = "That is all."
_SEARCHES = ("ToolSearch", "tool_search", "search_tool_functions")
"""Tools with which clients find tools that they did not offer."""
_MOST_SEARCHES = 5
_CALLS_ANY = "tool_call"
"""The tool with which Qwen Code calls what its search showed."""
_RUNS_CODE = "run_typescript"
"""The tool with which Mistral Vibe does."""
_IN_GROUPS = re.compile(r"\w+\.\w+")
_DEFINED = re.compile(r'"name": ?"([^"]+)"')
_CALL_ID = re.compile(r"^call_s(\d+)(x?)_")
_LARGEST = 50_000_000


@dataclass(frozen=True)
class Call:
    """A step of a script: call the first of these tools that is offered."""

    tools: tuple[str, ...]
    arguments: Mapping[str, Any] | Callable[[str], Mapping[str, Any]] = field(default_factory=dict)
    """What to call it with, or how that follows from all that was read."""
    also: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that the client asks its model for at every call, whatever the tool."""
    before: Callable[[], object] | None = None
    """What happens in the world before the model answers."""


@dataclass(frozen=True)
class Asked:
    """A request in which a model is asked to go on."""

    path: str
    body: Mapping[str, Any]
    offered: tuple[str, ...]
    results: tuple[Result, ...]


class Conversation:
    """A script, and what was read while it was followed."""

    def __init__(self, steps: Sequence[Call], log: Path) -> None:
        self._steps = steps
        self._log = log
        self._lock = threading.Lock()
        self._pause = threading.Event()
        self._begun: set[int] = set()
        self.asked: list[Asked] = []
        self.missing: list[str] = []
        """Tools that a step wanted, and the client did not offer."""

    @property
    def first(self) -> Asked:
        """The first request that offers tools; clients ask other things before, such as for a title. An empty one if
        there was none.
        """
        return next((one for one in self.asked if one.offered), Asked("", {}, (), ()))

    @property
    def searches(self) -> int:
        """How often the client's own search was needed before a tool could be called."""
        return sum(match[2] == "x" for match in map(_CALL_ID.match, self._call_ids()) if match)

    def _call_ids(self) -> list[str]:
        return list(dict.fromkeys(result.call_id for one in self.asked for result in one.results))

    def read(self, step: int) -> Result | None:
        """What the model read after this step, as last sent; None if it never came to that."""
        for one in reversed(self.asked):
            for result in one.results:
                match = _CALL_ID.match(result.call_id)
                if match and not match[2] and int(match[1]) == step:
                    return result
        return None

    def answer(self, path: str, body: Mapping[str, Any], protocol: WireProtocol) -> list[Act]:
        with self._lock:
            asked = Asked(path, body, tuple(protocol.offered(body)), tuple(protocol.results(body)))
            self.asked.append(asked)
            name = f"{len(self.asked):03d}.json"
            (self._log / name).write_text(json.dumps({"path": path, "body": body}, indent=1), encoding="utf-8")
            return [Said("ok")] if not asked.offered else [self._next(asked)]

    def _next(self, asked: Asked) -> Act:
        matches = [match for match in (_CALL_ID.match(one.call_id) for one in asked.results) if match]
        step = max((int(match[1]) + 1 for match in matches if not match[2]), default=0)
        if step >= len(self._steps):
            return Said(DONE)
        wanted = self._steps[step]
        if wanted.before is not None and step not in self._begun:
            wanted.before()
        self._begun.add(step)
        read = "\n".join(result.text for result in asked.results)
        arguments = wanted.arguments(read) if callable(wanted.arguments) else wanted.arguments
        if name := _chosen(wanted.tools, asked.offered):
            return Called(fresh(f"call_s{step}"), name, {**arguments, **wanted.also})
        if _CALLS_ANY in asked.offered and (name := _chosen(wanted.tools, _DEFINED.findall(read))):
            return Called(fresh(f"call_s{step}"), _CALLS_ANY, {"name": name, "arguments": dict(arguments)})
        if _RUNS_CODE in asked.offered and (name := _chosen(wanted.tools, _IN_GROUPS.findall(read))):
            code = f"async function main() {{ return await tools.{name}({json.dumps(arguments)}); }}"
            return Called(fresh(f"call_s{step}"), _RUNS_CODE, {"code": code})
        return self._look_for(wanted, step, asked, matches)

    def _look_for(self, wanted: Call, step: int, asked: Asked, matches: Sequence[re.Match[str]]) -> Act:
        """Ask the client's own search for a tool that is not offered."""
        search = next((name for name in asked.offered if name in _SEARCHES), "")
        searched = sum(match[2] == "x" and int(match[1]) == step for match in matches)
        if search and searched < _MOST_SEARCHES:
            # As a model does that is told to try again, and takes a while to say so.
            self._pause.wait(searched)
            return Called(fresh(f"call_s{step}x"), search, {"query": wanted.tools[-1]})
        self.missing.append(wanted.tools[-1])
        return Said(f"There is no {wanted.tools[-1]} among {', '.join(asked.offered)}")


def _chosen(wanted: Sequence[str], offered: Sequence[str]) -> str:
    """The offered name of the first tool that is there. Clients put the server's name before it, each its own way."""
    for want in wanted:
        ending = re.compile(rf"(^|[^a-z0-9]){re.escape(want)}$", re.IGNORECASE)
        if found := [name for name in offered if ending.search(name)]:
            return found[0]
    return ""


class Endpoint:
    """The endpoint, while it runs."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._conversations: dict[str, Conversation] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._conversations))
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        return self._server.server_port

    def begin(self, name: str, log_name: str, steps: Sequence[Call]) -> Conversation:
        """A conversation at `url(name)`, which ends the one that was there."""
        log = self._logs / log_name
        log.mkdir(parents=True, exist_ok=True)
        self._conversations[name] = Conversation(steps, log)
        return self._conversations[name]

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    @contextlib.contextmanager
    def running(self) -> Iterator[Endpoint]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _handler(conversations: Mapping[str, Conversation]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Requests are in the log of their conversation."""

        def do_GET(self) -> None:
            models = [{"id": one, "object": "model", "type": "model", "display_name": one} for one in MODELS]
            named = [{"name": f"models/{one}", "inputTokenLimit": 1_000_000} for one in MODELS]
            self._send_json({"object": "list", "data": models, "models": named, "has_more": False})

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            path = self.path.partition("?")[0]
            body = self._body()
            conversation = conversations.get(path.split("/")[1])
            protocol = protocol_of(path)
            if conversation is None or protocol is None or not isinstance(body, dict):
                # A count of tokens, telemetry and whatever else a client sends.
                self._send_json({"input_tokens": 100, "totalTokens": 100})
                return
            acts = conversation.answer(path, body, protocol)
            with contextlib.suppress(ConnectionError):
                if body.get("stream") or ":stream" in path:
                    self._send_events(protocol.events(body, acts))
                else:
                    self._send_json(protocol.whole(body, acts))

        def _body(self) -> Any:
            data = self._bytes()
            if self.headers.get("content-encoding") == "gzip":
                data = gzip.decompress(data)
            try:
                return json.loads(data)
            except ValueError:
                return None

        def _bytes(self) -> bytes:
            if self.headers.get("transfer-encoding", "").lower() != "chunked":
                return self.rfile.read(min(int(self.headers.get("content-length") or 0), _LARGEST))
            data = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data

        def _send_json(self, document: object) -> None:
            data = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _send_events(self, events: Iterator[tuple[str, Any]]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for kind, data in events:
                named = f"event: {kind}\n" if kind else ""
                text = data if isinstance(data, str) else json.dumps(data)
                self.wfile.write(f"{named}data: {text}\n\n".encode())
            self.close_connection = True

    return Handler
