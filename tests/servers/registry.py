"""A registry on this machine that speaks the API of MCP registries (v0.1), and a place for downloads."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

OFFICIAL = "io.modelcontextprotocol.registry/official"


@dataclass
class RegistryContents:
    """What the registry answers. `raw` replaces whole responses, by path."""

    servers: list[dict[str, Any]] = field(default_factory=list)
    raw: dict[str, tuple[int, Mapping[str, str], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    address: str = ""
    page: int = 2
    is_endless: bool = False

    def add(self, document: dict[str, Any], status: str = "active", **meta: Any) -> None:
        self.servers.append({"server": document, "_meta": {OFFICIAL: {"status": status, "isLatest": True, **meta}}})

    def reply(self, target: str) -> tuple[int, Mapping[str, str], bytes]:
        self.asked.append(target)
        parts = urlsplit(target)
        if parts.path in self.raw:
            return self.raw[parts.path]
        if parts.path == "/v0.1/servers":
            return self._list(parse_qs(parts.query))
        pieces = parts.path.split("/")
        if pieces[:3] == ["", "v0.1", "servers"] and len(pieces) == 6:
            name, version = unquote(pieces[3]), unquote(pieces[5])
            for one in reversed(self.servers):
                if one["server"]["name"] == name and version in ("latest", one["server"]["version"]):
                    return self._json(one)
        return 404, {}, b'{"title":"Not Found","status":404}'

    def _list(self, query: dict[str, list[str]]) -> tuple[int, Mapping[str, str], bytes]:
        if self.is_endless:
            return self._json({"servers": [], "metadata": {"nextCursor": str(len(self.asked))}})
        text = query.get("search", [""])[0]
        found = [one for one in self.servers if text in one["server"]["name"]]
        at = int(query.get("cursor", ["0"])[0])
        more = {"nextCursor": str(at + self.page)} if at + self.page < len(found) else {}
        shown = found[at : at + self.page]
        return self._json({"servers": shown, "metadata": {"count": len(shown), **more}})

    @staticmethod
    def _json(value: Any) -> tuple[int, Mapping[str, str], bytes]:
        return 200, {"content-type": "application/json"}, json.dumps(value).encode()


@contextmanager
def running_registry() -> Iterator[RegistryContents]:
    """A registry on a free port; what it has can change while it runs."""
    contents = RegistryContents()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = contents.reply(self.path)
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        contents.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield contents
        finally:
            server.shutdown()
            thread.join()
