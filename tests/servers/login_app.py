"""A client that logs in to a `LoginWorld` step by step over plain HTTP, so that a test can do any step wrong."""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2

from tests.servers.login_world import LoginWorld

CALLBACK = "http://127.0.0.1:8765/callback"
PUBLIC = {
    "redirect_uris": [CALLBACK],
    "grant_types": ["authorization_code", "refresh_token"],
    "token_endpoint_auth_method": "none",
}
"""Metadata of a client without a secret."""


class App:
    """A client as the authorization server knows it. Each has one verifier for all its logins."""

    def __init__(self, world: LoginWorld, client_id: str, scope: str = "mcp:read") -> None:
        self.world, self.client_id, self.scope = world, client_id, scope
        self.verifier = secrets.token_urlsafe(48)
        digest = hashlib.sha256(self.verifier.encode()).digest()
        self.challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def address(self, **changes: str | None) -> str:
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": CALLBACK,
            "scope": self.scope,
            "state": "the state",
            "resource": self.world.server_url,
            "code_challenge": self.challenge,
            "code_challenge_method": "S256",
            **changes,
        }
        return f"{self.world.issuer}/authorize?{urlencode({key: value for key, value in asked.items() if value})}"

    def redirected(self, **changes: str | None) -> dict[str, str]:
        """The parameters of the redirect that a browser is sent to."""
        redirect = self.world.browser(self.address(**changes))
        assert redirect.startswith(f"{CALLBACK}?")
        return {key: values[0] for key, values in parse_qs(urlsplit(redirect).query).items()}

    def token(self, **sent: str) -> httpx2.Response:
        form = {"client_id": self.client_id, "resource": self.world.server_url, **sent}
        return self.world.http.post(f"{self.world.issuer}/token", data=form)

    def exchange(self, code: str, verifier: str = "") -> httpx2.Response:
        sent = {"code": code, "redirect_uri": CALLBACK, "code_verifier": verifier or self.verifier}
        return self.token(grant_type="authorization_code", **sent)

    def refresh(self, refresh_token: str) -> httpx2.Response:
        return self.token(grant_type="refresh_token", refresh_token=refresh_token)

    def log_in(self) -> dict[str, Any]:
        tokens: dict[str, Any] = self.exchange(self.redirected()["code"]).raise_for_status().json()
        return tokens

    def call(self, tool: str, access_token: str) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}}}
        sent = {"Authorization": f"Bearer {access_token}", "Accept": "application/json, text/event-stream"}
        return self.world.http.post(self.world.server_url, json=message, headers=sent)

    def is_let_in(self, access_token: str, tool: str = "whoami") -> bool:
        """Whether a token opens the server, which then complains about the missing session."""
        return "Missing session ID" in self.call(tool, access_token).text


def public_app(world: LoginWorld, **values: Any) -> App:
    """Registers a client without a secret."""
    response = world.http.post(f"{world.issuer}/register", json=PUBLIC)
    assert response.status_code == 201
    assert "client_secret" not in response.json()
    return App(world, response.json()["client_id"], **values)
