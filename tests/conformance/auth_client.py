"""The client that the conformance suite's auth scenarios drive: a gateway with the scenario's server as its only one.

    python -m tests.conformance.auth_client [--caller] URL

Does what a user does: starts the gateway, logs in when the server wants that (the browser is a plain GET that reads
`Location`), then lists and calls the first tool, and logs in again if a call needs more permissions. With `--caller` a
caller over HTTP does that, who logs in for itself (`auth_own_login`). For enterprise-managed authorization it is always
such a caller, whose token is exchanged (`auth_caller`).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.app.servers import server_specs
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import LoginRequired
from mcp_optimizer.identity.logins import Logins
from mcp_optimizer.upstream.state import UpstreamState
from tests.conformance.auth_caller import SCENARIO, managed_auth, run_as_caller
from tests.conformance.auth_own_login import run_with_own_login
from tests.e2e.raw_clients import MODERN, PATIENCE
from tests.waiting import until

NAME = "remote"
REDIRECT = "http://localhost:33418/callback"
METADATA_URL = "https://conformance-test.local/client-metadata.json"
_MOST_LOGINS = 3


def entry(url: str, scenario: str, context: dict[str, Any]) -> dict[str, Any]:
    """What a user would write for this scenario."""
    auth: dict[str, Any] = {"type": "oauth"}
    if scenario == "auth/basic-cimd":
        auth["client_metadata_url"] = METADATA_URL
    if "client-credentials" in scenario:
        auth = {"type": "client_credentials", "client_id": context["client_id"], "issuer": issuer_of(url)}
        if "private_key_pem" in context:
            key = Path(tempfile.mkdtemp()) / "key.pem"
            key.write_text(context["private_key_pem"], encoding="utf-8")
            auth |= {"private_key_file": str(key), "algorithm": context.get("signing_algorithm", "ES256")}
        else:
            auth["client_secret"] = context["client_secret"]
    elif scenario == SCENARIO:
        auth = managed_auth(issuer_of(url), context)
    elif "client_id" in context:
        auth |= {"client_id": context["client_id"], "client_secret": context.get("client_secret", "")}
    return {"type": "http", "url": url, "auth": {key: value for key, value in auth.items() if value}}


def issuer_of(url: str) -> str:
    """What a user looks up in the documentation of the server."""
    parts = urlsplit(url)
    found = httpx2.get(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}").json()
    return str(found["authorization_servers"][0])


async def browse(address: str) -> str:
    """Where a browser ends whose user allows everything."""
    async with httpx2.AsyncClient(follow_redirects=False) as browser:
        return str((await browser.get(address)).headers["location"])


async def log_in(logins: Logins, spec: ServerSpec) -> None:
    attempt = await logins.begin(spec, REDIRECT)
    await logins.finish(await browse(attempt.address), attempt)


async def use(config: Path) -> None:
    settings = load_settings({"config": config, "database": "none", "encoder": "none", "log_level": "error"})
    spec = server_specs(settings)[0]
    async with Optimizer.from_settings(settings) as optimizer:
        for _ in range(_MOST_LOGINS):
            state = optimizer.servers()[0]
            if state.status is ServerStatus.RUNNING:
                tool = optimizer.tools().tools[0]
                try:
                    await optimizer.call(tool.name, {})
                    return
                except LoginRequired:
                    pass
            elif state.status is not ServerStatus.LOGIN_NEEDED:
                raise SystemExit(f"{state.status}: {state.reason}")
            await log_in(optimizer.logins, spec)
            if state.status is not ServerStatus.RUNNING:
                await until_up(optimizer, state)
        raise SystemExit(f"Still not allowed after {_MOST_LOGINS} logins")


async def until_up(optimizer: Optimizer, before: UpstreamState) -> None:
    def is_decided() -> bool:
        state = optimizer.servers()[0]
        return state.status is not ServerStatus.STARTING and state is not before

    await until(is_decided, "the server comes up, or asks again", PATIENCE)
    await optimizer.wait_for_servers(PATIENCE)


def main() -> None:
    by_caller, url = "--caller" in sys.argv[1:-1], sys.argv[-1]
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mcp.json"
        servers = {NAME: entry(url, scenario, context)}
        if by_caller:
            servers[NAME]["auth"]["principal"] = "caller"
        config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        if scenario == SCENARIO:
            run_as_caller(config, context)
        elif by_caller:
            era = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", MODERN)
            run_with_own_login(config, NAME, era, has_account="client-credentials" in scenario)
        else:
            asyncio.run(use(config))


if __name__ == "__main__":
    main()
