"""A protected MCP server and its authorization server as processes, and a browser, for tests of logging in.

with login_world(seconds=1) as world:
    world.server_url, world.issuer              # what a server file and an `issuer` name
    redirect = world.browser(address)           # press Allow; the full redirect address, not requested
    world.control(fail_refresh=503)             # see `Switches` and `Endpoints.control` of the authorization server
    assert world.counts()["refreshes"] == 1
    assert not [secret for secret in world.secrets() if secret in log]
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.warm import python

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class LoginWorld:
    server_url: str
    issuer: str
    http: httpx2.Client
    """Follows no redirects and uses no proxy."""

    def control(self, **values: Any) -> dict[str, Any]:
        """Change how the authorization server behaves, until it is changed again."""
        told: dict[str, Any] = self.http.post(f"{self.issuer}/control", json=values).raise_for_status().json()
        return told

    def add_client(self, **metadata: Any) -> dict[str, Any]:
        """Register a client beforehand, as an administrator does. Returns its `client_id` and `client_secret`."""
        return self.control(add_client=metadata)

    def counts(self) -> dict[str, int]:
        """How often each thing happened, by the names in `COUNTS`."""
        counts: dict[str, int] = self._records()["counts"]
        return counts

    def secrets(self) -> list[str]:
        """Every token, code and client secret ever given, and every verifier and assertion ever received."""
        secrets: list[str] = self._records()["secrets"]
        return secrets

    def sign(self, **claims: Any) -> str:
        """A token with the issuer's signature that says whatever a test wants."""
        return str(self.control(sign=claims)["token"])

    def browser(self, address: str) -> str:
        """Open an authorization address and press Allow. Returns where the browser is sent, without going there."""
        response = self.http.get(address)
        if response.status_code == 200:
            assert "<button>Allow</button>" in response.text
            response = self.http.post(address)
        assert response.status_code == 302, f"{response.status_code}: {response.text}"
        return str(response.headers["Location"])

    def _records(self) -> dict[str, Any]:
        records: dict[str, Any] = self.http.get(f"{self.issuer}/control").raise_for_status().json()
        return records


@contextmanager
def login_world(
    *,
    seconds: int = 3,
    rotate: bool = True,
    registration: bool = True,
    pkce_metadata: bool = True,
    methods: tuple[str, ...] = (),
    server: str = "tests.servers.protected",
) -> Iterator[LoginWorld]:
    """Both servers on free ports, answering. The options are those of the authorization server; `server` is the module
    of the protected one.
    """
    switches = {"--rotate": rotate, "--no-registration": not registration, "--no-pkce-metadata": not pkce_metadata}
    options = [name for name, is_on in switches.items() if is_on]
    if methods:
        options += ["--methods", ",".join(methods)]
    with (
        running("tests.servers.authorization_server", "--seconds", str(seconds), *options) as issuer,
        running(server, "--issuer", issuer) as server_url,
        httpx2.Client(trust_env=False, timeout=20) as http,
    ):
        http.get(f"{issuer}/.well-known/oauth-authorization-server").raise_for_status()
        assert http.get(server_url).status_code == 401
        yield LoginWorld(server_url, issuer, http)


@contextmanager
def issuer_world(*options: str, seconds: int = 60) -> Iterator[LoginWorld]:
    """The authorization server alone, which signs its tokens; whom they are for, a test says."""
    signed = ("--signed", "--seconds", str(seconds), *options)
    with (
        running("tests.servers.authorization_server", *signed) as issuer,
        httpx2.Client(trust_env=False, timeout=20) as http,
    ):
        yield LoginWorld("", issuer, http)


@contextmanager
def running(module: str, *options: str, port: int = 0) -> Iterator[str]:
    """Run a server that prints its address once it listens. Yields that address."""
    command = [*python(), "-m", module, "--port", str(port), *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, f"{module} ended before it listened"
            yield address
        finally:
            process.kill()
