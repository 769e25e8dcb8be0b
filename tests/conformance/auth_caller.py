"""A caller over HTTP, for the conformance suite's scenario of enterprise-managed authorization. Used by `auth_client`.

The caller comes to a gateway with the ID token of the scenario's identity provider. That provider publishes no keys, so
the gateway asks about tokens at an introspection endpoint, which is here and believes what a token says.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx2
import jwt

from tests.e2e.raw_clients import MODERN, PATIENCE, HttpClient, message
from tests.e2e.running import http_gateway
from tests.waiting import until

SCENARIO = "auth/enterprise-managed-authorization"
SETTINGS = """
encoder = "none"
mode = "transparent"
require_auth = true
[[token_issuers]]
name = "company"
issuer = "{issuer}"
audience = "{audience}"
introspection_url = "{introspection}"
client_id = "gateway"
client_secret = "secret of the gateway"
"""


def managed_auth(issuer: str, context: dict[str, Any]) -> dict[str, Any]:
    """What an operator writes. `issuer`: the authorization server of the server."""
    exchange = {"type": "id-jag", "subject_token_type": "id_token", "issuer": context["idp_issuer"]}
    here = {"client_id": context["client_id"], "client_secret": context["client_secret"]}
    return {
        "principal": "caller",
        "issuer": issuer,
        **here,
        "exchange": {**exchange, "client_id": context["idp_client_id"]},
    }


async def use_as_caller(config: Path, context: dict[str, Any]) -> None:
    """Call the first tool of the server as the caller."""
    settings = config.with_name("settings.toml")
    with introspection() as address:
        said = {"issuer": context["idp_issuer"], "audience": context["idp_client_id"], "introspection": address}
        settings.write_text(SETTINGS.format(**said), encoding="utf-8")
        options = ("--settings", settings, "--database", config.with_name("catalog.db"))
        async with http_gateway(config, *options) as (gateway, _), httpx2.AsyncClient() as http:
            client = HttpClient(gateway, MODERN, http)
            client.headers["Authorization"] = f"Bearer {context['idp_id_token']}"
            await _call_first_tool(client)


async def _call_first_tool(client: HttpClient) -> None:
    found: list[dict[str, Any]] = []

    async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
        answer = await client.exchange(message(method, params, 1, MODERN))
        assert "result" in answer, answer
        return dict(answer["result"])

    async def is_listed() -> bool:
        found[:] = [tool for tool in (await ask("tools/list", {}))["tools"] if not tool["name"].endswith("_tool")]
        return bool(found)

    await until(is_listed, "the caller is listed the server's tools", PATIENCE)
    result = await ask("tools/call", {"name": found[0]["name"], "arguments": {}})
    assert not result.get("isError"), result


class _Believes(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        claims = jwt.decode(sent["token"][0], options={"verify_signature": False})
        body = json.dumps({"active": True, **claims}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@contextmanager
def introspection() -> Iterator[str]:
    """The address of the endpoint."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Believes)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/introspect"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run_as_caller(config: Path, context: dict[str, Any]) -> None:
    asyncio.run(use_as_caller(config, context))
