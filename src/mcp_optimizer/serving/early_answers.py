"""Answers the first requests of the client on stdio while the gateway is still loading.

Started by `cli` before the heavy imports, so it knows neither the SDK nor the server, which load slowly. Answers
handshakes, lists and pings from the first line on. Lists of servers' entries, and anything unusual, wait for the
server; later lines are still answered. Stops at the first line that could change the meaning of later ones. Every line
is kept for the server, which processes it as if it were new (`stdio`) and so knows what the client knows; each answer
must equal the server's own, and tests compare them. Reads little, and nothing from a client that does not read its
replies.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import pydantic_core

from mcp_optimizer.config.known_clients.habits import habits_of
from mcp_optimizer.domain.own_tools import NO_SIGNPOST, Signpost
from mcp_optimizer.limits import Limits
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.pipes import Pipes

logger = logging.getLogger(__name__)

_MOST = 64_000
"""Maximum bytes of all messages together, and about as many per read; the rest waits in the pipe."""


@dataclass(frozen=True)
class HeardLine:
    """A line from the client and its answer: the result of a request, or a notice; neither, if it was not answered."""

    line: bytes
    id: str | int | None = None
    result: Mapping[str, Any] | None = None
    notice: Mapping[str, Any] | None = None
    is_from_before: bool = False
    """Another gateway has answered it, so the answer may differ and is not sent."""

    @property
    def is_answered(self) -> bool:
        return self.result is not None or self.notice is not None


@dataclass(frozen=True)
class Heard:
    """The input read before the server was ready: processed lines, and bytes not yet looked at."""

    said: tuple[HeardLine, ...] = ()
    rest: bytes = b""


NOTHING = Heard()


class EarlyAnswers:
    """Answers the client's first requests in a background task until the server takes over."""

    def __init__(
        self, pipes: Pipes, requests: FirstRequests, answered: Callable[[str | int], None] = lambda _id: None
    ) -> None:
        """`answered` is told of each request that has its answer."""
        self.pipes = pipes
        self._answered = answered
        self._requests = requests
        self._said: list[HeardLine] = []
        self._rest = bytearray()
        self._stage = Stage.NEW
        self._open: set[str] = set()
        """The ids of requests whose answers are not complete."""
        self._tasks = BackgroundTasks(logger, "The first requests wait until everything is loaded")
        self._tasks.spawn(self._answer())

    @property
    def signpost(self) -> Signpost | None:
        """The description of the servers behind the gateway that the client gets."""
        return self._requests.signpost

    async def stop(self) -> Heard:
        """Hand reading and writing over to the server. No input is lost, and no reply is half written."""
        await self._tasks.close()
        return Heard(tuple(self._said), bytes(self._rest))

    async def _answer(self) -> None:
        read = 0
        # The client may have gone; the server notices that itself.
        with suppress(OSError):
            while read < _MOST and (chunk := await self.pipes.reader.read(_MOST)):
                read += len(chunk)
                self._rest += chunk
                while (end := self._rest.find(b"\n")) >= 0:
                    if not self._take(bytes(self._rest[:end])):
                        return
                    del self._rest[: end + 1]
                    await self.pipes.writer.drain()

    def _take(self, line: bytes) -> bool:
        """Answer a line if it is understood. Runs without a pause: a line is either answered and kept, or neither."""
        request = self._requests.understood(line, self._stage)
        if request is None or str(request.id) in self._open:
            return False
        if request.result is not None:
            self._write({"id": request.id, "result": request.result})
            if request.id is not None:
                self._answered(request.id)
        elif request.notice is not None:
            self._write(request.notice)
        if request.id is not None and request.result is None:
            self._open.add(str(request.id))
        self._stage = request.stage
        self._said.append(HeardLine(line, request.id, request.result, request.notice))
        return True

    def _write(self, message: Mapping[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"))
        self.pipes.writer.write(line.encode() + b"\n")


_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Legacy protocol revisions, the latest last. A client that asks for any other gets the latest."""

_MODERN = "2026-07-28"
_ENVELOPE = "io.modelcontextprotocol/"
_CAPABILITIES = {
    "completions": {},
    "logging": {},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "tools": {"listChanged": True},
}
_LONGEST = 10_000
"""Maximum bytes of a message that is answered here."""

_LARGEST_ID = 2**63
_OBJECT: dict[str, Any] = {}
_OBJECTS = dict[str, dict[str, Any]]
_CLIENT_INFO = {"name": str, "version": str, "title": str, "description": str, "websiteUrl": str}
_CLIENT_CAPABILITIES = {
    "experimental": _OBJECTS,
    "extensions": _OBJECTS,
    "roots": {"listChanged": bool},
    "sampling": {"context": _OBJECT, "tools": _OBJECT},
    "elicitation": {"form": _OBJECT, "url": _OBJECT},
}
"""The known members of each part of a message. Unlisted keys may hold anything, except those in `_UNUSUAL`."""

_UNUSUAL = frozenset({"_meta", "tasks", "icons"})

_LISTS = ("prompts/list", "resources/list", "resources/templates/list")
"""Lists of servers' entries. They decide the era, like every modern request, but are left to the server."""

_ANNOUNCED = frozenset({"toolsListChanged", "promptsListChanged", "resourcesListChanged"})


class Stage(Enum):
    """The client's stage in the protocol: its first deciding message fixes its era."""

    NEW = auto()
    """The client has sent nothing that decides the era: `server/discover` only asks, and a client that stops waiting
    for its answer shakes hands.
    """
    LEGACY = auto()
    """The client sent a ping before its handshake."""
    INITIALIZED = auto()
    MODERN = auto()


@dataclass(frozen=True)
class FirstRequest:
    """A message that is understood, and the client's stage from then on.

    `result` is None for a notification, which gets no reply, and for a request that is answered by a `notice` and stays
    open.
    """

    stage: Stage
    id: str | int | None = None
    result: Mapping[str, Any] | None = None
    notice: Mapping[str, Any] | None = None
    is_left: bool = False
    """The message is left to the server; later messages can still be answered here."""


ToolsOf = Callable[[str], Sequence[dict[str, Any]]]
"""The tools that a client with this name gets."""


class FirstRequests:
    """Interprets the first messages of one client."""

    def __init__(
        self,
        tools_of: ToolsOf | None,
        version: str,
        limits: Limits,
        signpost: Signpost | None = NO_SIGNPOST,
        *,
        is_native: bool = False,
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        """`tools_of`: our own tools as clients get them; None if the list depends on the servers. `signpost`: the
        description of the servers behind the gateway; None: no description. `extensions`: those of the protocol that
        are declared while servers start.
        """
        self._capabilities = {**_CAPABILITIES, "extensions": extensions} if extensions else _CAPABILITIES
        self._tools_of = tools_of
        self._client = ""
        self.signpost = signpost
        self._instructions = {}
        if signpost is not None:
            said = signpost.native_instructions if is_native else signpost.instructions
            self._instructions = {"instructions": said}
        self._server = {"name": "mcp-optimizer", "title": "mcp-optimizer", "version": version}
        self._limits = limits
        # A message has at least as many bytes as values, so with this limit the values need not be counted.
        self._longest = min(_LONGEST, limits.request_bytes, limits.request_values, limits.introduction_bytes)

    def understood(self, line: bytes, stage: Stage) -> FirstRequest | None:
        """The message in this line, if it is one that can be answered or passed over here."""
        message = self._read(line)
        if message is None:
            return None
        method, params = message.get("method"), message.get("params", {})
        if "id" not in message:
            is_known = stage is Stage.INITIALIZED and method == "notifications/initialized" and params == {}
            return FirstRequest(stage) if is_known else _left(stage, method)
        if not self._is_id(message["id"]) or not isinstance(params, dict):
            return None
        is_modern = stage is Stage.MODERN or (stage is Stage.NEW and self._has_envelope(params))
        if is_modern and method == "subscriptions/listen":
            notice = self._acknowledged(message["id"], params)
            if notice is not None:
                return FirstRequest(Stage.MODERN, message["id"], notice=notice)
            return _left(stage, method, message["id"])
        if is_modern and method in _LISTS and set(params) == {"_meta"} and self._has_envelope(params):
            return FirstRequest(Stage.MODERN, message["id"], is_left=True)
        found = self._modern(method, params, stage) if is_modern else self._legacy(method, params, stage)
        if found is None:
            return _left(stage, method, message["id"])
        return FirstRequest(found[0], message["id"], found[1])

    def discovery(self, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The result of `server/discover`, if the request has nothing unusual."""
        if set(params) != {"_meta"} or not self._has_envelope(params):
            return None
        said = {"supportedVersions": [_MODERN], "capabilities": self._capabilities, **self._instructions}
        return {**said, **self._stamp, "ttlMs": 0, "cacheScope": "private"}

    @property
    def _stamp(self) -> dict[str, Any]:
        return {"resultType": "complete", "_meta": {f"{_ENVELOPE}serverInfo": self._server}}

    def _acknowledged(self, request: str | int, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The notice that confirms of which changed lists a client is notified. Resources are left to the server."""
        wanted = params.get("notifications")
        if set(params) != {"_meta", "notifications"} or not self._has_envelope(params):
            return None
        if not isinstance(wanted, dict) or not set(wanted) <= _ANNOUNCED or not all(map(_is_flag, wanted.values())):
            return None
        told = {name: True for name, is_wanted in wanted.items() if is_wanted}
        said = {"_meta": {f"{_ENVELOPE}subscriptionId": request}, "notifications": told}
        return {"method": "notifications/subscriptions/acknowledged", "params": said}

    def _read(self, line: bytes) -> dict[str, Any] | None:
        if len(line) > self._longest:
            return None
        try:
            message = pydantic_core.from_json(line, allow_inf_nan=False)
        except ValueError:
            return None
        is_plain = isinstance(message, dict) and set(message) <= {"jsonrpc", "id", "method", "params"}
        return message if is_plain and message.get("jsonrpc") == "2.0" and _is_writable(message) else None

    def _legacy(self, method: Any, params: Mapping[str, Any], stage: Stage) -> tuple[Stage, Mapping[str, Any]] | None:
        is_initialized = stage is Stage.INITIALIZED
        if method == "initialize" and not is_initialized and self._can_open(params):
            self._client = params["clientInfo"]["name"]
            return Stage.INITIALIZED, self._opening(params["protocolVersion"])
        if not _has_only_a_token(params):
            return None
        if method == "ping":
            return stage if is_initialized else Stage.LEGACY, {}
        listed = self._listed(method) if is_initialized else None
        return (stage, listed) if listed is not None else None

    def _modern(self, method: Any, params: Mapping[str, Any], stage: Stage) -> tuple[Stage, Mapping[str, Any]] | None:
        if method == "server/discover":
            found = self.discovery(params)
            return (stage, found) if found is not None else None
        if set(params) != {"_meta"} or not self._has_envelope(params):
            return None
        self._client = params["_meta"][f"{_ENVELOPE}clientInfo"]["name"]
        if (listed := self._listed(method)) is None:
            return None
        assert self.signpost is not None
        hints = {"ttlMs": self.signpost.ttl_ms, "cacheScope": self.signpost.scope}
        return Stage.MODERN, {**listed, **self._stamp, **hints}

    def _listed(self, method: Any) -> Mapping[str, Any] | None:
        if method != "tools/list" or self._tools_of is None or self.signpost is None:
            return None
        return {"tools": list(self.signpost.on(self._tools_of(self._client), habits_of(self._client)))}

    def _has_envelope(self, params: Mapping[str, Any]) -> bool:
        meta = params.get("_meta")
        if not isinstance(meta, dict) or meta.get(f"{_ENVELOPE}protocolVersion") != _MODERN:
            return False
        known = {f"{_ENVELOPE}{name}" for name in ("protocolVersion", "clientInfo", "clientCapabilities")}
        has_parts = set(meta) == known
        return has_parts and self._is_client(meta[f"{_ENVELOPE}clientInfo"], meta[f"{_ENVELOPE}clientCapabilities"])

    def _can_open(self, params: Mapping[str, Any]) -> bool:
        has_parts = set(params) == {"protocolVersion", "capabilities", "clientInfo"}
        is_text = isinstance(params.get("protocolVersion"), str)
        return has_parts and is_text and self._is_client(params["clientInfo"], params["capabilities"])

    def _is_client(self, info: Any, capabilities: Any) -> bool:
        if not _fits(info, _CLIENT_INFO) or not {"name", "version"} <= set(info):
            return False
        return len(info["name"]) <= self._limits.client_name and _fits(capabilities, _CLIENT_CAPABILITIES)

    def _opening(self, asked: str) -> dict[str, Any]:
        return {
            "protocolVersion": asked if asked in _VERSIONS else _VERSIONS[-1],
            "capabilities": self._capabilities,
            "serverInfo": self._server,
            **self._instructions,
        }

    def _is_id(self, value: Any) -> bool:
        if isinstance(value, str):
            return len(value) <= self._limits.identifier
        return _is_whole(value)


def _left(stage: Stage, method: Any, request: str | int | None = None) -> FirstRequest | None:
    """Leave a message to the server. Before the client's era is known, nothing can be answered after such a message."""
    is_decided = stage in (Stage.INITIALIZED, Stage.MODERN)
    return FirstRequest(stage, request, is_left=True) if is_decided and isinstance(method, str) else None


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _fits(value: Any, shape: Any) -> bool:
    if shape == _OBJECTS:
        return isinstance(value, dict) and all(isinstance(item, dict) for item in value.values())
    if isinstance(shape, dict):
        is_usual = isinstance(value, dict) and not _UNUSUAL & set(value)
        return is_usual and all(_fits(item, shape[key]) for key, item in value.items() if key in shape)
    return type(value) is shape


def _has_only_a_token(params: Mapping[str, Any]) -> bool:
    """Whether there are no parameters except a progress token."""
    if not params:
        return True
    meta = params.get("_meta")
    if set(params) != {"_meta"} or not isinstance(meta, dict) or not set(meta) <= {"progressToken"}:
        return False
    token = meta.get("progressToken", "")
    return isinstance(token, str) or _is_whole(token)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST_ID


def _is_writable(value: Any) -> bool:
    """Whether JSON can express the value: 1e999 is read as infinity and cannot be written."""
    if isinstance(value, dict):
        return all(map(_is_writable, value.values()))
    if isinstance(value, list):
        return all(map(_is_writable, value))
    return not isinstance(value, float) or math.isfinite(value)
