"""A protected MCP server over streamable HTTP that has other tools, prompts and resources for every user.

python -m tests.servers.personal --port P --issuer http://localhost:Q

Prints its address once it listens (port 0: any free one). Everything that is one user's contains `USER-secret`, where
USER is the `sub` of the token. Speaks 2025-11-25. GET /control tells how many sessions each user opened, all
tokens that came, how many calls of `hold` wait, and how often a session was used with another user's token, which no
gateway may ever do; POST /control with `{"add": TOOL}` gives the user `ada` another tool, and announces it to her
sessions, and with `{"release": true}` lets the calls of `hold` go on.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.servers.protected import READ, WELL_KNOWN, Introspection

VERSION = "2025-11-25"
READS = {"readOnlyHint": True}
CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "completions": {},
}


@dataclass
class Session:
    user: str
    outgoing: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)


class Personal:
    def __init__(self, introspection: Introspection, metadata: str) -> None:
        self.introspection, self.metadata = introspection, metadata
        self.sessions: dict[str, Session] = {}
        self.opened: Counter[str] = Counter()
        self.mixed = 0
        self.added: list[str] = []
        self.calls = itertools.count(1)
        self.tokens: set[str] = set()
        self.held, self.is_released = 0, asyncio.Event()

    async def user(self, request: Request) -> str:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.tokens.add(token)
        found = await self.introspection.verify_token(token) if token else None
        return str(found.subject) if found is not None else ""

    def refused(self) -> Response:
        challenge = f'Bearer resource_metadata="{self.metadata}", scope="{READ}"'
        return JSONResponse({"error": "invalid_token"}, 401, {"WWW-Authenticate": challenge})

    async def post(self, request: Request) -> Response:
        user = await self.user(request)
        if not user:
            return self.refused()
        message = await request.json()
        if message.get("method") == "initialize":
            name = secrets.token_hex(8)
            self.sessions[name] = Session(user)
            self.opened[user] += 1
            result = {"protocolVersion": VERSION, "capabilities": CAPABILITIES}
            return reply(message, {**result, "serverInfo": {"name": "personal", "version": "1"}}, name)
        session = self.sessions.get(request.headers.get("mcp-session-id", ""))
        if session is None:
            return reply(message, None)
        if session.user != user:
            self.mixed += 1
            return Response("this session is not yours", 403)
        if "id" not in message:
            return Response(status_code=202)
        params = message.get("params") or {}
        if message["method"] == "tools/call" and params["name"] == "hold":
            self.held += 1
            await self.is_released.wait()
        return reply(message, self.result(user, message["method"], params))

    async def get(self, request: Request) -> Response:
        user, session = await self.user(request), self.sessions.get(request.headers.get("mcp-session-id", ""))
        if not user or session is None:
            return self.refused()
        self.mixed += session.user != user
        return StreamingResponse(events(session), media_type="text/event-stream")

    def tell(self, user: str, message: dict[str, Any]) -> None:
        for session in self.sessions.values():
            if session.user == user:
                session.outgoing.put_nowait({"jsonrpc": "2.0", **message})

    def tools(self, user: str) -> list[dict[str, Any]]:
        nothing = {"type": "object"}
        book = {"type": "object", "properties": {"book": {"enum": [f"{user}-secret-book"]}}}
        own = [*self.added] if user == "ada" else []
        return [
            {"name": "whoami", "description": "Who calls", "inputSchema": nothing, "annotations": READS},
            {"name": "write_page", "description": f"Write a page. Into {user}-secret-book.", "inputSchema": book},
            {"name": "all_pages", "description": "List all pages", "inputSchema": nothing, "annotations": READS},
            {"name": "hold", "description": "Wait for a release", "inputSchema": nothing},
            {"name": "touch_note", "description": "Change the note", "inputSchema": nothing},
            {"name": f"{user}_diary", "description": f"Read the diary {user}-secret-diary", "inputSchema": nothing},
            *({"name": name, "description": f"Added: {user}-secret", "inputSchema": nothing} for name in own),
        ]

    def result(self, user: str, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "tools/call":
            if params["name"] not in {tool["name"] for tool in self.tools(user)}:
                return {"content": [{"type": "text", "text": "no such tool for you"}], "isError": True}
            if params["name"] == "touch_note":
                for uri in ("note://mine", f"note://{user}-secret"):
                    self.tell(user, {"method": "notifications/resources/updated", "params": {"uri": uri}})
            text = f"{user}-secret {params['name']} #{next(self.calls)}"
            if params["name"] == "all_pages":
                text = json.dumps([{"page": page, "text": f"{user}-secret page {page}"} for page in range(200)])
            return {"content": [{"type": "text", "text": text}]}
        page = [{"uri": "note://mine", "name": "note"}, {"uri": f"note://{user}-secret", "name": "own note"}]
        known: dict[str, dict[str, Any]] = {
            "ping": {},
            "tools/list": {"tools": self.tools(user)},
            "prompts/list": {"prompts": [{"name": "greet"}, {"name": f"{user}-secret-prompt"}]},
            "prompts/get": {"messages": [said(f"{user}-secret greets")]},
            "resources/list": {"resources": page},
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "note://{name}", "name": "any"}]},
            "resources/read": {"contents": [{"uri": params.get("uri"), "text": f"{user}-secret note"}]},
            "resources/subscribe": {},
            "resources/unsubscribe": {},
            "completion/complete": {"completion": {"values": [f"{user}-secret word"]}},
        }
        return known.get(method)

    async def counts(self, _request: Request) -> Response:
        told = {"opened": self.opened, "mixed": self.mixed, "tokens": sorted(self.tokens), "held": self.held}
        return JSONResponse(told)

    async def control(self, request: Request) -> Response:
        asked = await request.json()
        if asked.get("release"):
            self.is_released.set()
            return JSONResponse({})
        self.added.append(asked["add"])
        self.tell("ada", {"method": "notifications/tools/list_changed"})
        return JSONResponse({})


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": text}}


def reply(message: dict[str, Any], result: dict[str, Any] | None, session: str = "") -> Response:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
    body |= {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
    return JSONResponse(body, headers={"Mcp-Session-Id": session} if session else {})


async def events(session: Session) -> AsyncIterator[str]:
    yield ": hello\n\n"
    while True:
        yield f"data: {json.dumps(await session.outgoing.get())}\n\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--issuer", required=True)
    options = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", options.port))
    origin = f"http://localhost:{listening.getsockname()[1]}"
    resource, metadata = f"{origin}/mcp", f"{WELL_KNOWN}/mcp"
    described = {"resource": resource, "authorization_servers": [options.issuer], "scopes_supported": [READ]}
    server = Personal(Introspection(options.issuer, resource), origin + metadata)

    async def well_known(_request: Request) -> Response:
        return JSONResponse({**described, "bearer_methods_supported": ["header"]})

    async def leave(_request: Request) -> Response:
        return Response(status_code=204)

    routes = [
        Route(metadata, well_known),
        Route("/mcp", server.post, methods=["POST"]),
        Route("/mcp", server.get, methods=["GET"]),
        Route("/mcp", leave, methods=["DELETE"]),
        Route("/control", server.counts, methods=["GET"]),
        Route("/control", server.control, methods=["POST"]),
    ]
    print(resource, flush=True)
    uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="critical")).run(sockets=[listening])


if __name__ == "__main__":
    main()
